"""Callbacks that record their calls in `in_process.NOTES`, or fail or stop in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arena.callbacks import Callback, StartedRun
from arena.errors import ConfigError
from in_process import NOTES


class RecordsAll(Callback):
    """Records every call."""

    def __init__(self, *, name: str = "") -> None:
        self.name = name
        self.folder: Path | None = None

    def note(self, *told: Any) -> None:
        NOTES.append((self.name, *told) if self.name else told)

    def on_start(self, run: StartedRun) -> None:
        self.folder = run.folder
        self.note("start", run)

    def on_round(self, number: int) -> None:
        self.note("round", number)

    def on_episode(self, line: Mapping[str, Any]) -> None:
        self.note("episode", line)

    def on_update(self, line: Mapping[str, Any]) -> None:
        self.note("update", line)

    def on_result(self, result: Mapping[str, Any]) -> None:
        self.note("result", result)

    def on_evaluation(self, tick: int, lines: Sequence[Mapping[str, Any]], folder: Path) -> None:
        assert (folder / "episodes.jsonl").exists()
        self.note("evaluation", tick, lines, folder)

    def on_checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        assert all(path.exists() for path in checkpoints.values())
        self.note("checkpoint", tick, checkpoints)

    def on_end(self) -> None:
        self.note("end")


class RecordsUpdates:
    """Has no base class, and records updates only."""

    def on_update(self, line: Mapping[str, Any]) -> None:
        NOTES.append(("update alone", line["update"]))


class Stops(RecordsAll):
    """Requests the end of the run in the `nth` call of one of its methods, or in every call."""

    def __init__(self, *, where: str, nth: int = 1) -> None:
        super().__init__()
        self.where, self.left = where, nth

    def note(self, *told: Any) -> None:
        super().note(*told)
        if told[0] == self.where:
            self.left -= 1
            if self.left == 0:
                self.stop()


class Fails(Stops):
    """Raises in that call."""

    def stop(self) -> None:
        raise ZeroDivisionError(f"fails at {self.where}")


class Misspelled(Callback):
    """Has a method with a misspelled name."""

    def on_epsiode(self, line: Mapping[str, Any]) -> None: ...


class Empty(Callback):
    """Has no method of a callback."""


class WrongSignature(Callback):
    """Has an argument that the arena does not pass."""

    def on_update(self, line: Mapping[str, Any], number: int) -> None: ...  # type: ignore[override]


class RefusesOptions(RecordsAll):
    """Raises the given error in its constructor."""

    def __init__(self, *, error: str) -> None:
        super().__init__()
        raise {"config": ConfigError, "value": ValueError, "other": ZeroDivisionError}[error]("not like this")


class Measures(Callback):
    """Measures something of every second episode, of updates at some ticks, and at every checkpoint."""

    def on_episode(self, line: Mapping[str, Any]) -> None:
        if line["episode"] % 2:
            self.measure(reward=line["seats"][0]["return"], lane=line["lane"])
            self.measure(lost=float("nan"))

    def on_update(self, line: Mapping[str, Any]) -> None:
        if line["ticks"] % 3 == 0:
            self.measure(updates=line["update"])

    def on_checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        self.measure(at_checkpoint=tick)


class MeasuresWrongly(Callback):
    """Measures in a wrong place, or an invalid value."""

    def __init__(self, *, where: str) -> None:
        self.where = where

    def on_start(self, run: StartedRun) -> None:
        if self.where == "start":
            self.measure(x=1)

    def on_episode(self, line: Mapping[str, Any]) -> None:
        self.measure(**({"_x": 1} if self.where == "name" else {"x": "text"}))  # type: ignore[arg-type]


def measure(folder: Path, tick: int, checkpoints: Mapping[str, Path], *, fails_at: int = 0, gives: Any = None) -> Any:
    """An evaluation function: its arguments as numbers."""
    assert all(path.exists() for path in checkpoints.values())
    NOTES.append(("measured", tick))
    if tick == fails_at:
        raise ZeroDivisionError(f"fails at {tick}")
    if gives is not None:
        return gives
    games = folder / "episodes.jsonl"
    count = games.read_text().count("\n") if games.exists() else 0
    return {"games": count, "at": {"tick": tick, "none": float("nan")}, "off_policy_estimator": {"is": 0.5}}
