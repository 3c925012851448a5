"""What a game is to the arena: its interface, its spaces, and the lockstep of one match."""

from arena.game.api import BatchedEnv, Frame, Interface, Step
from arena.game.tree import Chance, Decision, End

__all__ = ["BatchedEnv", "Chance", "Decision", "End", "Frame", "Interface", "Step"]
