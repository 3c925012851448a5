"""`arena example`: prints a configuration that comes with the arena."""

from __future__ import annotations

import argparse
import re
from importlib import metadata
from pathlib import Path

from arena.errors import ConfigError, nearest
from arena.terminal.output import say

_ROOT = Path(__file__).resolve().parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "As in: arena example touchdown_2v2 > match.yaml"
    parser.add_argument("name", nargs="?", metavar="NAME", help="of a configuration")
    parser.add_argument("--list", action="store_true", help="the names, with what each is about")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the configuration, or all names; returns the exit status."""
    found = examples()
    if arguments.list or arguments.name is None:
        width = max(map(len, found))
        for name, path in found.items():
            about = _text(path).partition("\n")[0].removeprefix("# ")
            say(f"{name:<{width}}  {about}")
        return 0
    if arguments.name not in found:
        raise ConfigError(f"there is no example {arguments.name!r}; {nearest(arguments.name, found)}")
    text = _text(found[arguments.name]).rstrip()
    if base := re.search(r"^run: (configs/(\S+)\.yaml)$", text, re.MULTILINE):  # of an experiment
        text = f"# needs: arena example {base[2]} > {base[1]}\n{text}"
    say(text)
    return 0


def examples() -> dict[str, Path]:
    """The files by name."""
    paths = [*shared("configs"), *shared("configs/experiments")]
    return {path.stem: path for path in sorted(paths) if path.suffix == ".yaml"}


def shared(folder: str) -> list[Path]:
    """The files in a folder of the repository, or of what was installed of it with the package."""
    if (_ROOT / "configs").is_dir() and (_ROOT / "setup.py").is_file():
        return [*(_ROOT / folder).glob("*.*")]
    place, files = f"share/mpi-policy-arena/{folder}", metadata.files("mpi-policy-arena") or ()  # as in `setup.py`
    return [Path(str(file.locate())).resolve() for file in files if file.parent.match(place)]


def _text(path: Path) -> str:
    """The configuration without the line that names the schema by its place in the repository."""
    return path.read_text(encoding="utf-8").partition("\n")[2]
