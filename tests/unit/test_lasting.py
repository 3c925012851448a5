"""Output without a reader, or closed before the start: it stops no run and hides no error."""

from __future__ import annotations

import io
import os
import sys

import pytest

from arena.terminal.output import guarded_output


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_initially_closed_stream_stays_closed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, None)
    with guarded_output(lasts=True):
        assert getattr(sys, name) is None
    assert getattr(sys, name) is None


def test_error_propagates_and_streams_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        with pytest.raises(BrokenPipeError, match="of a game"), guarded_output(lasts=True):
            print("words", flush=True)
            raise BrokenPipeError("of a game")
        assert sys.stdout is unread


def test_unbuffered_stream_stays_unbuffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with PYTHONUNBUFFERED: the last output before a crash is read."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(reading, "rb"), io.TextIOWrapper(os.fdopen(writing, "wb", 0), write_through=True) as unbuffered:
        monkeypatch.setattr(sys, "stdout", unbuffered)
        with guarded_output(lasts=True):
            sys.stdout.write("last words")
            assert os.read(reading, 100) == b"last words"
