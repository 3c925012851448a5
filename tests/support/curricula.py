"""Curricula of tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from in_process import NOTES


class Longer:
    """Longer games by results; blue is frozen for two legs, and then learns faster."""

    def __init__(self, *, start: int) -> None:
        self.start, self.steps = start, start
        self.calls = 0

    def begin(self) -> dict[str, Any]:
        NOTES.append(("begin",))
        return {"envs.game.kwargs.max_steps": self.steps, "matches[0].env_kwargs.team_size": 1}

    def changes(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        NOTES.append(("changes", result["ticks"]))
        self.calls += 1
        found: dict[str, Any] = {}
        if result["episode_len_mean"] >= 0.7 * self.steps and self.steps < 500:
            self.steps = min(500, 2 * self.steps)
            found["envs.game.kwargs.max_steps"] = self.steps
        if self.calls in (2, 4):
            found["policies.blue.frozen"] = self.calls == 2
        if self.calls == 4:
            found["policies.blue.options.learning_rate"] = 1e-3
        return found or None

    def resume(self, lines: Sequence[Mapping[str, Any]]) -> None:
        NOTES.append(("resume", [line["tick"] for line in lines]))
        for line in lines:
            self.steps = line["set"].get("envs.game.kwargs.max_steps", self.steps)
        self.calls = len(lines) - 1


class UntilElo:
    """In a league: one more turn in each game when blue has reached an Elo."""

    def __init__(self, *, elo: float) -> None:
        self.elo, self.turns = elo, 2

    def begin(self) -> dict[str, Any]:
        return {"envs.game.kwargs.rounds": self.turns}

    def changes(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        NOTES.append(("changes", result["ticks"], result.get("ratings", {}).get("blue")))
        if result.get("ratings", {}).get("blue", -9999) < self.elo:  # ratings are in the results of rounds
            return None
        self.turns += 1
        return {"envs.game.kwargs.rounds": self.turns}

    def resume(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            self.turns = line["set"].get("envs.game.kwargs.rounds", self.turns)


class Says:
    """Returns the same changes after every leg."""

    def __init__(self, *, what: Any) -> None:
        self.what = what

    def changes(self, result: Mapping[str, Any]) -> Any:
        if self.what == "raise":
            raise ZeroDivisionError("raised")
        return {"envs.game.kwargs.max_steps": np.int64(3)} if self.what == "numpy" else self.what


class Misspelled:
    """Has a method that is never called."""

    def changes(self, result: Mapping[str, Any]) -> None: ...

    def beginn(self) -> None: ...


class WrongSignature:
    """`changes` has a wrong signature."""

    def changes(self) -> None: ...


class Nothing:
    """Has no method."""
