"""The actor of `arena fake actor`: fixed bytes for every request, whatever the game sends."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Discrete

from arena.external.actor import Agent


class FakeActor:
    """Answers without asking a policy.

    Args:
        agents: not used, as all but `config`.
        config: `tick` and `end`, the bytes of the answers.
        game_id: of the game.
        data: of the request that starts the game.
    """

    observation_space = action_space = Discrete(1)

    def __init__(self, agents: dict[str, Agent], config: Any, game_id: str, data: bytes) -> None:
        self._tick, self._end = config["tick"], config["end"]

    async def tick(self, data: bytes) -> bytes:
        """See the class."""
        tick: bytes = self._tick
        return tick

    async def end(self, data: bytes) -> bytes:
        """See the class."""
        end: bytes = self._end
        return end
