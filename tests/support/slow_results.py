"""Recomputes the results of a run from its journals, line by line with fractions: slow, without their code."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

CLOCK = {
    *("sampler_perf", "time_this_iter_s", "time_total_s", "time_since_restore", "timesteps_since_restore"),
    *("iterations_since_restore", "timestamp", "date", "pid", "hostname"),
}


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a bare NaN is an error."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{path}: {word} is no JSON")

    text = path.read_text() if path.exists() else ""
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def without_clock(run: Path) -> list[dict[str, Any]]:
    """The results without the keys that depend on when and where the run was played."""
    lines = json_lines(run / "result.json")
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def expected(run: Path) -> Iterator[dict[str, Any]]:
    """The expected results of a run, for the ticks of the lines of `result.json`."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    smoothing = config["results"]["smoothing"]
    policies = [name for name in config["policies"] if "@" not in name]
    episodes, updates = json_lines(run / "episodes.jsonl"), json_lines(run / "metrics.jsonl")
    rounds = _rounds(run, config)
    before = number = played_before = 0
    custom: dict[str, float | None] = {}
    of_policies: dict[str, dict[str, float | None]] = {}
    for line in json_lines(run / "result.json"):
        tick, number = line["ticks"], number + 1
        known = [episode for episode in episodes if episode["tick"] <= tick]
        whole = [episode for episode in known if not episode.get("cut")]
        new = [episode for episode in whole if episode["tick"] > before]
        smoothed = whole[-max(smoothing, len(new)) :] if whole else []
        games, agents = _steps(rounds, tick)
        custom = {**dict.fromkeys(custom), **_spreads(smoothed, _measured(run, before, tick))}  # names stay
        of_policies = policy_metrics(smoothed, policies, of_policies)
        yield {
            "training_iteration": number,
            "ticks": tick,
            "timesteps_total": games,
            "timesteps_this_iter": games - played_before,
            "agent_timesteps_total": agents,
            "episodes_total": len(whole),
            "episodes_this_iter": len(new),
            **rewards(smoothed),
            **returns(smoothed, policies),
            "policy_win_rate": _win_rates(smoothed, policies),
            "info": _info(updates, tick, policies),
            "custom_metrics": custom,
            "policy_custom_metrics": of_policies,
        }
        before, played_before = tick, games


def rewards(episodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rewards and lengths of episodes."""
    values = [
        sum(Fraction(seat["return"]) * len(seat["entities"]) for seat in episode["seats"] if seat["return"] is not None)
        for episode in episodes
        if any(seat["return"] is not None for seat in episode["seats"])
    ]
    return {**_spread("episode_reward", values), "episode_len_mean": _mean([episode["length"] for episode in episodes])}


def returns(episodes: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> dict[str, Any]:
    """The returns of the seats of each policy."""
    found: dict[str, dict[str, Any]] = {}
    for policy in policies:
        values = [
            Fraction(seat["return"])
            for episode in episodes
            for seat in episode["seats"]
            if seat["policy"] == policy and seat["return"] is not None
        ]
        for key, value in _spread("policy_reward", values).items():
            found.setdefault(key, {})[policy] = value
    return found


def policy_metrics(
    episodes: Sequence[Mapping[str, Any]], policies: Sequence[str], known: Collection[str] = ()
) -> dict[str, dict[str, float | None]]:
    """The metrics that games report of the seats of each policy; `known` names stay."""
    seats = [seat for episode in episodes for seat in episode["seats"] if "metrics" in seat]
    names = {name for seat in seats for name in seat["metrics"]}
    found: dict[str, dict[str, float | None]] = {key: dict.fromkeys(policies) for key in known}
    for policy in policies:
        for name in names:
            own = [seat["metrics"] for seat in seats if seat["policy"] == policy]
            values = [Fraction(metrics[name]) for metrics in own if name in metrics]
            for key, value in _spread(name, values).items():
                found.setdefault(key, {})[policy] = value
    return found


def _win_rates(episodes: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> dict[str, float | None]:
    found = {}
    for policy in policies:
        won = []
        for episode in episodes:
            own = [seat["outcome"] for seat in episode["seats"] if seat["policy"] == policy for _ in seat["entities"]]
            if own and None not in own:
                won.append(Fraction(own.count("win"), len(own)))
        found[policy] = _mean(won)
    return found


def _info(updates: Sequence[Mapping[str, Any]], tick: int, policies: Sequence[str]) -> dict[str, Any]:
    learner = {}
    for policy in policies:
        own = [line for line in updates if line["policy"] == policy and line["ticks"] <= tick]
        if own:
            learner[policy] = {
                key: value for key, value in own[-1].items() if key not in ("policy", "ticks", "seconds")
            }
    return {"learner": learner, "num_steps_sampled": sum(line["samples"] for line in learner.values())}


def _measured(run: Path, before: int, tick: int) -> tuple[dict[tuple[int, ...], list[Any]], list[Any]]:
    """The metrics of callbacks: by episode, and in the iteration."""
    of_episodes: dict[tuple[int, ...], list[Any]] = {}
    of_iteration = []
    for line in json_lines(run / "measures.jsonl"):
        if "episode" in line:
            place = (line["tick"], line["match"], line["lane"], line["episode"])
            of_episodes.setdefault(place, []).append(line["metrics"])
        elif before < line["tick"] <= tick:
            of_iteration.append(line["metrics"])
    return of_episodes, of_iteration


def _spreads(
    episodes: Sequence[Mapping[str, Any]], measured: tuple[dict[tuple[int, ...], list[Any]], list[Any]]
) -> dict[str, float | None]:
    """The spread of each metric that has a value."""
    values: dict[str, list[Fraction]] = {}
    told = [*measured[1]]
    for episode in episodes:
        told += [seat["metrics"] for seat in episode["seats"] if "metrics" in seat]
        told += measured[0].get(tuple(episode[key] for key in ("tick", "match", "lane", "episode")), [])
    for metrics in told:
        for name, value in metrics.items():
            values.setdefault(name, []).append(Fraction(value))
    return {key: value for name, own in values.items() for key, value in _spread(name, own).items()}


def _rounds(run: Path, config: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """Per round its first tick, and the steps of games and of entities in one tick."""
    planned = json_lines(run / "rounds.jsonl")
    if not planned:
        matches = json.loads((run / "plan.json").read_text())["matches"]
        games = sum(match["lanes"] for match in matches)
        agents = sum(match["lanes"] * len(seat["entities"]) for match in matches for seat in match["seats"])
        return [(0, games, agents)]
    found = []
    for line in planned:
        lanes = [entry.get("lanes", 1) for entry in line["descriptions"] for _ in range(entry.get("copies", 1))]
        sizes = [sum(len(seat["entities"]) for seat in match["seats"]) for match in line["matches"]]
        assert len(lanes) == len(sizes)
        found.append((line["start"], sum(lanes), sum(one * size for one, size in zip(lanes, sizes, strict=True))))
    return found


def _steps(rounds: Sequence[tuple[int, int, int]], tick: int) -> tuple[int, int]:
    """Tick by tick."""
    games = agents = 0
    for played in range(tick):
        _, more, more_agents = [found for found in rounds if found[0] <= played][-1]
        games, agents = games + more, agents + more_agents
    return games, agents


def _spread(name: str, values: Sequence[Any]) -> dict[str, float | None]:
    low, high = (float(min(values)), float(max(values))) if values else (None, None)
    return {f"{name}_mean": _mean(values), f"{name}_min": low, f"{name}_max": high}


def _mean(values: Sequence[Any]) -> float | None:
    return float(sum(values) / Fraction(len(values))) if values else None


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; each has as many fields as the header."""
    with open(path, newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    assert len(set(header)) == len(header)
    assert all(len(row) == len(header) for row in rows)
    return [dict(zip(header, row, strict=True)) for row in rows]


def flat(value: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a result by their paths."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from flat(inner, f"{inside}{key}/")
        else:
            yield f"{inside}{key}", inner
