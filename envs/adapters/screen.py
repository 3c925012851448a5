"""Virtual screens for games that open windows: an Xvfb server of this process's own.

A process has one screen, as it has one `DISPLAY`, and keeps it to its end: libraries that draw hold their connection
for as long, and end the process if the server goes first. The server ends when the process does, however it dies.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import traceback
from functools import cache

from arena.errors import ConfigError

SIZE = "1400x900x24"
_START_SECONDS = 30.0
# Xvfb chooses a free number and writes it to stdout. The shell waits for the end of this process: its stdin closes.
_SERVER = f"""
Xvfb -displayfd 1 -screen 0 {SIZE} -nolisten tcp 2>/dev/null &
server=$!
exec >&-
read end
kill $server
wait $server
"""
_SPEAKS_OF_IT = re.compile(
    r"no available video device|x11 not available|(open|connect to|no) .*display|x ?server|xlib", re.IGNORECASE
)
REMEDY = (
    "install Xvfb (`apt install xvfb`), or start everything on a screen with "
    f'`xvfb-run -a -s "-screen 0 {SIZE}" arena ...`'
)


@cache
def open_screen() -> str:
    """Starts this process's screen and sets `DISPLAY`; later calls do nothing. Returns the display, as `:3`.

    Raises:
        ConfigError: Xvfb is not installed, or does not start.
    """
    if shutil.which("Xvfb") is None:
        raise ConfigError(f"needs the program Xvfb, which is not installed; {REMEDY}", path="screen")
    shell = subprocess.Popen(
        ["sh", "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert shell.stdin is not None and shell.stdout is not None, "they are pipes"
    ready, _, _ = select.select([shell.stdout], [], [], _START_SECONDS)
    number = shell.stdout.readline().strip() if ready else ""
    if not number.isdecimal():
        shell.stdin.close()
        raise ConfigError(f"Xvfb does not start; {REMEDY}", path="screen")
    _servers.append(shell)  # its stdin stays open
    os.environ["DISPLAY"] = f":{number}"
    return f":{number}"


_servers: list[subprocess.Popen[str]] = []


def screen_hint(error: BaseException) -> str:
    """The remedy for a game that has failed for lack of a display; empty if it has failed for another reason."""
    text = "".join(traceback.format_exception_only(error))  # works even if `str(error)` raises
    if os.environ.get("DISPLAY") or not _SPEAKS_OF_IT.search(text):
        return ""
    return f"; there is no display: set `screen: xvfb` of the environment, and {REMEDY}"
