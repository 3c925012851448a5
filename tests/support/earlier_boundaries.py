"""Boundaries as earlier versions of the arena have written them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_as_version_1(path: Path, **changes: Any) -> None:
    """Replaces a boundary by one of an earlier version, which lists no files."""
    written = {**json.loads(path.read_text()), "version": 1, **changes}
    written["journals"] = {name: written["journals"].get(name, 0) for name in ("episodes.jsonl", "metrics.jsonl")}
    path.write_text(json.dumps({name: value for name, value in written.items() if name not in ("files", "sha256")}))
