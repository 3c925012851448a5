"""The state of a league between rounds, and its recovery from the run folder after a kill or with `--resume`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import in_process
from arena.cli.main import main
from arena.config import load_config, parse_config
from arena.errors import ConfigError, WriteError
from arena.league import rounds_file as records
from arena.league.read_results import read
from arena.records import checkpoint
from arena.records.boundary import discard_after
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.lock import RunLock, is_left, is_locked
from arena.roles.root.root import Root
from arena.roles.run import Run
from arena.run import rounds
from arena.run.prepare import begin, prepare
from arena.serving import load_policy
from in_process import NOTES
from learners import MEETS_EVERY

TICKS = 20  # of a round
LEARNER = {"algorithm": "learners:LearnerWithActor"}


def league(data: dict[str, Any]) -> dict[str, Any]:
    """Rounds in which episodes have 4 ticks."""
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 4}}
    common = {"name": "league", "seed": 3, "ticks": TICKS, "rounds": 3, "checkpoint_every": TICKS}
    return {**common, "envs": {"game": game}, **data}


def prepared(data: dict[str, Any], path: Path, *, resume: bool = False, ranks: int = 1) -> Run:
    return prepare(parse_config(league(data), source="test"), ranks=ranks, run_dir=str(path), resume=resume)


def play(data: dict[str, Any], path: Path, **given: Any) -> RunFolder:
    return in_process.train(league(data), path, **given)


def past_selves() -> dict[str, Any]:
    """Two learners that meet only their past selves."""
    rule = {"past_selves": {"self": 0.0}}
    meets = {"matchmaking": {"env": "game", "policies": ["one", "two"], "rule": rule, "lanes": 2}}
    return {"policies": {"one": LEARNER, "two": LEARNER}, "matches": [meets]}


@pytest.mark.parametrize("rule", [{"past_selves": {"self": 0.0}}, "fictitious", "uncertainty", "nash"])
def test_rounds_too_few_for_a_snapshot_and_a_copy_are_played(rule: Any, tmp_path: Path) -> None:
    meets = {"env": "game", "policies": ["one", "two"], "rule": rule}
    rules: dict[str, Any] = {"snapshots": {} if rule == "nash" else {"every": 2}}
    rules |= {} if rule == "nash" else {"evolution": {"every": 2, "share": 0.5}}
    data = {"policies": {"one": LEARNER, "two": LEARNER}, "matches": [{"matchmaking": meets}], "league": rules}
    folder = play({**data, "rounds": 2}, tmp_path / "run")
    made = [*JournalReader(folder.rounds)]
    assert len(made) == 2
    assert rule == "nash" or not any(line["snapshots"] or line["forks"] for line in made)
    assert {line["tick"] for line in JournalReader(folder.episodes)} >= {TICKS, 2 * TICKS}


def test_the_profile_of_a_league_knows_the_roles_of_all_rounds(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    knockout = {"knockout": {"env": "game", "policies": names}}
    data = {"policies": dict.fromkeys(names, LEARNER), "matches": [knockout], "rounds": 2}
    folder = play(data, tmp_path / "run", profile=True)
    roles = json.loads(folder.profile.read_text())["roles"]
    assert {(role["match"], role["policy"]) for role in roles if role["policy"]} == {
        (match["match"], seat["policy"])
        for line in JournalReader(folder.rounds)
        for match in line["matches"]
        for seat in match["seats"]
    }
    assert [role["role"] for role in roles[:2]] == ["root", "environment"]


def evolving(**more: Any) -> dict[str, Any]:
    """Two learners of different networks, of whom one becomes a copy of the other after each round."""
    sizes = {"one": [8], "two": [4]}
    policies = {
        name: {"algorithm": "ppo", "options": {"n_steps": 8, "minibatch_size": 8, "hidden_sizes": size}}
        for name, size in sizes.items()
    }
    matches = [{"env": "game", "seats": ["one", "two"], "lanes": 2}]
    return {"policies": policies, "matches": matches, "league": {"evolution": {"share": 0.5}}, **more}


def test_fork_is_evaluated_and_plays_after_the_run_with_its_options_of_that_time(tmp_path: Path) -> None:
    evaluation = {"every": TICKS, "episodes": 1, "seats": ["two", "one"]}
    folder = play(evolving(evaluation=evaluation, rounds=2), tmp_path / "run")
    ((fork, _),) = records.read(folder)[1].forks.items()
    discard_after(folder, TICKS)
    play(evolving(evaluation=evaluation, rounds=2), folder.path, resume=True)
    assert [line["ticks"] for line in JournalReader(folder.evaluations)] == [20, 20, 40, 40]
    run, every = str(folder.path), ["first", str(TICKS), "last"]
    assert main(["evaluate", run, "--episodes", "2", "--checkpoints", *every]) == 0
    assert main(["tournament", run, "--checkpoints", *every, "--episodes", "16", "--run-dir", f"{run}-games"]) == 0
    found = load_config(folder.path.with_name("run-games") / "config.yaml").policies
    before, after = (found[f"{fork}@{tick}"].options["hidden_sizes"] for tick in (TICKS, 2 * TICKS))
    assert before != after
    asked = [load_policy(f"{run}:{fork}@{tick}") for tick in (TICKS, 2 * TICKS)]
    assert [list(policy.algorithm.options.hidden_sizes) for policy in asked] == [before, after]
    by = ["--algorithm", "random", "--ticks", "8", "--episodes", "1", "--run-dir", f"{run}-exploits"]
    assert main(["exploit", f"{run}:{fork}@{TICKS}", *by]) == 0


def test_policy_of_a_later_round_loads_its_checkpoint(tmp_path: Path) -> None:
    old = play(past_selves(), tmp_path / "old")
    stays = {"algorithm": "random"}
    knockout = {"knockout": {"env": "game", "policies": ["one", "two", "three"], "lanes": 2}}  # the first one rests
    policies = {"one": {**LEARNER, "load": str(old.path)}, "two": stays, "three": stays}
    folder = play({"policies": policies, "matches": [knockout], "rounds": 2}, tmp_path / "run")
    meetings = checkpoint.load(old.checkpoints_path("one")).state["meetings"]
    assert ("loaded", meetings) in NOTES
    assert checkpoint.load(folder.checkpoints_path("one")).state["meetings"] == meetings + TICKS // MEETS_EVERY


def test_idle_policy_gets_no_new_snapshot(tmp_path: Path) -> None:
    rule = {"fictitious": {"self": 0.999}}
    meets = {"matchmaking": {"env": "game", "policies": ["one"], "against": ["two"], "rule": rule}}
    data = {"policies": {"one": LEARNER, "two": LEARNER}, "matches": [meets]}
    folder = play(data, tmp_path / "run")
    assert [line["snapshots"] for line in JournalReader(folder.rounds)] == [[], ["one@20"], ["one@40"]]


def test_resumed_round_keeps_its_matches(tmp_path: Path) -> None:
    data = past_selves()
    folder = play(data, tmp_path / "run")
    discard_after(folder, 2 * TICKS)
    run = prepared(data, folder.path, resume=True)
    assert run.text == (), "pairings differ from the first round, but not by a change of the configuration"
    assert [seat.policy for match in run.plan.matches for seat in match.seats] == ["one", "one@20", "two", "two@20"]


@pytest.mark.parametrize(
    ("tick", "rounds", "words"),
    [
        (30, 3, "round 1 goes on as it was planned; `matches` and `league` as they are now count from the next one on"),
        (30, 2, "round 1 goes on as it was planned; there is none after it"),
        (20, 3, ""),
    ],
)
def test_start_of_changed_matches_is_announced(tmp_path: Path, tick: int, rounds: int, words: str) -> None:
    data = {**past_selves(), "checkpoint_every": TICKS // 2}
    folder = play({**data, "rounds": 2}, tmp_path / "run")
    discard_after(folder, tick)
    entry = {**data["matches"][0]["matchmaking"], "lanes": 3}
    changed = {**data, "rounds": rounds, "matches": [{"matchmaking": entry}]}
    assert "".join(prepared(changed, folder.path, resume=True).text) == words


CHANGES: dict[str, dict[str, Any]] = {
    "copies": {"copies": 3},
    "fewer policies": {"policies": ["two"]},
    "more policies": {"policies": ["one", "two", "three"]},
    "exploiters": {"rule": {"exploiters": {"main": ["one"], "main_exploiters": ["two"]}}},
    "another generator": {"round_robin": {"env": "game", "policies": ["one", "three"]}},
}


@pytest.mark.parametrize(
    ("change", "tick"), [("more policies", TICKS), *((change, TICKS * 3 // 2) for change in CHANGES)]
)
def test_resumed_league_uses_new_pairings_from_the_next_round(change: str, tick: int, tmp_path: Path) -> None:
    data = {**past_selves(), "checkpoint_every": TICKS // 2}
    data["policies"] = {**data["policies"], "three": LEARNER}
    folder = play({**data, "rounds": 2}, tmp_path / "run")
    discard_after(folder, tick)
    begun = [planned.matches for planned in records.read(folder)][: 1 + (tick > TICKS)]
    entry = {**data["matches"][0]["matchmaking"], **CHANGES[change]}
    matches = [CHANGES[change]] if "round_robin" in CHANGES[change] else [{"matchmaking": entry}]
    play({**data, "matches": matches}, folder.path, resume=True)
    rounds = [planned.matches for planned in records.read(folder)]
    assert len(rounds) == 3
    assert rounds[: len(begun)] == begun
    met = [match.names for match in rounds[-1]]
    matches_of = Counter(name.partition("@")[0] for match in rounds[-1] for name in (match.names[0],) * match.copies)
    expected = {
        "copies": matches_of == {"one": 3, "two": 3},
        "fewer policies": matches_of == {"two": 1},
        "more policies": matches_of == {"one": 1, "two": 1, "three": 1},
        "exploiters": any(first == "two" and second.startswith("one") for first, second in met),
        "another generator": met == [("one", "three")],
    }
    assert expected[change], met


def test_league_of_another_game_is_not_resumed(tmp_path: Path) -> None:
    data = past_selves()
    folder = play({**data, "rounds": 2}, tmp_path / "run")
    entry = {**data["matches"][0]["matchmaking"], "env_kwargs": {"rounds": 3}}
    with pytest.raises(ConfigError, match=r"matches\[0\].matchmaking.env_kwargs.rounds was not set, is 3"):
        prepared({**data, "matches": [{"matchmaking": entry}]}, folder.path, resume=True)


def test_one_round_is_not_resumed_as_a_league(tmp_path: Path) -> None:
    policies = {"one": {"algorithm": "random"}, "two": {"algorithm": "random"}}
    data = {"policies": policies, "matches": [{"env": "game", "seats": ["one", "two"]}], "rounds": 1}
    folder = play(data, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"rounds was 1, is 2 \(one round is no league\)"):
        prepared({**data, "rounds": 2}, folder.path, resume=True)


def test_games_of_omitted_copies_still_count(tmp_path: Path) -> None:
    data = {
        "policies": {"one": {"algorithm": "random"}, "two": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["one", "two"]}],
        "checkpoint_every": TICKS // 2,
        "scale": True,
    }
    folder = play(data, tmp_path / "run", ranks=7)
    discard_after(folder, 2 * TICKS + TICKS // 2)
    play(data, folder.path, resume=True, ranks=4)
    assert {line["match"] for line in JournalReader(folder.episodes) if line["round"] == 2} == {0, 1}
    found = read(folder)
    assert (found.unrated, found.aborted) == (0, found.episodes - found.results.games)


def evolving_selves() -> dict[str, Any]:
    """Past selves that join and leave, and copies, in every round; only games of the newest round count."""
    return {**past_selves(), "league": {"snapshots": {"keep": 1}, "evolution": {"share": 0.5}}}


def test_round_that_was_planned_only_counts_no_games_and_is_replanned_identically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed when its last round was planned, before all roles were ready for it."""
    wait_until_ready = Root.wait_until_ready

    def killed(root: Root, **settings: Any) -> None:
        if root._run.plan.round == 2:
            raise WriteError("as by a kill, which leaves what is there")
        wait_until_ready(root, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(Root, "wait_until_ready", killed)
        folder = play(evolving_selves(), tmp_path / "run", code=1)
    assert len(records.read(folder)) == 3
    assert read(folder).results.games > 0
    assert read(folder).results.by_side() == read(folder, last=1).results.by_side()
    play(evolving_selves(), folder.path, resume=True)
    whole = play(evolving_selves(), tmp_path / "whole")
    for name in ("rounds.jsonl", "episodes.jsonl"):
        assert (folder.path / name).read_bytes() == (whole.path / name).read_bytes()
    snapshots = [
        {path.relative_to(one.path): path.read_bytes() for path in one.path.glob("snapshots/*/*")}
        for one in (folder, whole)
    ]
    assert snapshots[0] == snapshots[1] != {}


def test_folder_is_locked_while_a_round_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[int] = []
    next_round = rounds.plan_next_round

    def watched(*given: Any) -> Any:
        with pytest.raises(ConfigError, match="another run writes into this folder"):
            RunLock.take(tmp_path / "run")
        refused.append(len(given[1]))
        return next_round(*given)

    monkeypatch.setattr(rounds, "plan_next_round", watched)
    folder = play(past_selves(), tmp_path / "run")
    assert refused == [1, 2]
    assert not is_locked(folder.path)
    assert not is_left(folder.path)


def test_resumed_league_has_no_future_rounds(tmp_path: Path) -> None:
    data = past_selves()
    folder = play(data, tmp_path / "run")
    lines = folder.rounds.read_bytes().splitlines()
    discard_after(folder, 2 * TICKS)
    begin(prepared(data, folder.path, resume=True), resumable=True)
    assert folder.rounds.read_bytes().splitlines() == lines[:2]
    assert not folder.snapshot_path("one", 2 * TICKS).exists()


def test_league_killed_before_its_start_restarts_as_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise WriteError("as by a kill, which leaves what is there")

    duel = {**past_selves(), "matches": [{"env": "game", "seats": ["one", "two"]}], "rounds": 1}
    for name, data, count in (("league", past_selves(), 3), ("duel", duel, 0)):
        with monkeypatch.context() as patched:
            patched.setattr(RunFolder, "write_config", killed)
            with pytest.raises(WriteError):
                begin(prepared(past_selves(), tmp_path / name), resumable=True)
        folder = play(data, tmp_path / name)
        assert len(records.read(folder) if folder.rounds.exists() else []) == count
