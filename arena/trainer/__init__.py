"""Training a run from Python, iteration by iteration: `Trainer` holds a run, `Player` is one of its policies.

trainer   the run: trains, evaluates, saves, and goes on
remote    the processes of a launcher, which wait between two iterations
player    a policy that acts
"""

from arena.trainer.player import Player
from arena.trainer.trainer import Trainer

__all__ = ["Player", "Trainer"]
