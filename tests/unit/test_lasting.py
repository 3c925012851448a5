"""Output without a reader, or closed before the start, stops no run and hides no error; a terminal obeys no text."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import sys
import unicodedata

import pytest

from arena.records.scoreboard import Scoreboard
from arena.terminal.display import LiveDisplay, PlainDisplay
from arena.terminal.output import Escapes, complain_of, guarded_output, printable, say

TITLE = "\x1b]0;owned\x07"  # an operating system command of xterm
HOSTILE = f"{TITLE}\x9b2J\u202egnp.\u2066\r\x08\udc1b\x1b[31m"
SHOWN = r"\u001b]0;owned\u0007\u009b2J\u202egnp.\u2066\u000d\u0008\udc1b\u001b[31m"


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


# ------------------------------------------------------------------------------------------------ control characters


def test_printable_shows_every_control_character_and_changes_no_other() -> None:
    overrides = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # of Unicode's annex 9
    for number in (*range(0x3000), *range(0x3000, sys.maxunicode + 1, 61)):
        char = chr(number)
        category, direction = unicodedata.category(char), unicodedata.bidirectional(char)
        if (category in ("Cc", "Cs", "Zl", "Zp") and char not in "\t\n") or direction in overrides:
            assert printable(char) == f"\\u{number:04x}"
        elif category != "Cf":
            assert printable(char) == char
    assert [printable(mark) for mark in "\u200e\u200f\u061c"] == [r"\u200e", r"\u200f", r"\u061c"]
    assert printable(HOSTILE) == SHOWN
    assert printable("one\r\ntwo\n") == "one\r\ntwo\n"


def test_json_says_the_same_when_it_is_printed() -> None:
    text = HOSTILE.replace("\udc1b", "")
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_guarded_stream_passes_on_only_the_arenas_own_escapes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as read, os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, name, stream)
        with guarded_output(lasts=True), guarded_output(lasts=True):
            print(HOSTILE, file=getattr(sys, name))
            getattr(sys, name).writelines([HOSTILE, "\n"])
            getattr(sys, name).write(Escapes("\x1b[?25h"))
        stream.close()
        assert read.read().decode() == f"{SHOWN}\n{SHOWN}\n\x1b[?25h"
        monkeypatch.undo()


def test_streams_in_memory_are_guarded_too(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded_output(lasts=True):
        print(HOSTILE)
    assert capsys.readouterr().out == f"{SHOWN}\n"


def test_traceback_shows_the_message_of_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError(HOSTILE)
    complain_of(ValueError, error, None)
    assert capsys.readouterr().err == f"ValueError: {SHOWN}\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_styles_of_a_game_count_on_a_terminal_alone(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = pty.openpty() if terminal else os.pipe()
    text = f"\x1b[41mA\x1b[0m{TITLE}\x1b[2J"
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with guarded_output(lasts=True):
            say(text, styles=True)
            found = os.read(reading, 1000).decode()
    os.close(reading)
    shown = r"\u001b]0;owned\u0007\u001b[2J"
    assert found == (f"\x1b[41mA\x1b[0m{shown}\x1b[0m\r\n" if terminal else f"A{shown}\n")


def test_displays_draw_names_as_text() -> None:
    drawn, lines = io.StringIO(), io.StringIO()
    board = Scoreboard()
    board.games["game"] = HOSTILE
    live = LiveDisplay(drawn, total_ticks=10, colors={}, width=200)
    plain = PlainDisplay(lines, total_ticks=10)
    for display in (live, plain):
        display.start()
        display.message(f"[link=http://x]{HOSTILE}")
        display.update(5, board)
        display.stop()
    own = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.getvalue())
    for text in (own, lines.getvalue()):
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\u2066]", text)
        assert text.count(SHOWN) >= 2
