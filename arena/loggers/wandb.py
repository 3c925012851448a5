"""The logger `wandb`: results to Weights & Biases, whose package is the extra `wandb`.

Without a login it records offline, below the run folder; `wandb sync` uploads that later. As `wandb sync` replaces a
run by a later recording of it, that of a resumed run begins with all results on record. The logger never asks at the
terminal, and writes no key anywhere.
"""

from __future__ import annotations

import inspect
import netrc
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from arena.callbacks import StartedRun
from arena.errors import ConfigError, nearest
from arena.loggers import artifacts as kinds
from arena.records.atomic import private, replacing
from arena.records.folder import RunFolder
from arena.records.result_file import numbers, read_results

_ID = "wandb_id"  # a file in the run folder


class WandB:
    """Logs the finite numbers of each result under their flat names, at the step `ticks`.

    Args:
        artifacts: what to send beside numbers, of `checkpoints` and `videos`.
        options: those of `wandb.init`. Defaults: `name` is that of the run folder, `dir` the folder, `config` the
            resolved configuration without `loggers`, `id` is kept in the folder, `resume` is `allow`, and `group` is
            the experiment of a trial.
    """

    def __init__(self, *, artifacts: Sequence[str] = (), **options: Any) -> None:
        settings = options.get("settings")
        if "api_key" in {**options, **(settings if isinstance(settings, Mapping) else {})}:
            raise ConfigError("a key does not belong into a configuration; set WANDB_API_KEY, or use `wandb login`")
        import wandb

        known = inspect.signature(wandb.init).parameters
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            raise ConfigError(f"wandb.init has no option {unknown!r}; {nearest(unknown, known)}")
        self._wandb, self._options, self._artifacts = wandb, options, kinds.checked(artifacts)

    def on_start(self, run: StartedRun) -> None:
        """Begins the run there, or continues it."""
        path = run.folder / _ID
        if not path.exists():  # the identity of the run there
            with replacing(path) as file:
                file.write(secrets.token_hex(8).encode())
        with open(path, opener=private) as file:
            identity = file.read()
        experiment = run.folder.resolve().parent.parent
        options = {
            "name": run.folder.name,
            "dir": str(run.folder),
            "config": kinds.published_config(RunFolder(run.folder)),
            "id": identity,
            "resume": "allow",
            "group": experiment.name if (experiment / "experiment.yaml").exists() else None,
            "mode": None if "WANDB_MODE" in os.environ or _has_login() else "offline",
            **self._options,
        }
        settings = self._wandb.Settings(silent=True, console="off")
        self._run, self._folder = self._wandb.init(**{"settings": settings, **options}), run.folder
        for result in read_results(run.folder) if self._run.offline else ():
            self.on_result(result)

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Logs the numbers; those of a step before one that was logged already are skipped."""
        if result["ticks"] >= self._run.step:
            self._run.log(numbers(result), step=result["ticks"])

    def on_checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        """Sends the checkpoints, if `artifacts` has them."""
        for policy, path in checkpoints.items() if kinds.CHECKPOINTS in self._artifacts else ():
            name = re.sub(r"[^\w.-]", "-", f"{self._run.id}-{policy}")
            self._run.log_artifact(str(path), name, "model", ["latest", f"tick-{tick}"])

    def on_end(self) -> None:
        """Sends a video, if `artifacts` has videos, and finishes the run there."""
        try:
            if kinds.VIDEOS in self._artifacts:
                with kinds.newest_video(self._folder) as path:
                    self._run.log({"newest_episode": self._wandb.Video(str(path))})
        finally:
            self._run.finish()


def _has_login() -> bool:
    """Whether there is a key for the server, without asking for one."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
