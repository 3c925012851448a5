"""Matches of simulators that share a file: lives as games, refusals of a configuration, restarts, whole runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.errors import ConfigError, LinkError
from arena.external.connection import wait_for_start
from arena.external.shared_memory import GroupSpec, LayoutError, Rows
from arena.external.shared_memory.games import SharedMemoryGames
from arena.external.shared_memory.lives import Lives, interface_of_groups
from arena.external.slots import Slots
from arena.records.formats import GamesLine, LinkLine
from arena.records.journal import JournalReader
from external_connections import Playing
from in_process import play
from link_programs import command, environment

GROUPS = {
    "walker": {"agents": 3, "observations": [[3], [2, 2]], "continuous": 2},
    "chooser": {"agents": 2, "observations": [[2], [1]], "branches": [3, 2]},
}
WALKER = GroupSpec("walker", 3, ((2,),), 1)
CHOOSER = GroupSpec("chooser", 3, ((1,),), None, (2, 2))


def games(kind: str = "plays", **kwargs: Any) -> SharedMemoryGames:
    return SharedMemoryGames(**{"command": command(kind), "environment": environment(), "groups": GROUPS, **kwargs})


class Table:
    """A table of slots, the lives that fill it, and the recorded calls."""

    def __init__(self, slots: int, *, unseen: int = 1000, split: dict[str, int] | None = None) -> None:
        groups = (WALKER, CHOOSER)
        self.lives = Lives(groups, split or {}, unseen)
        self.slots = Slots(interface_of_groups(groups, split or {}, (-1.0, 1.0)), slots)
        self.asked: Any = None

    def tell(self, simulator: int = 0, **rows: Any) -> None:
        self.asked = self.lives.pass_on(self.slots, simulator, rows, lambda group, field, element: element)

    def tick(self) -> Any:
        """Forms a tick; returns its step."""
        tick = self.slots.form(at_once=True)
        assert tick is not None
        self.slots.answers([np.zeros((self.slots.size, 1)), np.zeros((self.slots.size, 2), np.int64)])
        return tick


def walkers(*rows: tuple[int, float, str]) -> Rows:
    """Rows of (id, reward, ending): `done`, `max` with done, `step` without it, or empty."""
    ids, rewards, ends = zip(*rows, strict=True)
    return Rows(
        np.array(ids, np.int32),
        (np.array([[number, reward] for number, reward, _ in rows], np.float32),),
        np.array(rewards, np.float32),
        np.array([end in ("done", "max") for end in ends]),
        np.array([end in ("max", "step") for end in ends]),
    )


def test_lives_become_games() -> None:
    table = Table(3)
    table.tell(walker=walkers((1, 5.0, ""), (2, 0.0, ""), (9, 0.0, "done")))
    assert (table.slots.running, table.slots.counts.begun) == (2, 2)
    table.tick()
    table.tell(walker=walkers((1, 1.0, ""), (2, 2.0, "done"), (2, 0.0, "")))
    tick = table.tick()
    assert [(game.name, game.returns[0], game.terminated) for game in tick.finished] == [("0/walker/2", 2.0, True)]
    assert table.slots.game(1).name == "0/walker/2", "the same agent has its slot again"
    table.tell(walker=walkers((1, 3.0, "max"), (2, 4.0, "step")))
    (game,) = table.tick().finished
    assert (game.name, game.returns[0], game.truncated) == ("0/walker/1", 4.0, True)
    counts = table.lives.counts[0]
    assert (counts.never_asked, counts.max_step_without_done, counts.first_rewards) == (1, 1, 1)
    assert table.slots.counts.begun == 3


def test_random_lives_equal_a_second_computation() -> None:
    rng = np.random.default_rng(3)
    table, living, expected = Table(40), {}, []
    found: list[tuple[str, int, float, bool]] = []
    for _ in range(150):
        rows: dict[str, list[tuple[int, float, str]]] = {"walker": []}
        for number in rng.permutation(30)[: rng.integers(1, 20)].tolist():
            reward, end = float(rng.integers(-3, 4)), str(rng.choice(["", "", "", "done", "max", "step"]))
            rows["walker"].append((number, reward, end))
            if number in living:
                length, total = living[number]
                if end in ("done", "max"):
                    expected.append((f"0/walker/{number}", length, total + reward, end == "max"))
                    del living[number]
                else:
                    living[number] = (length + 1, total + reward)
            elif end == "":
                living[number] = (1, 0.0)
        table.tell(walker=walkers(*rows["walker"]))
        finished = table.tick().finished
        found += [(game.name, int(game.lengths[0]), game.returns[0], game.truncated) for game in finished]
    assert sorted(found) == sorted(expected)
    assert len(found) > 150


def test_groups_that_are_split_are_played_by_two_entities() -> None:
    table = Table(4, split={"walker": 2})
    table.tell(walker=walkers((0, 0.0, ""), (1, 0.0, ""), (3, 0.0, "")))
    assert [table.slots.playing(slot) for slot in range(3)] == [[0], [1], [1]]


def test_too_many_agents_are_refused_with_the_lanes_that_they_need() -> None:
    table = Table(2)
    message = r"simulator 0: 3 agents live, 2 slots \(lanes\): walker 3, chooser 0; set lanes to 3 or more"
    with pytest.raises(LinkError, match=message):
        table.tell(walker=walkers((1, 0.0, ""), (2, 0.0, ""), (3, 0.0, "")))


def test_agents_that_vanish_lose_their_slots() -> None:
    table = Table(2, unseen=3)
    table.tell(walker=walkers((1, 0.0, ""), (2, 0.0, "")))
    table.tick()
    for _ in range(3):
        table.tell(walker=walkers((2, 0.0, "")))
        table.tick()
    table.tell(walker=walkers((2, 0.0, ""), (3, 0.0, "")))
    assert table.slots.game(0).name == "0/walker/3"
    assert (table.lives.counts[0].lost, table.slots.counts.lost) == (1, 1)


def test_ended_rows_get_zeros_and_unplayed_rows_allowed_actions() -> None:
    table = Table(3)
    masks = np.array([[True, False, True, False], [True, False, True, False]])
    flags = np.array([False, True]), np.zeros(2, bool)
    seen, rewards = (np.zeros((2, 1), np.float32),), np.zeros(2, np.float32)
    table.tell(chooser=Rows(np.array([4, 5], np.int32), seen, rewards, *np.zeros((2, 2), bool), masks))
    table.tick()
    table.tell(chooser=Rows(np.array([4, 5], np.int32), seen, rewards, *flags, masks))
    assert table.lives.actions(table.asked, None, set())["chooser"].tolist() == [[1, 1], [0, 0]]


def test_non_finite_numbers_are_named() -> None:
    table = Table(3)
    with pytest.raises(LayoutError, match=r"byte 3: walker\.observation 0: found nan"):
        table.tell(walker=walkers((1, 0.0, ""), (2, float("nan"), "")))
    assert table.slots.running == 0, "nothing was told"


def test_lives_that_do_not_count_are_played_and_not_counted() -> None:
    table = Table(4)
    table.slots.most = 2
    table.tell(walker=walkers((1, 0.0, ""), (2, 0.0, ""), (3, 0.0, "")))
    assert [len(slots) for slots in table.asked["walker"].slots.values()] == [3], "all three wait for a policy"
    assert not table.asked["walker"].dropped
    table.tick()
    table.tell(walker=walkers((1, 1.0, "done"), (1, 0.0, ""), (2, 1.0, ""), (3, 1.0, "done")))
    assert [game.name for game in table.tick().finished] == ["0/walker/1", ""]
    assert (table.slots.counts.begun, table.slots.counts.ended, table.slots.running) == (2, 1, 1)


def test_a_dropped_agent_does_nothing_until_its_life_ends() -> None:
    table = Table(2)
    table.tell(walker=walkers((1, 0.0, ""), (2, 0.0, "")))
    table.tick()
    table.slots.lose(0, "dropped")
    table.lives.drop(0)
    table.tell(walker=walkers((1, 1.0, ""), (2, 1.0, "")))
    assert list(table.asked["walker"].dropped) == [0]
    table.tick()
    table.tell(walker=walkers((1, 1.0, "done"), (1, 0.0, "")))
    assert table.slots.game(0).name == "0/walker/1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": None}, "found neither of `command` and `attach`"),
        ({"attach": "default"}, "found both of `command` and `attach`"),
        ({"command": []}, "expected a list: the program"),
        ({"command": ["/no/such/program"]}, "the program /no/such/program does not exist"),
        ({"command": ["no-such-program"]}, "no program 'no-such-program' in PATH"),
        ({"command": [__file__]}, "is not executable"),
        ({"command": None, "attach": "default", "groups": None}, "groups: is needed with `attach`"),
        ({"command": None, "attach": "a/b"}, "attach: found 'a/b'"),
        ({"command": None, "attach": "default", "simulators": 2}, "simulators: found 2"),
        ({"simulators": 257}, "simulators: found 257; expected a whole number, at least 1 and at most 256"),
        ({"groups": {"w": {"agents": 0, "observations": [[1]], "continuous": 1}}}, r"groups\.w\.agents: found 0"),
        ({"groups": {"w": {"agents": 1, "observations": [], "continuous": 1}}}, "at least one"),
        ({"groups": {"w": {"agents": 1, "observations": [[1]]}}}, "exactly one of `continuous` and `branches`"),
        ({"groups": {"w": {"agents": 1, "observations": [[1]], "continuous": 0}}}, "found 0"),
        ({"groups": {"w": {"agents": 1, "observations": [[1]], "branches": [0]}}}, r"branches\[0\]: found 0"),
        ({"groups": {"w": {"agents": 1, "observations": [[1, 2, 3, 4]], "continuous": 1}}}, "one to three sizes"),
        ({"groups": {"w" * 64: {"agents": 1, "observations": [[1]], "continuous": 1}}}, "1 to 63"),
        ({"groups": {"w": {"agents": 1, "observations": [[1]], "continuous": 1, "branches": [2]}}}, "exactly one"),
        ({"split": {"other": 2}}, "there is no group 'other'"),
        ({"split": {"walker": 1}}, r"split\.walker: found 1"),
        ({"profile": "newest"}, "known: published, release-0.2"),
        ({"action_range": [1, -1]}, "low less than high"),
        ({"engine": {"speed": 1}}, "unknown key 'speed'"),
        ({"engine": {"time_scale": 101}}, "at most 100"),
        ({"properties": {"gravity": "high"}}, r"properties\.gravity: found 'high'"),
        ({"step_s": 0}, "step_s: found 0; expected a number, more than 0"),
        ({"folder": "/no/such/folder"}, "expected a folder that is there"),
        ({"simulator": 2}, "unknown key 'simulator'; did you mean 'simulators'"),
    ],
)
def test_a_wrong_configuration_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        games(**change)


@pytest.mark.slow
def test_interface_is_learned_from_the_program() -> None:
    assert games(groups=None).interface == games().interface


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "start_s"), [("exit 7", 60.0), pytest.param("exec sleep 600", 1.0, marks=pytest.mark.long)]
)
def test_silent_program_is_a_configuration_error(then: str, start_s: float) -> None:
    made = games(command=["sh", "-c", f"echo a line of output; {then}"], start_s=start_s, close_s=0.1)
    made.open(5, lambda: None)
    with pytest.raises(ConfigError, match=r"simulator 0 \(pid \d+\) .*\n  \| a line of output"):
        wait_for_start(made)


@pytest.mark.slow
def test_another_group_than_the_configured_one_fails() -> None:
    other = {**GROUPS, "walker": {**GROUPS["walker"], "agents": 4}}
    made = games(groups=other)
    made.open(5, lambda: None)
    with pytest.raises(ConfigError, match=r"simulator 0: .*group walker has 3 agents, the configuration says 4"):
        wait_for_start(made)


@pytest.mark.slow
def test_reports_of_a_simulator_are_recorded_and_drawn(tmp_path: Path) -> None:
    kwargs = {"command": command("reports"), "environment": environment(), "groups": GROUPS}
    env = {"make": "shared_memory", "kwargs": kwargs}
    policies = {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}}
    match = {"env": "world", "seats": ["blue", "red"], "lanes": 5}
    played = play({"ticks": 20, "envs": {"world": env}, "policies": policies, "matches": [match]}, tmp_path / "run")
    (*_, last) = JournalReader(played.folder.games)
    assert last["reported"] == {"0": {"speed": 2.0}}
    (file,) = (played.folder.path / "tensorboard" / "world").iterdir()
    assert b"match 0 simulator 0/speed" in file.read_bytes()
    line = GamesLine(**{**last, "links": [LinkLine(**last["links"][0])], "seconds": 0.5})
    assert f"; {20 * last['asking'] / last['ticks']:.0f} % of the slots ask per tick; " in line.text(5)
    assert line.text(5).endswith(f"; {2 * line.links[0].handovers} hand-overs/s, 10 lives/s")


@pytest.mark.slow
def test_a_killed_simulator_is_started_again() -> None:
    with Playing(games(simulators=2, restarts=1), 10) as playing:
        playing.until(lambda: playing.table.counts.asks > 50)
        victim = playing.games._simulators[1].link.pid
        os.kill(victim, signal.SIGKILL)
        playing.until(lambda: playing.games._simulators[1].link.pid != victim)
        asks = playing.table.counts.asks
        playing.until(lambda: playing.table.counts.asks > asks + 50)
        assert playing.table.counts.lost >= 3
        assert playing.table.counts.lost_by == {"crashed": playing.table.counts.lost}
        assert playing.games.address.endswith(f", {playing.games._simulators[1].link.pid}"), "of the new program"
        os.kill(playing.games._simulators[1].link.pid, signal.SIGKILL)
        playing.until(lambda: playing.error is not None)
    assert "was killed by SIGKILL" in str(playing.error) and "; `restarts: 1` is used up" in str(playing.error)


@pytest.mark.slow
def test_a_number_that_is_not_finite_names_the_key_that_starts_the_simulator_again() -> None:
    with Playing(games("nan"), 10) as playing:
        playing.until(lambda: playing.error is not None)
    assert "walker.reward: found nan, expected a finite number; `restarts: 2` in `kwargs`" in str(playing.error)


@pytest.mark.slow
def test_lives_of_a_simulator_that_writes_nan_are_lost_by_bad_data() -> None:
    with Playing(games("nan", restarts=1), 10) as playing:
        playing.until(lambda: playing.error is not None)
        counts = playing.table.counts
    assert counts.lost_by == {"bad_data": counts.lost} and counts.lost > 0


def test_a_simulator_started_by_hand_is_waited_for_in_words(tmp_path: Path) -> None:
    made = games(command=None, environment=None, attach="by-hand", folder=str(tmp_path))
    made.open(5, lambda: None)
    try:
        assert [*made.notices] == [f"waits for a program started with `--memory-path {made.address}`"]
    finally:
        made.close("over")


@pytest.mark.slow
def test_a_killed_simulator_names_the_key_that_starts_it_again() -> None:
    with Playing(games(), 10) as playing:
        playing.until(lambda: playing.table.counts.asks > 5)
        os.kill(playing.games._simulators[0].link.pid, signal.SIGKILL)
        playing.until(lambda: playing.error is not None)
    assert "; `restarts: 2` in `kwargs` starts it again" in str(playing.error).splitlines()[0]


@pytest.mark.slow
def test_a_run_records_a_simulator_that_was_started_again(tmp_path: Path) -> None:
    kwargs = {"command": command("killed"), "environment": environment(), "groups": GROUPS, "restarts": 1000}
    written = {
        "ticks": 12,
        "envs": {"world": {"make": "shared_memory", "kwargs": kwargs}},
        "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "world", "seats": ["blue", "red"], "lanes": 5}],
    }
    played = play(written, tmp_path / "run")
    faults = list(JournalReader(played.folder.faults))
    (*_, last) = JournalReader(played.folder.games)
    assert len(faults) == last["links"][0]["starts"] - 1 >= 2
    assert all("was killed by SIGKILL" in fault["error"] for fault in faults)
    assert sum(len(fault["lanes"]) for fault in faults) == last["links"][0]["lost"] > 0
    (place,) = json.loads(played.folder.external.read_bytes())
    assert place["files"][0].startswith("/")
    assert played.shown.count("match 0: simulators pid ") >= 2
    assert f"match 0: simulators {place['address']}\n" in played.shown
