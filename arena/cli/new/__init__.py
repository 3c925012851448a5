"""`arena new`: a folder with a game, a configuration, a test and a README, from which a project of one's own begins."""

from __future__ import annotations

import argparse
from pathlib import Path

from arena.cli.example import shared
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, shown
from arena.terminal.output import say

_TEMPLATES = {  # by the name that the file gets
    "game.py": "game.txt",
    "match.yaml": "match.yaml",
    "test_game.py": "test_game.txt",
    "README.md": "README.md",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = f"Writes {', '.join(_TEMPLATES)} into a folder that is new or empty; all of them run."
    parser.add_argument("folder", metavar="FOLDER", help="the folder")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the files, and what to type next; returns the exit status."""
    folder, docs = anchored(arguments.folder), next(path.parent for path in shared("docs"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError("is not empty; name a new folder", path=str(arguments.folder))
        for name, template in _TEMPLATES.items():
            text = Path(__file__).with_name(template).read_text(encoding="utf-8")
            (folder / name).write_text(text.replace("{docs}", str(docs)), encoding="utf-8")
    except OSError as error:
        text = f"cannot be written: {error.strerror or error}; name a new folder"
        raise ConfigError(text, path=str(arguments.folder)) from error
    say(f"{shown(folder)}: {', '.join(_TEMPLATES)}")
    say(f"next: cd {shown(folder)} && arena train match.yaml")
    return 0
