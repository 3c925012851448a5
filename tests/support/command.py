"""The command line in this process, and what it prints."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from arena.cli.main import main


class Printed(NamedTuple):
    """What a command has printed."""

    out: str
    err: str


class Command:
    """`arena ...`; the fixture `command` is one."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> Printed:
        """Runs a command, which ends with the exit status `code`; what the test has printed before is dropped."""
        self._capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as error:  # of argparse
            status = int(str(error.code))
        printed = Printed(*self._capsys.readouterr())
        assert status == code, printed
        assert "Traceback" not in printed.err or code == 1, printed.err
        return printed
