"""The logger `mlflow`: results to an MLflow server or database, by the extra `mlflow`, whose package is mlflow-skinny.

The identity that MLflow gives to the run is kept in the run folder: a resumed or restarted run continues there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from arena.callbacks import StartedRun
from arena.errors import ConfigError
from arena.loggers import artifacts as kinds
from arena.records.atomic import private, replacing
from arena.records.folder import RunFolder
from arena.records.result_file import flat, numbers

_ID = "mlflow_id"  # a file in the run folder
_MOST_METRICS, _MOST_PARAMETERS, _MOST_TEXT = 1000, 100, 6000  # of a request; characters of a parameter


class Mlflow:
    """Logs the finite numbers of each result as metrics, at the step `ticks`, and the configuration as parameters.

    Args:
        tracking_uri: of the server, or of a database, as `sqlite:///mlflow.db`; None: as MLflow's environment says.
        experiment: the experiment in MLflow; None: a trial's experiment, for another run the name of the configuration.
        run_name: the run in MLflow; None: the name of the run folder.
        tags: of the run in MLflow.
        artifacts: what to send beside numbers, of `checkpoints` and `videos`.
    """

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        artifacts: Sequence[str] = (),
    ) -> None:
        if urlsplit(tracking_uri or "").password is not None:
            remedy = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or all of it as MLFLOW_TRACKING_URI"
            raise ConfigError(f"a password in `tracking_uri` does not belong into a configuration; {remedy}")
        self._uri, self._experiment, self._run_name, self._tags = tracking_uri, experiment, run_name, tags
        self._artifacts = kinds.checked(artifacts)
        self._done = False

    def on_start(self, run: StartedRun) -> None:
        """Begins the run there, or continues it."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client, self._folder, path = MlflowClient(self._uri), run.folder, run.folder / _ID
        if path.exists():
            with open(path, opener=private) as file:
                self._id = file.read()
            self._step = self._client.get_run(self._id).data.metrics.get("ticks", -1)
            self._client.update_run(self._id, status="RUNNING")
            return
        data = kinds.published_config(RunFolder(run.folder))
        of_trial = run.folder.resolve().parent.parent
        name = self._experiment or (of_trial.name if (of_trial / "experiment.yaml").exists() else data["name"])
        created = self._client.create_run(
            self._experiment_id(name), run_name=self._run_name or run.folder.name, tags=dict(self._tags or {})
        )
        self._id, self._step = created.info.run_id, -1
        with replacing(path) as file:
            file.write(self._id.encode())
        parameters = [(_name(key), str(value)[:_MOST_TEXT]) for key, value in flat(data)]
        for start in range(0, len(parameters), _MOST_PARAMETERS):
            part = [Param(*parameter) for parameter in parameters[start : start + _MOST_PARAMETERS]]
            self._client.log_batch(self._id, params=part)

    def _experiment_id(self, name: str) -> str:
        """The experiment of this name there, which is created if there is none."""
        from mlflow.exceptions import MlflowException

        if (found := self._client.get_experiment_by_name(name)) is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run has created it just now
                if (found := self._client.get_experiment_by_name(name)) is None:
                    raise
        return str(found.experiment_id)

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Logs the numbers; results that were logged already are skipped."""
        from mlflow.entities import Metric

        self._done, step, now = result["done"], result["ticks"], int(1000 * time.time())
        found = [*numbers(result).items(), ("ticks", step)] if step > self._step else []  # last: the result is whole
        for start in range(0, len(found), _MOST_METRICS):
            part = [Metric(_name(name), value, now, step) for name, value in found[start : start + _MOST_METRICS]]
            self._client.log_batch(self._id, metrics=part)

    def on_checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        """Sends the checkpoints, if `artifacts` has them."""
        for policy, path in checkpoints.items() if kinds.CHECKPOINTS in self._artifacts else ():
            self._client.log_artifact(self._id, str(path), f"checkpoints/{_name(policy)}")

    def on_end(self) -> None:
        """Sends a video, if `artifacts` has videos, and finishes the run there."""
        self._client.set_terminated(self._id, "FINISHED" if self._done else "KILLED")
        if kinds.VIDEOS in self._artifacts:
            with kinds.newest_video(self._folder) as path:
                self._client.log_artifact(self._id, str(path), "videos")


def _name(name: str) -> str:
    """A name without the characters that MLflow refuses."""
    return re.sub(r"[^\w\-./: ]", "_", name)
