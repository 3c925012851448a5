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

from arena.config import load_config, yaml
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, ExportError, RunFailed, nearest
from arena.league.ratings.intervals import half_of_mean, of_share
from arena.records import checkpoint as checkpoints
from arena.records.atomic import make_folder
from arena.records.folder import RunFolder
from arena.records.scoreboard import Score
from arena.replay.playback import ReplayDiffers
from arena.replay.video import write_newest
from arena.run.evaluate import matches_of, play
from arena.run.evaluation import result_text
from arena.run.opponents import labeled_versions
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

policy = load_policy("this_folder", "{policy}")
action = policy.act(observation)
```

`config.yaml` is the configuration of the training: `arena train config.yaml` repeats it. `arena evaluate this_folder`
plays without learning. A network for ONNX Runtime, if the algorithm has one, is in `models/`.
"""


def write_hub(run: str, policy: str, label: str, to: str, *, episodes: int) -> Iterator[str]:
    """Evaluates a policy and writes the folder; yields a line for each part that is left out, and the result.

    Args:
        run: the run folder.
        policy: its name in this run.
        label: of a checkpoint: `last`, `first`, `best` or a tick.
        to: the folder, which must not hold files.
        episodes: of the evaluation, at least.

    Raises:
        ConfigError: no such run, policy or checkpoint, or the folder holds files.
        RunFailed: the evaluation has failed.
        WriteError: the files cannot be written.
    """
    folder, target = RunFolder.existing(run), anchored(to)
    config = load_config(folder.config)
    if policy not in config.policies:
        raise ConfigError(f"no policy {policy!r} in this run; {nearest(policy, config.policies)}", source=run)
    if label not in (labels := labeled_versions(folder, policy)):
        raise ConfigError(f"there is no checkpoint {label!r}; {nearest(label, labels)}", path="--checkpoint")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError("holds files already; name another folder", path="--hub", source=str(target))
    algorithm, tick = config.policies[policy].algorithm, checkpoints.load(labels[label]).boundary
    with tempfile.TemporaryDirectory(prefix="arena-hub-") as home:
        (match,) = matches_of(run, [label], None, home)
        match = match._replace(config=msgspec.structs.replace(match.config, record="replays"))
        scores: dict[str, Score] = {}
        records, status = play(match, episodes, lambda _, __, board: scores.update(board.policies), greedy=True)
        if status or policy not in scores:
            raise RunFailed(f"the evaluation of {policy!r} has failed")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = RunFolder(target)
        for made in (part.path, part.checkpoints, part.checkpoints_path(policy)):
            make_folder(made)
        for file in (folder.config, folder.rounds):
            if file.exists():
                shutil.copy(file, target)
        shutil.copy(labels[label], checkpoints.path_of(part.checkpoints_path(policy), tick))
        try:
            export(target, policy)
        except (ConfigError, ExportError) as error:
            yield f"without a network for other runtimes: {error}"
        video = target / "replay.mp4"
        try:
            write_newest(records, video, policy)
        except (ConfigError, ReplayDiffers) as error:
            yield f"without a video: {error}"
    entries = [entry for _, entry in config.entries() if policy in entry.names]
    games = sorted({config.envs[entry.env].make.rpartition(":")[2] for entry in entries})
    others = sorted({name for entry in entries for name in entry.names} - {policy})
    card = _CARD.format(
        metadata=yaml.dump(_metadata(f"{config.name}-{policy}", algorithm, games, scores[policy])),
        **{"policy": policy, "algorithm": algorithm, "games": ", ".join(games), "library": LIBRARY, "tick": tick},
        against=f" against {', '.join(others)}" if others else "",
        result=result_text(scores[policy]),
        video=f" [An episode]({video.name})" if video.exists() else "",
    )
    (target / "README.md").write_text(card)
    yield f"{policy} at tick {tick}: {result_text(scores[policy])}"


def _metadata(name: str, algorithm: str, games: list[str], score: Score) -> dict[str, object]:
    """The metadata of the card, with a mean and the half of its interval as `+/-`."""
    half = half_of_mean(score.returns.count, score.returns.deviation)
    text = f"{score.returns.mean or 0.0:.2f}" + ("" if half is None else f" +/- {half:.2f}")
    metrics = [{"type": "mean_reward", "name": "mean_reward", "value": text, "verified": False}]
    if count := score.games.count:
        low, high = of_share(score.wins, count)
        rate = f"{score.wins / count:.3f} [{low:.3f}, {high:.3f}]"
        metrics.append({"type": "win_rate", "name": "win_rate", "value": rate, "verified": False})
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    dataset = {"type": "-".join(games), "name": ", ".join(games)}
    return {
        "library_name": LIBRARY,
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "deep-reinforcement-learning", algorithm.rpartition(":")[2], *games],
        "model-index": [{"name": name, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}],
    }
