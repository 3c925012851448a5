"""Initial states of policies in a round: learned before, taken over from others, or none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import in_process
from arena.dataset.reader import open_dataset
from arena.records import checkpoint
from arena.records.boundary import discard_after
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.state_codec import encode
from arena.terminal.display import PlainDisplay
from in_process import NOTES, one_match
from learners import LearnerWithActor
from policies.ppo import PPO
from worker_states import state_of


class Bits(NamedTuple):
    """A state, to be compared to the bit."""

    structure: Any
    arrays: list[bytes]

    @classmethod
    def of(cls, state: Any) -> Bits:
        return cls(*encode(state))


class LegStart(NamedTuple):
    """The state of a worker at the start of a leg."""

    policy: str
    worker: int  # its rank in the group
    state: Bits
    own: Bits
    options: Any


class _Notes:
    """Records its state when `run` is called."""

    def run(self) -> None:
        learner: Any = self
        states = Bits.of(learner.state_dict()), Bits.of(learner.worker_state_dict())
        group = learner.group
        NOTES.append(LegStart(group.policy, group.rank, *states, getattr(learner, "options", None)))
        super().run()  # type: ignore[misc]


class RecordsLegStarts(_Notes, LearnerWithActor):
    """A learner of the tests."""


class RecordsLegStartsOfPPO(_Notes, PPO):
    """A learner with an optimizer and a partial rollout of its own."""


TICKS = 20  # of a round
PPO = {
    "algorithm": "test_rounds:RecordsLegStartsOfPPO",
    "options": {"n_steps": 16, "learning_rate": 1e-3, "hidden_sizes": [8]},
}
ALL = {"algorithm": "test_rounds:RecordsLegStarts"}


def league(*matches: Any, policies: Any, rounds: int = 3, **more: Any) -> dict[str, Any]:
    """Rounds of one leg each, in which episodes have 4 ticks."""
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 4}}
    given = {"seed": 3, "rounds": rounds, "checkpoint_every": TICKS, "matches": [*matches]}
    return one_match(game, policies, ticks=TICKS, **given) | more


def play(data: dict[str, Any], path: Path, **given: Any) -> RunFolder:
    return in_process.train({"name": "league", **data}, path, **given)


def begun(folder: RunFolder, policy: str, number: int, worker: int = 0) -> LegStart:
    """The record of a worker at the start of a round."""
    notes = [note for note in NOTES if isinstance(note, LegStart) and note[:2] == (policy, worker)]
    return notes[sum(seated(planned).count(policy) > worker for planned in rounds_of(folder)[:number])]


def saved(folder: RunFolder, policy: str, number: int) -> Bits:
    """The state of a policy after this number of rounds."""
    return Bits.of(checkpoint.load(checkpoint.path_of(folder.checkpoints_path(policy), number * TICKS)).state)


def own(folder: RunFolder, policy: str, number: int, seat: tuple[int, int]) -> Bits:
    """The own state of its worker in a seat at that time."""
    return Bits.of(state_of(folder.checkpoints_path(policy), number * TICKS, seat))


def rounds_of(folder: RunFolder) -> list[dict[str, Any]]:
    return list(JournalReader(folder.rounds))


def seated(planned: dict[str, Any]) -> list[str]:
    """The players of the first match of a round, or of others, by seats."""
    return [seat["policy"] for match in planned["matches"] for seat in match["seats"]]


NOTHING = Bits.of({})
DUEL = {"env": "game", "policies": ["one", "two"], "lanes": 2}


# -------------------------------------------------------------------------------------------- forks, resets and rests


def test_fork_copies_weights_optimizer_and_partial_rollout(tmp_path: Path) -> None:
    evolving = {"evolution": {"share": 0.5, "perturb": {"learning_rate": [0.5, 2.0]}}}
    folder = play(league({"round_robin": DUEL}, policies={"one": PPO, "two": PPO}, league=evolving), tmp_path / "run")
    for number, planned in list(enumerate(rounds_of(folder)))[1:]:
        ((policy, fork),) = planned["forks"].items()
        source, taken = fork["from"], begun(folder, policy, number)
        assert {policy, source} == {"one", "two"}
        assert taken.state == saved(folder, source, number) != saved(folder, policy, number)
        assert taken.own == own(folder, source, number, (0, seated(planned).index(source))) != NOTHING
        assert taken.options.learning_rate == fork["options"]["learning_rate"]
        assert begun(folder, source, number).state == saved(folder, source, number)


def test_workers_of_a_fork_continue_with_source_worker_state(tmp_path: Path) -> None:
    evolving = {"evolution": {"share": 0.5}}
    pairs = {"round_robin": {**DUEL, "copies": 2}}
    folder = play(league(pairs, policies={"one": ALL, "two": ALL}, rounds=2, league=evolving), tmp_path / "run")
    planned = rounds_of(folder)[1]
    ((policy, fork),) = planned["forks"].items()
    seat = seated(planned).index(fork["from"])
    alone = [own(folder, fork["from"], 1, (match, seat)) for match in (0, 1)]
    assert alone[0] != alone[1]
    assert [begun(folder, policy, 1, worker).own for worker in (0, 1)] == alone


def test_reset_exploiter_starts_from_its_initial_state(tmp_path: Path) -> None:
    rule = {"exploiters": {"main": ["one"], "main_exploiters": ["two"], "reset": {"after": 2, "beats": 1.0}}}
    meets = {"matchmaking": {**DUEL, "rule": rule}}
    folder = play(league(meets, policies={"one": ALL, "two": ALL}), tmp_path / "run")
    assert [(planned["resets"], planned["snapshots"]) for planned in rounds_of(folder)][2] == (
        ["two"],
        ["one@40", "two@40"],
    )
    first, second, anew = (begun(folder, "two", number) for number in range(3))
    assert anew.state == first.state == saved(folder, "two", 0)
    assert anew.own == first.own == NOTHING
    assert second.state == saved(folder, "two", 1) != first.state
    assert Bits.of(checkpoint.load(folder.snapshot_path("two", 2 * TICKS)).state) == saved(folder, "two", 2)
    assert begun(folder, "one", 2).state == saved(folder, "one", 2)


def test_additional_seat_continues_at_the_groups_tick(tmp_path: Path) -> None:
    meets = {"env": "game", "policies": ["one"], "rule": {"past_selves": {"self": 0.5}}, "lanes": 2}
    data = {**league({"matchmaking": meets}, policies={"one": ALL}, rounds=4), "seed": 1}
    folder = play(data, tmp_path / "run")
    assert [seated(planned) for planned in rounds_of(folder)][2:] == [["one", "one@40"], ["one", "one"]]
    before = own(folder, "one", 3, (0, 0))
    assert [begun(folder, "one", 3, worker).own for worker in (0, 1)] == [before, before] != [NOTHING, NOTHING]


THREE = ("one", "two", "three")


def swiss(**more: Any) -> dict[str, Any]:
    """Three players, of whom one rests in each round."""
    meets = {"swiss": {"env": "game", "policies": list(THREE), "lanes": 2}}
    return league(meets, policies=dict.fromkeys(THREE, ALL), rounds=4, **more)


def resting(folder: RunFolder) -> list[str]:
    """The resting player of each round."""
    return [(set(THREE) - set(seated(planned))).pop() for planned in rounds_of(folder)]


def test_idle_policy_continues_from_its_state(tmp_path: Path) -> None:
    folder = play(swiss(), tmp_path / "run")
    name = resting(folder)[1]
    again = begun(folder, name, 2)
    assert again.state == saved(folder, name, 1)
    assert again.own == own(folder, name, 1, (0, seated(rounds_of(folder)[0]).index(name))) != NOTHING


def test_resting_fork_starts_later_with_the_state_of_its_source(tmp_path: Path) -> None:
    folder = play(swiss(league={"evolution": {"share": 0.34}}), tmp_path / "run")
    name = resting(folder)[1]
    assert name in rounds_of(folder)[1]["forks"], "it becomes a copy, and rests"
    source = rounds_of(folder)[1]["forks"][name]["from"]
    assert begun(folder, name, 2).state == saved(folder, source, 1) != begun(folder, source, 2).state


def test_every_round_starts_with_a_line_of_pairings(tmp_path: Path) -> None:
    rule = {"exploiters": {"main": ["one"], "main_exploiters": ["two"], "reset": {"after": 1, "beats": 1.0}}}
    config = league({"matchmaking": {**DUEL, "rule": rule}}, policies={"one": ALL, "two": ALL})
    config["league"] = {"snapshots": {"keep": 1}}
    shown = io.StringIO()
    play(config, tmp_path / "run", display=PlainDisplay(shown, total_ticks=1))
    told = [line.partition(": ") for line in shown.getvalue().splitlines() if line.startswith("round ")]
    assert [head for head, _, _ in told] == [f"round {number} of 0 to 2" for number in range(3)]
    assert [words.split("; ")[1:] for _, _, words in told] == [
        [],
        ["one@20, two@20 joined", "two started over"],
        ["one@40, two@40 joined", "one@20, two@20 left", "two started over"],
    ]


# ------------------------------------------------------------------------------------------------------------ resuming


def past_selves(**more: Any) -> dict[str, Any]:
    """Two learners that meet only their past selves, in rounds of two legs."""
    meets = {"matchmaking": {**DUEL, "rule": {"past_selves": {"self": 0.0}}}}
    policies = {"one": {"algorithm": "learners:LearnerWithActor"}, "two": {"algorithm": "learners:LearnerWithActor"}}
    return {**league(meets, policies=policies, rounds=4, **more), "checkpoint_every": TICKS // 2}


def files(folder: RunFolder, *parts: str) -> dict[str, bytes]:
    """The files in some parts of a run folder."""
    found = (path for part in parts for path in (folder.path / part).rglob("*") if path.is_file())
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in found}


KEPT = ("checkpoints", "snapshots", "samples")


def test_league_resumed_in_mid_round_has_the_same_snapshots(tmp_path: Path) -> None:
    whole = play(past_selves(record="samples"), tmp_path / "whole")
    assert any("@" in name for name in seated(rounds_of(whole)[3]))
    broken = play(past_selves(record="samples"), tmp_path / "broken")
    discard_after(broken, 7 * TICKS // 2)
    assert play(past_selves(record="samples"), broken.path, resume=True).path == broken.path
    assert files(broken, *KEPT) == files(whole, *KEPT)
    assert broken.episodes.read_bytes() == whole.episodes.read_bytes()
    assert broken.rounds.read_bytes() == whole.rounds.read_bytes()


# ------------------------------------------------------------------------------------------------------------- samples


def test_each_round_has_its_own_folder_of_samples_of_its_episodes(tmp_path: Path) -> None:
    folder = play(past_selves(record="samples"), tmp_path / "run")
    matches = [(number, match) for number in range(4) for match in (0, 1)]
    assert sorted(path.parts[-2:] for path in folder.samples.glob("*/*")) == [
        (f"round-{number:04d}", f"match-{match:04d}") for number, match in matches
    ]
    samples = open_dataset(folder.path)
    assert [(match.round, match.match) for match in samples.matches] == matches
    for match in samples.matches:
        ticks = [tick for part in match.parts() for tick in part.tick.tolist()]
        assert ticks == list(range(match.round * TICKS + 1, (match.round + 1) * TICKS + 1))
        assert [entity.policy for entity in match.entities] == seated(rounds_of(folder)[match.round])[
            2 * match.match : 2 * match.match + 2
        ]
    found = {(e.round, e.match, e.lane, e.number, e.entity): e.undiscounted for e in samples.episodes()}
    told = {
        (line["round"], line["match"], line["lane"], line["episode"], f"player_{entity}"): seat["return"]
        for line in JournalReader(folder.episodes)
        for seat in line["seats"]
        for entity in seat["entities"]
    }
    assert found == told


def test_replanned_round_leaves_nothing_of_the_old_plan(tmp_path: Path) -> None:
    folder = play(past_selves(record="samples"), tmp_path / "run")
    assert set(seated(rounds_of(folder)[3])) != {"one", "two", "one@20", "two@20"}
    discard_after(folder, 3 * TICKS)
    changed = past_selves(record="samples", league={"snapshots": {"keep": 1, "every": 2}})
    play(changed, folder.path, resume=True)
    rounds = rounds_of(folder)
    assert [len(planned["snapshots"]) for planned in rounds] == [0, 2, 2, 0]
    told = [entity.policy for match in open_dataset(folder.path).matches for entity in match.entities]
    assert told == [name for planned in rounds for name in seated(planned)]
    assert not folder.snapshot_path("one", 3 * TICKS).exists()
