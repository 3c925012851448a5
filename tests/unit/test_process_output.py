"""Outputs of commands that are waited for one after the other."""

from __future__ import annotations

import os
import sys

from arena.diagnostics.process_output import ProcessOutput, start_command, wait_for_command


def test_a_command_that_ended_while_another_was_waited_for_has_its_status() -> None:
    process = start_command([sys.executable, "-c", "print('here'); raise SystemExit(3)"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # without taking its status
    assert wait_for_command(process, 0.0) == ProcessOutput(3, "here\n", "")


def test_a_command_whose_time_is_over_has_no_status() -> None:
    assert wait_for_command(start_command(["sleep", "60"]), 0.0) == ProcessOutput(None, "", "")
