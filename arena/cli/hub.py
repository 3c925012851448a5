"""A folder for the Hugging Face hub: a model card with evaluated numbers, and a run folder with one checkpoint.

README.md            the card: metadata (`library_name`, `tags`, `model-index`), results, use
config.yaml          of the run, with which `arena evaluate`, `arena play` and `load_policy` take this folder for a run
checkpoints/, models/    one checkpoint of the policy, and its network for other runtimes, as of `arena export`
replay.mp4           the newest episode of the evaluation
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import msgspec

from arena.config import yaml
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, ExportError
from arena.league.ratings.intervals import half_of_mean, of_share
from arena.league.sources import Named, Source
from arena.records import checkpoint as checkpoints
from arena.records.atomic import make_folder
from arena.records.folder import RunFolder
from arena.replay.playback import ReplayDiffers
from arena.replay.video import write_newest
from arena.run.evaluate import evaluate, weights_of
from arena.serving.export import export

LIBRARY = "mpi-policy-arena"
_CARD = """\
---
{metadata}---

# {policy}, trained with {algorithm} on {games}

A policy of `{library}` (`pip install {library}`), after {tick:,} ticks. Greedy play{against}, mean and 95 % interval:
{result}.{video}

## Use it

```python
from arena.serving import load_policy

policy = load_policy("this_folder:{policy}")
action = policy.act(observation)
```

`config.yaml` is the configuration of the training: `arena train config.yaml` repeats it. `arena evaluate this_folder`
plays without learning. A network for ONNX Runtime, if the algorithm has one, is in `models/`.
"""


def write_hub(source: Source, named: Named, to: str, *, episodes: int) -> Iterator[str]:
    """Evaluates a policy and writes the folder; yields a line for each part that is left out, and the result.

    Args:
        source: the run.
        named: the policy of it, and its checkpoint.
        to: the folder, which must not hold files.
        episodes: of the evaluation, at least.

    Raises:
        ConfigError: no such checkpoint, or the folder holds files.
        RunFailed: a game has failed.
        WriteError: the files cannot be written.
    """
    config, policy, target, learned = source.config, named.policy, anchored(to), source.checkpoint(named)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError("holds files already; name another folder", path="--hub", source=str(target))
    algorithm, tick = config.policies[policy].algorithm, checkpoints.load(learned).boundary
    frozen = msgspec.structs.replace(weights_of(source, named.label or "last").config, record="replays")
    with tempfile.TemporaryDirectory(prefix="arena-hub-") as home:
        row = next(row for row in evaluate(frozen, episodes, run_dir=home) if row["policy"] == policy)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = RunFolder(target)
        for made in (part.path, part.checkpoints, part.checkpoints_path(policy)):
            make_folder(made)
        for file in () if source.folder is None else (source.folder.config, source.folder.rounds):
            if file.exists():
                shutil.copy(file, target)
        shutil.copy(learned, checkpoints.path_of(part.checkpoints_path(policy), tick))
        try:
            export(target, policy)
        except (ConfigError, ExportError) as error:
            yield f"without a network for other runtimes: {error}"
        video = target / "replay.mp4"
        try:
            write_newest(row["folder"], video, policy)
        except (ConfigError, ReplayDiffers) as error:
            yield f"without a video: {error}"
    entries = [entry for _, entry in config.entries() if policy in entry.names]
    games = sorted({config.envs[entry.env].make.rpartition(":")[2] for entry in entries})
    others = sorted({name for entry in entries for name in entry.names} - {policy})
    metrics = {"mean_reward": f"{row['return']:.2f} +/- {half_of_mean(row['episodes'], row['return_std']) or 0.0:.2f}"}
    if row["games"]:
        low, high = of_share(row["wins"] * row["games"], row["games"])
        metrics["win_rate"] = f"{row['wins']:.3f} [{low:.3f}, {high:.3f}]"
    result = f"{', '.join(f'{name} {value}' for name, value in metrics.items())}, {row['episodes']} episodes"
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    found = {
        "task": task,
        "dataset": {"type": "-".join(games), "name": ", ".join(games)},
        "metrics": [{"type": name, "name": name, "value": value, "verified": False} for name, value in metrics.items()],
    }
    metadata = {
        "library_name": LIBRARY,
        "pipeline_tag": task["type"],
        "tags": [task["type"], "deep-reinforcement-learning", algorithm.rpartition(":")[2], *games],
        "model-index": [{"name": f"{config.name}-{policy}", "results": [found]}],
    }
    card = _CARD.format(
        metadata=yaml.dump(metadata),
        **{"policy": policy, "algorithm": algorithm, "games": ", ".join(games), "library": LIBRARY, "tick": tick},
        against=f" against {', '.join(others)}" if others else "",
        result=result,
        video=f" [An episode]({video.name})" if video.exists() else "",
    )
    (target / "README.md").write_text(card)
    yield f"{policy} at tick {tick}: {result}"
