"""External games in threads, in whole runs of one process: play, learning, records and refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import arena
from arena.cli.main import main
from arena.config import parse_config
from arena.dataset import open_dataset
from arena.errors import ConfigError
from arena.external.http import HttpGames
from arena.game.api import Interface
from arena.plan.build import make_plan
from arena.preflight.examine import examine
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.records.recorder import InOrder
from arena.report.page import page
from arena.report.read_run import read_run
from arena.roles.protocol import Notice, RoleFailed
from arena.run.planning import checked_plan
from external_actors import ONE
from external_connections import entities_of
from external_games import Line
from in_process import NOTES, one_match, play
from policies.offline.importance_sampling import estimate


class Notes:
    """Notes per tick, of the only row: observation, active, given, given action; void, truncated, last observation."""

    face = "vector"

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        self._env = env

    def run(self) -> None:
        """Plays random actions."""
        observations, infos = self._env.reset()
        truncated = np.zeros(1, np.bool_)
        while True:
            last = float(infos["final_obs"][0][0]) if truncated[0] else None
            given = bool(infos["given"][0])
            seen = float(observations[0, 0]), bool(infos["active"][0]), given, int(infos["given_action"][0])
            NOTES.append((*seen, bool(infos["void"][0]), bool(truncated[0]), last))
            observations, _, _, truncated, infos = self._env.step(self._env.action_space.sample())


RANDOM: dict[str, Any] = {"algorithm": "random"}


def match(make: str, *, lanes: int = 1, policy: Any = RANDOM, **kwargs: Any) -> dict[str, Any]:
    game = {"make": f"external_games:{make}", "kwargs": kwargs}
    return one_match(game, {"blue": policy}, ticks=200, seed=5, match={"lanes": lanes})


def network(folder: RunFolder) -> dict[str, Any]:
    state: dict[str, Any] = checkpoint.load(checkpoint.find(folder.path, "blue")).state["network"]
    return state


class Told(HttpGames):
    """Games that need to know their match when they are opened."""

    told: ClassVar[list[Any]] = []

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        self.told.append((self.rules.max_delay_s, *self.policies))
        super().open(slots, ring)


def test_games_are_told_of_their_match_before_a_check_opens_them(tmp_path: Path) -> None:
    game = {
        "make": "test_external_games:Told",
        "kwargs": {"port": 0, "entities": ONE},
        "external": {"max_delay_s": 0.5},
    }
    data = {"name": "test", **one_match(game, {"blue": RANDOM}, ticks=8)}
    (tmp_path / "told.yaml").write_text(json.dumps(data))
    assert main(["check", str(tmp_path / "told.yaml")]) == 0
    assert Told.told == [(0.5, "blue")]


class Late(Line):
    """Begins to walk when the user has been told that it is waited for."""

    told = threading.Event()

    def run(self) -> None:
        self.told.wait(60)
        super().run()


def test_wait_for_games_is_told_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(text: str) -> Notice:
        Late.told.set()
        return Notice(text)

    monkeypatch.setattr("arena.roles.environment.hosted_games._NOTICE_SECONDS", 0.0)
    monkeypatch.setattr("arena.roles.environment.hosted_games.Notice", told)
    game = {"make": "test_external_games:Late", "kwargs": {"steps": 5, "games": 4}}
    found = play(one_match(game, {"blue": RANDOM}, ticks=40, match={"lanes": 2}), tmp_path)
    assert "match 0: no game has asked for an action for 0 min; 0 of 2 slots are in use\n" in found.shown
    assert len(found.episodes) == 4


def test_game_across_legs_is_one_line_with_its_whole_return(tmp_path: Path) -> None:
    config = {**match("Line", steps=80, games=3), "ticks": 300, "checkpoint_every": 50}
    found = play(config, tmp_path)
    lines = [(line["game"], line["length"], line["seats"][0]["return"]) for line in found.episodes]
    assert lines == [(f"walk-{number}", 80, float(sum(range(80)))) for number in range(3)]
    assert all(line["terminated"] and not line["truncated"] for line in found.episodes)
    assert all(line["seats"][0]["outcome"] == "win" for line in found.episodes)
    (*_, last) = JournalReader(found.folder.games)
    assert last["begun"] == last["ended"] + last["lost"] + last["held"]
    assert (last["ended"], last["held"], last["lost"], last["asks"]) == (3, 0, 0, 240)
    (place,) = msgspec.json.decode(found.folder.external.read_bytes())
    assert (place["kind"], place["address"], place["slots"]) == ("thread", "", 1)


def test_reports_in_a_wait_leave_out_the_tick_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that has reached a tick reports no more episodes of it."""
    add, reached, late = InOrder.add, dict[int, int](), list[tuple[int, int]]()

    def noted(order: InOrder, rank: int, tick: int, episodes: Sequence[EpisodeRecord], *, last: bool = False) -> Any:
        late.extend((episode.tick, reached[rank]) for episode in episodes if episode.tick <= reached.get(rank, 0))
        reached[rank] = tick
        return add(order, rank, tick, episodes, last=last)

    monkeypatch.setattr("arena.roles.environment.environment._COUNT_SECONDS", 0.0)
    monkeypatch.setattr(InOrder, "add", noted)
    found = play(match("Line", steps=5, games=10), tmp_path)
    assert len(found.episodes) == 10
    assert not late


@pytest.mark.parametrize(
    "end",
    [
        {"callbacks": [{"class": "recorders:Stops", "options": {"where": "checkpoint", "nth": 2}}]},
        {"stop": {"ticks": 100}},
        {"ticks": 100},
    ],
    ids=["a request when the environment has ended its leg", "a stop rule", "the last tick"],
)
def test_last_messages_are_recorded_however_the_run_ends(end: Any, tmp_path: Path) -> None:
    """A request to stop comes in the callback: the environment has ended its leg, and is told nothing any more."""
    callbacks = [*end.get("callbacks", ()), "recorders:Measures"]
    config = {
        **match("Line", steps=25, policy={"algorithm": "ppo", "options": {"n_steps": 32, "minibatch_size": 32}}),
        "ticks": 200,
        "checkpoint_every": 50,
        "record": "samples",
        **end,
    }
    found = play({**config, "callbacks": callbacks}, tmp_path, profile=True)
    assert [line["tick"] for line in JournalReader(found.folder.games)][-1] == 100
    assert [line["tick"] for line in JournalReader(found.folder.measures)][-1] == 100
    last = boundary.newest(found.folder)
    assert last is not None and last.tick == 100
    assert last.updates["blue"] == found.updates[-1]["update"] == len(found.updates)
    assert sum(count for *_, count in last.episodes) == len(found.episodes)
    (samples,) = open_dataset(found.folder.path).matches
    assert [*samples.parts()][-1].tick[-1] == 100
    kinds = [role["role"] for role in msgspec.json.decode(found.folder.profile.read_bytes())["roles"]]
    assert kinds == ["root", "environment", "worker"]


def test_match_plays_empty_ticks_after_its_loop_has_returned(tmp_path: Path) -> None:
    found = play({**match("Line", steps=5, games=2), "ticks": 500}, tmp_path)
    assert [line["length"] for line in found.episodes] == [5, 5]
    (*_, last) = JournalReader(found.folder.games)
    assert last["empty_ticks"] > 450
    assert found.shown.count("no game of 'game' will come any more (its `run` has returned)") == 1


def test_vector_face_shows_void_and_given(tmp_path: Path) -> None:
    """The action at every third step is the game's; the game is truncated without a last observation."""
    config = match("Line", steps=6, given=3, truncated=True, policy={"algorithm": "test_external_games:Notes"})
    rows = play({**config, "ticks": 40}, tmp_path).notes
    asked = [(seen, given) for seen, active, given, *_ in rows if active]
    assert asked[:7] == [(0.0, True), (1.0, False), (2.0, False), (3.0, True), (4.0, False), (5.0, False), (0.0, True)]
    assert {action for _, _, given, action, *_ in rows if given} == {2}
    ends = [(void, truncated, last) for *_, void, truncated, last in rows if truncated]
    assert set(ends[:-1]) == {(True, True, 5.0)}  # its last action has no next observation
    assert not any(void for *_, void, truncated, _ in rows if not truncated)


def test_samples_mark_given_actions_and_void_transitions(tmp_path: Path) -> None:
    config = match("Line", steps=6, given=3, truncated=True, policy={"algorithm": "scripted", "options": {"action": 1}})
    found = play({**config, "ticks": 40, "record": "samples"}, tmp_path)
    episodes = list(open_dataset(found.folder.path).episodes("blue"))
    whole = [episode for episode in episodes if not episode.cut]
    assert len(whole) >= 4
    for episode in whole:
        assert episode.observations[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        assert episode.given is not None and episode.void is not None
        assert episode.given.tolist() == [True, False, False, True, False, False]
        assert episode.actions.tolist() == [2, 1, 1, 2, 1, 1]
        assert episode.void.tolist() == [False] * 5 + [True]
    with pytest.raises(ConfigError, match="given or void"):
        estimate(episodes, target=_certain, behavior=_certain)


def _certain(observations: Any, actions: Any, masks: Any) -> Any:
    return np.zeros(len(actions))


@pytest.mark.parametrize(
    ("algorithm", "training"), [("ppo", True), *((name, False) for name in ("ppo", "hppo", "dqn"))]
)
def test_algorithms_learn_only_from_training_games(algorithm: str, training: bool, tmp_path: Path) -> None:
    options = {"learning_starts": 20, "train_every": 4} if algorithm == "dqn" else {"n_steps": 20}
    policy = {"algorithm": algorithm, "options": options}
    found = play({**match("Line", given=4, training=training, policy=policy), "ticks": 300}, tmp_path)
    first = checkpoint.load(found.folder.checkpoints / "blue" / sorted(files(found.folder))[0]).state["network"]
    moved = not all(np.array_equal(first[name], value) for name, value in network(found.folder).items())
    assert moved == training


def files(folder: RunFolder) -> list[str]:
    return [path.name for path in (folder.checkpoints / "blue").glob("*")]


def test_refusals_name_the_rule_and_the_game_goes_on(tmp_path: Path) -> None:
    found = play({**match("Wrong", steps=5, games=3), "ticks": 30}, tmp_path)
    assert found.notes == [
        *("already_started", "unknown_game", "bad_observation", "bad_observation", "bad_observation"),
        *("unknown_entity", "bad_mask", "bad_action", "bad_reward", "unknown_entity", "unknown_game"),
    ]
    assert [line["game"] for line in found.episodes] == ["walk-0", "walk-1", "walk-2"]


def test_loop_that_raises_ends_the_run_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "falls", 1)
    with pytest.raises(RoleFailed, match="the walker has fallen") as failed:
        play(match("Line", fails_after=3), tmp_path)
    assert failed.value.failure.exit_code == 1


def test_raising_loop_is_recreated_with_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "falls", 1)
    found = play({**match("Line", fails_after=3, steps=8), "ticks": 30, "on_env_error": "restart"}, tmp_path)
    lost = [line for line in found.episodes if line.get("lost")]
    assert [(line["game"], line["lost"]) for line in lost] == [("walk-0", "failed")]
    assert len(found.episodes) > 2
    assert all(line["cut"] and line["seats"][0]["outcome"] is None for line in lost)
    assert arena.open_run(found.folder.path).games() == [*JournalReader(found.folder.games)]
    assert "more cut or lost: 1 lost (1 failed)" in page(read_run(found.folder.path))
    assert "the walker has fallen" in (found.folder.faults).read_text()


WALK = Interface(("walker",), (Box(-1.0, 1.0, (1,), np.float32),), (Discrete(2),), (0,))
SILENT, HTTP = "external_games:Silent", "http"
CANNOT: list[tuple[dict[str, Any], dict[str, Any], str]] = [  # keys of the configuration and of `envs.game`, the path
    ({"record": "replays"}, {}, "record"),
    ({"rounds": 2}, {}, "rounds"),
    ({"matches": [{"env": "game", "seats": ["blue"], "lanes": 2, "pipeline": 2}]}, {}, r"matches\[0\].pipeline"),
    ({"matches": [{"env": "game", "seats": ["blue"], "copies": 2}]}, {}, "envs.game.external.idle_tick_s"),
    ({"evaluation": {"every": 100, "episodes": 2}, "checkpoint_every": 100}, {}, "evaluation"),
    ({}, {"wrappers": ["grayscale"]}, "envs.game.wrappers"),
    ({}, {"external": {"min_asking": 2}}, "envs.game.external.min_asking"),
    ({}, {"make": "cover", "external": {}}, "envs.game.external"),
    (
        {"policies": {"blue": {"algorithm": "sb3:PPO"}}, "matches": [{"env": "game", "seats": ["blue"], "lanes": 2}]},
        {},
        r"matches\[0\].seats\[0\]",
    ),
    ({"matches": [{"round_robin": {"env": "game", "policies": ["blue", "red"]}}]}, {}, r"matches\[0\].round_robin"),
]


@pytest.mark.parametrize("make", [SILENT, HTTP])
@pytest.mark.parametrize(("changes", "env", "path"), CANNOT)
def test_what_external_games_cannot_do_is_refused_by_all(
    make: str, changes: dict[str, Any], env: dict[str, Any], path: str, tmp_path: Path
) -> None:
    """By `arena check`; at the start of a run, which imports no game; and by the environment of a class."""
    kwargs = {"port": 0, "entities": entities_of(WALK)} if make == HTTP else {}
    data = {**match("Silent"), "envs": {"game": {"make": make, "kwargs": kwargs, **env}}, **changes}
    data["policies"] = {"blue": RANDOM, "red": RANDOM, **data["policies"], **changes.get("policies", {})}
    config = parse_config({"name": "test", **data}, source="test")
    with pytest.raises(ConfigError, match=path):
        examine(make_plan(config))
    if data["envs"]["game"]["make"] == HTTP:
        with pytest.raises(ConfigError, match=path):
            checked_plan(config, ranks=1)
    folder = tmp_path / "run"
    with pytest.raises(ConfigError, match=path):
        arena.train(config, ranks=1, run_dir=folder)
    assert not folder.exists()
