"""Run folders of simulated leagues: results drawn from known strengths, written as a run writes them."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arena.config import parse_config
from arena.config.load import resolved_yaml
from arena.plan.build import make_plan
from arena.records.folder import RunFolder
from arena.records.formats import PlanFile, ProfiledRole, ProfileFile, plan_file, read_document, write_document
from arena.records.journal import Journal

COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#bcbd22", "#9467bd", "#ff7f0e", "#17becf", "#e377c2", "#8c564b", "#7f7f7f")
DRAWS = 0.35  # of a game between equals, as an odds ratio: Davidson's nu
ROUND = 1000  # ticks


class League(NamedTuple):
    """The content of a folder.

    Args:
        policies: how many learn; each begins 40 Elo above the next one, and gains in every round.
        episodes: how many ended in all rounds together.
        rounds: how many were played.
        snapshots: rounds between two snapshots of each policy; the newest three stay. 0: none.
    """

    policies: int = 4
    episodes: int = 400
    rounds: int = 3
    snapshots: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"p{number}" for number in range(self.policies))

    def strength(self, player: str) -> float:
        """Elo of a policy at its beginning, or of a snapshot."""
        policy, _, tick = player.partition("@")
        return -40.0 * self.names.index(policy) + 0.01 * (1 + self.names.index(policy)) * int(tick or 0)


def write_league(path: Path, league: League = League(), *, seed: int = 0) -> RunFolder:  # noqa: B008 - it is frozen
    """Writes the folder; the same seed gives the same bytes."""
    rng = np.random.default_rng(seed)
    config = parse_config({**_config(league), "seed": 5 + seed}, source="league.yaml")
    path.mkdir(parents=True)
    folder = RunFolder(path)
    for part in (folder.boundaries, folder.checkpoints):
        part.mkdir()
    folder.write_config(resolved_yaml(config))
    write_document(folder.plan, plan_file(make_plan(config), {}))
    rounds = list(_rounds(league))
    _journal(path / "rounds.jsonl", rounds)
    _journal(folder.episodes, _episodes(league, rounds, rng))
    _journal(folder.metrics, _updates(league, rng))
    _journal(folder.evaluations, _evaluations(league, rng))
    _journal(folder.faults, FAULTS)
    write_document(folder.profile, ProfileFile(tuple(_profile(read_document(folder.plan, PlanFile), rng))))
    (folder.boundaries / f"{league.rounds * ROUND:012d}.json").write_text("{}\n")
    shutil.rmtree(path / "checksums")  # tests write other lines into the files
    return folder


FAULTS = (
    {"time": "2026-03-01T02:11:09.120+00:00", "kind": "process", "ranks": [3, 4], "done": "moved", "seconds": 0.82},
    {
        "time": "2026-03-01T03:40:51.007+00:00",
        "kind": "environment",
        "match": 1,
        "tick": 777,
        "lanes": [0, 1],
        "error": "ZeroDivisionError: division by zero",
        "seconds": 0.11,
    },
)


def _journal(path: Path, lines: Any) -> None:
    journal = Journal(path)
    journal.extend(list(lines))
    journal.close()


def _config(league: League) -> dict[str, Any]:
    policies = {
        name: {"algorithm": "random", "color": COLORS[number]} if number < len(COLORS) else {"algorithm": "random"}
        for number, name in enumerate(league.names)
    }
    return {
        "name": "league",
        "ticks": ROUND,
        "rounds": league.rounds,
        "checkpoint_every": ROUND,
        "envs": {"touchdown": {"make": "touchdown", "kwargs": {"team_size": 1}}},
        "policies": policies,
        "matches": [{"round_robin": {"env": "touchdown", "policies": list(league.names), "lanes": 4}}],
    }


def _rounds(league: League) -> Iterator[dict[str, Any]]:
    pairs = list(itertools.combinations(league.names, 2))
    held: list[str] = []
    for number in range(league.rounds):
        start = number * ROUND
        new = (
            [f"{name}@{start}" for name in league.names]
            if league.snapshots and number and number % league.snapshots == 0
            else []
        )
        held += new
        dropped, held = held[: -3 * league.policies], held[-3 * league.policies :]
        against = [held[(place + number) % len(held)] for place in range(league.policies)] if held else []
        fights = [*pairs, *zip(league.names, against, strict=False)]
        playing = [name for name in itertools.chain(*fights) if "@" in name]
        yield {
            "version": 1,
            "round": number,
            "start": start,
            "matches": [
                {"match": match, "env": "touchdown", "seats": _seats(pair), "sides": [[0], [1]]}
                for match, pair in enumerate(fights)
            ],
            "players": {
                name: {"policy": name.partition("@")[0], "tick": int(name.partition("@")[2])} for name in playing
            },
            "snapshots": new,
            "dropped": dropped,
            "forks": {league.names[-1]: {"from": "p0", "options": {"learning_rate": 1.2e-3}}} if number == 2 else {},
            "resets": ["p1"] if number == 2 else [],
            "gates": [{"policy": "p0", "against": "p0@0", "verdict": "better", "llr": 3.1, "games": 40}]
            if number == 1
            else [],
        }


def _seats(players: Sequence[str]) -> list[dict[str, Any]]:
    return [{"policy": player, "entities": [seat]} for seat, player in enumerate(players)]


def _episodes(
    league: League, rounds: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    each = league.episodes // league.rounds
    for number, played in enumerate(rounds):
        ticks = np.sort(rng.integers(1, ROUND + 1, each)) + played["start"]
        places = rng.integers(0, len(played["matches"]), each).tolist()
        for episode, (tick, place) in enumerate(zip(ticks.tolist(), places, strict=True)):
            yield {**_episode(league, number, played["matches"][place], tick, rng), "episode": episode}


def _episode(
    league: League, number: int, match: Mapping[str, Any], tick: int, rng: np.random.Generator
) -> dict[str, Any]:
    first, second = (seat["policy"] for seat in match["seats"])
    outcome = ("win", "draw", "loss")[rng.choice(3, p=chances(league.strength(first) - league.strength(second)))]
    gain = {"win": 1.0, "draw": 0.0, "loss": -1.0}[outcome]
    other = {"win": "loss", "draw": "draw", "loss": "win"}[outcome]
    lane, length = int(rng.integers(4)), int(rng.geometric(0.02)) + 5
    cut = rng.random() < 0.01
    return {
        "round": number,
        "match": match["match"],
        "env": "touchdown",
        "lane": lane,
        "episode": 0,
        "tick": tick,
        "length": length,
        "terminated": outcome != "draw" and not cut,
        "truncated": outcome == "draw" or cut,
        "seats": [
            {"policy": first, "entities": [0], "return": gain, "outcome": None if cut else outcome, "idle_ticks": 0},
            {"policy": second, "entities": [1], "return": -gain, "outcome": None if cut else other, "idle_ticks": 0},
        ],
        **({"cut": True} if cut else {}),
    }


def chances(elo: float) -> list[float]:
    """The chances of a player stronger by this Elo to win, draw and lose (Davidson 1970)."""
    odds = 10 ** (elo / 400)
    draw = DRAWS * odds**0.5
    total = odds + draw + 1
    return [odds / total, draw / total, 1 / total]


def _updates(league: League, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for update in range(1, 10 * league.rounds + 1):
        for name in league.names:
            yield {
                "policy": name,
                "update": update,
                "ticks": update * ROUND // 10,
                "samples": update * ROUND,
                "seconds": update * 0.5,
                "policy_loss": -0.01 - 0.01 * rng.random(),
                "value_loss": 1.0 / update + 0.05 * rng.random(),
                "entropy": 1.6 * 0.97**update + 0.02 * rng.random(),
            }


def _evaluations(league: League, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for number, name in itertools.product(range(league.rounds), league.names):
        won = min(0.9, 0.2 + 0.1 * number + 0.1 * rng.random())
        yield {
            "ticks": (number + 1) * ROUND,
            "policy": name,
            "episodes": 20,
            "return": 2 * won - 1,
            "return_std": 0.8,
            "length": 40.0,
            "wins": won,
            "draws": 0.05,
            "losses": 0.95 - won,
        }


def _profile(plan: PlanFile, rng: np.random.Generator) -> Iterator[ProfiledRole]:
    for rank in plan.ranks:
        for role in rank.roles:
            names = ["waiting for the match", "inference", "learning"] if role.role == "worker" else ["environment"]
            shares = 9 * rng.dirichlet([2] * len(names))
            seconds = {name: float(share) for name, share in zip(names, shares, strict=True)}
            seconds["communication"] = 1.0
            yield ProfiledRole(
                rank=rank.rank,
                role=role.role,
                match=role.match,
                policy=role.policy,
                wall=10.0,
                cpu=6.0,
                seconds=seconds,
            )
