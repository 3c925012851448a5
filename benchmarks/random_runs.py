"""Random configurations of runs, and the results that must have the same bytes in two runs of one configuration.

Drawn are: algorithms and how often their workers synchronize, `sync` by gradients or samples, copies and lanes, leagues
of every generator and rule, evaluations, recordings, ranks.
"""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

Config = dict[str, Any]

GENERATORS = (
    *("matches", "matches", "matches", "round_robin", "gauntlet", "knockout", "swiss", "mixtures"),
    *("past_selves", "fictitious", "exploiters", "uncertainty"),
)
_NAMES = ("blue", "red", "green", "gold")


class RandomRun(NamedTuple):
    """A configuration, and the number of ranks that play it."""

    config: Config
    ranks: int


def random_run(seed: int) -> RandomRun:
    """The run of a seed: short, with 1 to 4 boundaries in each round."""
    chance = random.Random(seed)
    draw = chance.choices([_duel, _pendulum, _spread], [8, 1, 1])[0]
    leg = chance.choice([40, 60, 100])
    config: Config = {
        "name": f"random-{seed}",
        "seed": seed,
        "checkpoint_every": leg,
        "ticks": leg * chance.randint(2, 3) + chance.choice([0, 0, 17]),
        "record": chance.choice(["nothing", "nothing", "samples", "replays"]),
        "transport": chance.choice(["auto", "auto", "auto", "mpi"]),
        **draw(chance),
    }
    if chance.random() < 0.35:
        config["evaluation"] = {"every": leg * chance.randint(1, 2), "episodes": chance.randint(4, 12)}
    return RandomRun(config, chance.randint(2, 7))


def _duel(chance: random.Random) -> Config:
    """A game of two sides: some matches, or a league."""
    generator = chance.choice(GENERATORS)
    league = generator != "matches"
    names = _NAMES[: chance.randint(2, 4)]
    if generator == "exploiters":
        names = _NAMES[:3]
    algorithms = ("ppo", "ppo", "a2c", "hppo", "dqn", "sac", chance.choice(["sb3:DQN", "sb3:PPO"]))
    policies = {name: _learner(chance, algorithms) for name in names}
    kind = chance.random()
    if kind < 0.3 and generator != "exploiters":
        policies[names[-1]] = {"algorithm": "random"}
    elif kind < 0.6:
        policies = dict.fromkeys(names, policies["blue"])  # equal: a population, whose policies may become copies
    game = {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": chance.choice([20, 40])}}
    found: Config = {"envs": {"game": game}, "policies": policies}
    if not league:
        matches = [_match(chance, names) for _ in range(chance.randint(1, 3))]
        if any(policy["algorithm"].startswith("sb3:") for policy in policies.values()):
            matches = [{**match, "lanes": matches[0]["lanes"]} for match in matches]  # as workers of these need it
        return {**found, "matches": matches}
    entry = {"env": "game", "policies": list(names), "lanes": chance.randint(1, 3)}
    if len(names) < 4:
        entry["copies"] = chance.randint(1, 2)
    if generator == "gauntlet":
        entry |= {"policies": list(names[:1]), "against": list(names[1:])}
    if generator == "mixtures":
        game["kwargs"]["team_size"] = 2
        entry |= {"policies": list(names[:2]), "lanes": 1, "copies": 1}
    if generator in ("past_selves", "fictitious", "exploiters", "uncertainty"):
        learners = [name for name in names if policies[name]["algorithm"] != "random"]
        entry |= {"policies": learners, "against": [name for name in names if name not in learners]}
        entry |= {"rule": generator, "copies": 1, "both_sides": chance.random() < 0.3}
        if generator == "exploiters":
            targets = {"main": ["blue"], "main_exploiters": ["red"], "league_exploiters": ["green"]}
            entry["rule"] = {"exploiters": {**targets, "reset": {"after": 1, "beats": 0.6}}}
        generator = "matchmaking"
    found |= {"rounds": 2 if generator == "mixtures" else chance.randint(2, 4), "matches": [{generator: entry}]}
    if generator == "matchmaking" and chance.random() < 0.5:
        found["league"] = {"snapshots": {"keep": 2}}
    elif chance.random() < 0.3 and entry.get("rule") is None and policies["blue"] is policies["red"]:
        found["league"] = {"evolution": {"every": 1, "share": 0.4}}
    return found


def _match(chance: random.Random, names: tuple[str, ...]) -> Config:
    seats = chance.sample(names, 2)
    return {"env": "game", "seats": seats, "lanes": chance.randint(1, 4), "copies": chance.randint(1, 2)}


def _pendulum(chance: random.Random) -> Config:
    """Matches of one seat with continuous actions."""
    names = _NAMES[: chance.randint(2, 3)]
    policies = {name: _learner(chance, ("ppo", "sac", "td3", "ddpg", "sb3:SAC")) for name in names}
    matches = [{"env": "game", "seats": [name], "lanes": 2, "copies": chance.randint(1, 2)} for name in names]
    return {"envs": {"game": {"make": "gymnasium:Pendulum-v1"}}, "policies": policies, "matches": matches}


def _spread(chance: random.Random) -> Config:
    """A team game for algorithms that learn by whole teams."""
    policies = {name: _learner(chance, ("mappo", "maddpg", "masac", "vdn", "qmix")) for name in _NAMES[:2]}
    copies = chance.randint(1, 2)
    matches = [{"env": "game", "seats": [name, name], "lanes": 2, "copies": copies} for name in policies]
    game = {"make": "pettingzoo:mpe2.simple_spread_v3", "kwargs": {"N": 2, "max_cycles": 25}}
    return {"envs": {"game": game}, "policies": policies, "matches": matches}


def _learner(chance: random.Random, algorithms: tuple[str, ...]) -> Config:
    """A policy that learns, with random options."""
    algorithm = chance.choice(algorithms)
    own = algorithm.startswith("sb3:")
    options: Config
    if algorithm in ("ppo", "a2c", "mappo", "hppo"):
        options = {"n_steps": chance.choice([5, 16, 24, 48, 64] if algorithm != "hppo" else [16, 24])}
        if algorithm != "a2c":
            options |= {"minibatch_size": 64, "n_epochs": 2}
    elif own and algorithm in ("sb3:PPO", "sb3:A2C"):
        options = {"n_steps": chance.choice([16, 32]), "batch_size": 16, "n_epochs": 2}
    elif own:
        options = {"learning_starts": 60, "batch_size": 16, "train_freq": chance.choice([1, 4, 7]), "buffer_size": 5000}
    else:
        options = {"learning_starts": chance.choice([40, 90]), "batch_size": 16, "train_every": chance.randint(1, 9)}
        options["buffer_size"] = 5000
    if not own:
        options["hidden_sizes"] = [16]
    sync = "gradients" if own else chance.choice(["gradients", "samples"])
    return {"algorithm": algorithm, "options": options, "sync": sync}


def left_by(run: Path) -> dict[str, Any]:
    """The results of a finished run that must not depend on ranks, on time or on deaths."""
    found: dict[str, Any] = {}
    for pattern in ("checkpoints/**/*.ckpt", "snapshots/**/*.ckpt", "samples/**/*.npz", "replays/**/*.replay"):
        found |= {str(path.relative_to(run)): path.read_bytes() for path in run.glob(pattern)}
    for path in run.glob("checkpoints/*/*.workers-*.ckpt"):  # each rank has a file with the states of its own workers
        del found[str(path.relative_to(run))]
        boundary = path.relative_to(run).with_name(path.name.partition(".")[0])
        with zipfile.ZipFile(path) as states:
            found |= {f"{boundary}.{name}": states.read(name) for name in states.namelist() if name != "sha256"}
    found["episodes.jsonl"] = (run / "episodes.jsonl").read_bytes()
    for name in ("metrics.jsonl", "evaluations.jsonl", "rounds.jsonl"):
        policies: dict[
            str, list[Any]
        ] = {}  # policies learn at the same time: the lines of each are compared separately
        for text in (run / name).read_text().splitlines() if (run / name).exists() else ():
            line = json.loads(text)
            policies.setdefault(str(line.get("policy")), []).append({**line, "seconds": 0, "time": 0})
        found[name] = policies
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of the differences between two results of `left_by`."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
