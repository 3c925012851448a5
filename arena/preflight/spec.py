"""The capabilities of an algorithm, read from the members of its class; only this module reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arena import registry


@dataclass(frozen=True)
class AlgorithmSpec:
    """The members that the class of an algorithm has; all but `face` and `run` are optional."""

    faces: tuple[str, ...]  # the environments that its `run` can step, in the order of preference
    sync_on: str  # when its workers synchronize, `ticks` or `episodes`: see `arena.plan.deadlock`
    learns_as: str  # what one learner is: a `worker`, or a whole `team`
    independent: bool  # its workers never synchronize
    saves: bool  # `state_dict()`: its policies have checkpoints
    loads: bool  # `load_state_dict()`: a checkpoint can be loaded
    saves_worker: bool  # `worker_state_dict()`: each worker has a state of its own
    loads_worker: bool  # `load_worker_state_dict()`
    checks_spaces: bool  # `check(observation_space, action_space)`
    checks_team: bool  # `check_team(own, first)`
    has_sizes: bool  # `sizes(options, *, rows, ticks, workers)`
    made_from_spaces: bool  # `from_spaces(env, group, *, ticks, **options)`: it can be made without a game
    tries_out: bool  # `try_out()`: an instance from spaces can try parts of the user's own
    exports: bool  # `exported()`: its network can be written to a file for other runtimes
    dedicated_thread: bool  # its `run` needs a thread of its own where roles share a process

    @property
    def resumable(self) -> bool:
        """Whether what it has learned can be saved and loaded."""
        return self.saves and self.loads


def spec_of(cls: type[Any]) -> AlgorithmSpec:
    """The specification of an algorithm's class; raises ConfigError if its `schedule` is unknown."""
    return AlgorithmSpec(
        faces=(cls.face,) if isinstance(cls.face, str) else tuple(cls.face),
        sync_on=registry.schedule_of(cls),
        learns_as=getattr(cls, "learner", "worker"),
        independent=getattr(cls, "independent", False),
        saves=hasattr(cls, "state_dict"),
        loads=hasattr(cls, "load_state_dict"),
        saves_worker=hasattr(cls, "worker_state_dict"),
        loads_worker=hasattr(cls, "load_worker_state_dict"),
        checks_spaces=hasattr(cls, "check"),
        checks_team=hasattr(cls, "check_team"),
        has_sizes=hasattr(cls, "sizes"),
        made_from_spaces=hasattr(cls, "from_spaces"),
        tries_out=hasattr(cls, "try_out"),
        exports=callable(getattr(cls, "exported", None)),
        dedicated_thread=getattr(
            cls, "dedicated_thread", not any(base.__module__.startswith("policies.") for base in cls.__mro__)
        ),
    )
