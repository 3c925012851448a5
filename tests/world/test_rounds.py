"""What the policies of a league begin a round with: what they had learnt, what they have taken over, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arena.config import parse_config
from arena.launch import hosting
from arena.launch.prepare import prepare
from arena.records import checkpoint
from arena.records.boundary import discard_after
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.samples import read_samples
from arena.screen.display import silent_display
from remembering import Begun, Bits
from staging import NOTES

TICKS = 20  # of a round
PPO = {"algorithm": "remembering:RemembersPPO", "options": {"n_steps": 8, "learning_rate": 1e-3, "hidden_sizes": [8]}}
ALL = {"algorithm": "remembering:RemembersAll"}


def league(*matches: Any, policies: Any, rounds: int = 3, **more: Any) -> dict[str, Any]:
    """Rounds of one leg each, in which episodes have 4 ticks."""
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 4}}
    return {
        "seed": 3,
        "ticks": TICKS,
        "rounds": rounds,
        "checkpoint_every": TICKS,
        "envs": {"game": game},
        "policies": policies,
        "matches": list(matches),
        **more,
    }


def play(data: dict[str, Any], path: Path, *, resume: bool = False) -> RunFolder:
    """Plays all rounds in this process."""
    NOTES.clear()
    config = parse_config({"name": "league", **data}, source="test")
    run = prepare(config, ranks=1, run_dir=str(path), resume=resume)
    assert hosting.alone(run, lambda run, scoreboard: None, silent_display()) == 0
    return run.folder


def begun(policy: str, tick: int, worker: int = 0) -> Begun:
    """What a worker has noted."""
    (found,) = [note for note in NOTES if note[:3] == (policy, worker, tick)]
    return found  # type: ignore[no-any-return]


def saved(folder: RunFolder, policy: str, tick: int) -> Bits:
    """What a policy had learnt at the end of a round."""
    return Bits.of(checkpoint.load(checkpoint.path_of(folder.checkpoints_path(policy), tick)).state)


def own(folder: RunFolder, policy: str, tick: int, seat: tuple[int, int]) -> Bits:
    """What its worker in a seat alone had then."""
    return Bits.of(checkpoint.load(checkpoint.own_path_of(folder.checkpoints_path(policy), tick, seat)).state)


def rounds_of(folder: RunFolder) -> list[dict[str, Any]]:
    return list(JournalReader(folder.rounds))


NOTHING = Bits.of({})

DUEL = {"round_robin": {"env": "game", "policies": ["one", "two"], "lanes": 2}}
EVOLVING = {"evolution": {"share": 0.5, "perturb": {"learning_rate": [0.5, 2.0]}}}


# -------------------------------------------------------------------------------------------- forks, resets and rests


def test_a_fork_begins_with_the_weights_the_optimiser_and_the_half_rollout_of_its_source(tmp_path: Path) -> None:
    folder = play(league(DUEL, policies={"one": PPO, "two": PPO}, league=EVOLVING), tmp_path / "run")
    for planned in rounds_of(folder)[1:]:
        ((policy, fork),) = planned["forks"].items()
        source, tick = fork["from"], planned["start"]
        taken = begun(policy, tick)
        assert {policy, source} == {"one", "two"}
        assert taken.state == saved(folder, source, tick) != saved(folder, policy, tick)
        assert taken.own == own(folder, source, tick, (0, ["one", "two"].index(source))) != NOTHING
        assert taken.options.learning_rate == fork["options"]["learning_rate"]
        assert begun(source, tick).state == saved(folder, source, tick)


def test_every_worker_of_a_fork_goes_on_with_what_one_of_its_sources_alone_had(tmp_path: Path) -> None:
    two = {**DUEL, "round_robin": {**DUEL["round_robin"], "copies": 2}}
    folder = play(
        league(two, policies={"one": ALL, "two": ALL}, rounds=2, league={"evolution": {"share": 0.5}}), tmp_path / "run"
    )
    ((policy, fork),) = rounds_of(folder)[1]["forks"].items()
    seat = ["one", "two"].index(fork["from"])
    alone = [own(folder, fork["from"], TICKS, (match, seat)) for match in (0, 1)]
    assert [begun(policy, TICKS, worker).own for worker in (0, 1)] == alone
    assert alone[0] != alone[1]


def test_an_exploiter_that_is_reset_begins_as_it_did_at_first(tmp_path: Path) -> None:
    rule = {"exploiters": {"main": ["one"], "main_exploiters": ["two"], "reset": {"after": 2, "beats": 1.0}}}
    meets = {"matchmaking": {"env": "game", "policies": ["one", "two"], "rule": rule, "lanes": 2}}
    folder = play(league(meets, policies={"one": PPO, "two": PPO}, rounds=4), tmp_path / "run")
    assert [planned["resets"] for planned in rounds_of(folder)] == [[], [], ["two"], []]
    assert begun("two", 2 * TICKS).state == begun("two", 0).state == saved(folder, "two", 0)
    assert begun("two", 2 * TICKS).own == begun("two", 0).own == NOTHING
    assert begun("two", TICKS).state == saved(folder, "two", TICKS) != begun("two", 0).state
    assert begun("two", 3 * TICKS).state == saved(folder, "two", 3 * TICKS)
    assert begun("one", 2 * TICKS).state == saved(folder, "one", 2 * TICKS)


def swiss(**more: Any) -> dict[str, Any]:
    """Three players, of whom one rests in each round."""
    meets = {"swiss": {"env": "game", "policies": ["one", "two", "three"], "lanes": 2}}
    return league(meets, policies=dict.fromkeys(("one", "two", "three"), ALL), rounds=4, **more)


def resting(folder: RunFolder) -> list[str]:
    """Who rests, round by round."""
    seated = [
        {seat["policy"] for match in planned["matches"] for seat in match["seats"]} for planned in rounds_of(folder)
    ]
    return [({"one", "two", "three"} - names).pop() for names in seated]


def test_who_rests_for_a_round_goes_on_from_where_it_was(tmp_path: Path) -> None:
    folder = play(swiss(), tmp_path / "run")
    rests = resting(folder)
    for number, (before, name) in enumerate(zip(rests, rests[1:], strict=False), start=1):
        if number == 1:
            continue
        assert name != before
    number, name = next((number, name) for number, name in enumerate(rests) if 0 < number < 3)
    again = begun(name, (number + 1) * TICKS)
    assert again.state == saved(folder, name, number * TICKS)
    last = rounds_of(folder)[number - 1]
    (seat,) = [index for index, held in enumerate(last["matches"][0]["seats"]) if held["policy"] == name]
    assert again.own == own(folder, name, number * TICKS, (0, seat)) != NOTHING


def test_a_fork_that_rests_begins_later_with_the_bits_of_its_source(tmp_path: Path) -> None:
    folder = play(swiss(league={"evolution": {"share": 0.34}}), tmp_path / "run")
    rests = resting(folder)
    found = [
        (number, policy, fork["from"])
        for number, planned in enumerate(rounds_of(folder))
        for policy, fork in planned["forks"].items()
        if rests[number] == policy and number < 3
    ]
    print(rests, [p["forks"] for p in rounds_of(folder)])
    assert found
