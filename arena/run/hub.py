"""A folder for the Hugging Face hub: a model card with evaluated numbers, and a run folder with few checkpoints.

README.md            the card: metadata (`library_name`, `tags`, `model-index`), results, use
config.yaml          of the run: `arena evaluate`, `arena play` and `load_policy` read this folder as a run folder
checkpoints/, models/    one checkpoint of the policy and of each that it meets; its network, as of `arena export`
replay.mp4           the newest episode of the evaluation
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

from arena import registry
from arena.config import yaml
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, ExportError, WriteError
from arena.league.ratings.intervals import of_share
from arena.league.sources import named_in_run
from arena.loggers.artifacts import published_config
from arena.records import checkpoint as checkpoints
from arena.records.atomic import make_folder, writing
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

A policy of the package `{library}`, after {tick:,} ticks. Greedy play{against}, mean and 95 % interval:
{result}.{video}

## Use it

```python
from arena.serving import load_policy

policy = load_policy("this_folder:{policy}")
action = policy.act(observation, info)  # of the game; `info` may have a mask
```

{modules}`config.yaml` is that of the training, without its loggers and callbacks: `arena train config.yaml` repeats it.
`arena evaluate this_folder` plays without learning; checkpoints of the policies that `{policy}` meets are here too.
A network for ONNX Runtime, if the algorithm has one, is in `models/`.
"""


def export_hub(name: Path | str, to: Path | str, *, episodes: int = 100) -> list[str]:
    """Evaluates a policy and writes a folder for the Hugging Face hub, as `arena export --hub`.

    Args:
        name: `RUN:POLICY@TICK`; without `@TICK` the newest checkpoint.
        to: the folder, which must not hold files.
        episodes: of the evaluation, at least.

    Returns:
        a line for each part that is left out, such as a video of a game without pictures, and one with the result.

    Raises:
        ConfigError: no such run, policy or checkpoint, or the folder holds files.
        RunFailed: a game has failed.
        WriteError: the files cannot be written.
    """
    lines: list[str] = []
    source, named = named_in_run(name)
    config, policy, target, learned = source.config, named.policy, anchored(to), source.checkpoint(named)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError("holds files already; name another folder", source=str(target))
    algorithm, tick = config.policies[policy].algorithm, checkpoints.load(learned).boundary
    entries = [entry for _, entry in config.entries() if policy in entry.names]
    games = sorted({config.envs[entry.env].make.rpartition(":")[2] for entry in entries})
    others = sorted({name for entry in entries for name in entry.names} - {policy})
    frozen, folder = weights_of(source, "last").config, RunFolder.existing(source.path)
    policies = {**frozen.policies, policy: source.frozen(named)}
    frozen = msgspec.structs.replace(frozen, policies=policies, record="replays")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with writing(target), tempfile.TemporaryDirectory(prefix=".arena-hub-", dir=target.parent) as home:
        row = next(row for row in evaluate(frozen, episodes, run_dir=f"{home}/played") if row["policy"] == policy)
        part = RunFolder(Path(home) / "hub")
        make_folder(part.path)
        for name in (policy, *others):
            if load := policies[name].load:
                file = Path(load)
                part.checkpoints_path(name).mkdir(parents=True)
                shutil.copy(file, checkpoints.path_of(part.checkpoints_path(name), checkpoints.ticks_of(file)))
        part.config.write_text(yaml.dump({**published_config(folder), "callbacks": []}))
        if folder.rounds.exists():
            shutil.copy(folder.rounds, part.path)
        try:
            export(f"{part.path}:{policy}")
        except (ConfigError, ExportError, WriteError) as error:
            lines.append(f"without a network for other runtimes: {getattr(error, 'message', error)}")
        video = part.path / "replay.mp4"
        try:
            write_newest(row["folder"], video, policy)
        except (ConfigError, ReplayDiffers, WriteError) as error:
            lines.append(f"without a video: {getattr(error, 'message', error)}")
        mean, high = row["return"], row["return_high"]
        metrics = {"mean_reward": f"{mean:.2f}{'' if high is None else f' +/- {high - mean:.2f}'}"}
        if row["games"]:
            low, high = of_share(row["wins"] * row["games"], row["games"])
            metrics["win_rate"] = f"{row['wins']:.3f}{'' if row['alike'] else f' [{low:.3f}, {high:.3f}]'}"
        result = f"{', '.join(f'{name} {value}' for name, value in metrics.items())}, {row['episodes']} episodes"
        if row["alike"]:
            result += (
                ", without intervals: games of the same players all began alike and had the same length and returns"
            )
        targets = [config.envs[entry.env].make for entry in entries]
        targets += [config.policies[name].algorithm for name in (policy, *others)]
        modules = {target.partition(":")[0] for target in targets if ":" in target} - {*registry.SOURCES, "sb3"}
        own = sorted({*modules, *config.imports} - {one for one in modules if one.startswith(("envs.", "policies."))})
        task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
        values = [{"type": one, "name": one, "value": value, "verified": False} for one, value in metrics.items()]
        dataset = {"type": "-".join(games), "name": ", ".join(games)}
        found = {"task": task, "dataset": dataset, "metrics": values}
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
            modules=f"It imports {', '.join(own)}, which must be installed or beside the program.\n\n" if own else "",
            video=f" [An episode]({video.name})" if video.exists() else "",
        )
        (part.path / "README.md").write_text(card)
        part.path.rename(target)
    return [*lines, f"{policy} at tick {tick}: {result}"]
