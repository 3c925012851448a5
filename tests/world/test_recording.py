"""`record: samples`: the files hold what the workers saw and did, once, also after interruptions."""

from __future__ import annotations

import copy
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arena.dataset.reader import Episode, Part, open_dataset
from arena.game.spaces import flatten
from arena.roles.protocol import RoleFailed
from faulty_games import Faulty
from full_disk import full_above
from in_process import NOTES, Played, one_match, play
from workers import Player


class Records(Player):
    """Draws its actions, within the mask if there is one; every step is appended to `in_process.NOTES`.

    A note is (policy, seat's entities, observations, infos, actions, result of `step`).
    """

    face = "vector"
    schedule = "ticks"

    def run(self) -> None:
        env = self.env
        env.action_space.seed(self.group.seed % 2**31)
        observations, infos = copy.deepcopy(env.reset())
        while True:
            actions = env.action_space.sample()
            if "action_mask" in infos:
                actions = np.asarray(infos["action_mask"]).argmax(axis=1).astype(actions.dtype)
            told = copy.deepcopy(env.step(actions))
            NOTES.append((self.group.policy, env.seat_entities, observations, infos, actions, told))
            observations, infos = told[0], told[4]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


RECORDS = {"algorithm": "test_recording:Records"}
RANDOM = {"algorithm": "random"}


def run_of(make: str, *seats: Any, ticks: int = 50, lanes: int = 3, blue: Any = RECORDS, **more: Any) -> dict[str, Any]:
    """Legs of 20 ticks."""
    game = {"make": make, "kwargs": more.pop("kwargs", {})}
    match, policies = {"lanes": lanes, **more.pop("match", {})}, {"blue": blue, "red": RECORDS}
    given = {"seats": seats or ["blue"], "seed": 5, "checkpoint_every": 20, "record": "samples"}
    return one_match(game, policies, ticks=ticks, match=match, **{**given, **more})


def recorded(played: Played, entity: int) -> Iterator[tuple[Part, int, int]]:
    """Part, tick and lane of all observations of one entity, in the order of ticks and lanes."""
    (match,) = open_dataset(played.folder.path).matches
    parts = sorted(match.parts(), key=lambda part: (int(part.tick[0]), int(part.lane[0])))
    places = [
        (int(part.tick[t]), int(part.lane[lane]), part, t, lane)
        for part in parts
        for t in range(len(part.tick))
        for lane in range(len(part.lane))
    ]
    for _, _, part, t, lane in sorted(places, key=lambda place: place[:2]):
        yield part, t, lane


def noted(played: Played, policy: str, position: int) -> Iterator[tuple[Any, ...]]:
    """The same as recorded by the worker of a policy, for one of its entities: a tuple per row."""
    for name, entities, seen, infos, actions, told in played.notes:
        if name == policy:
            rows = range(position, len(infos["active"]), len(entities))
            for row in rows:
                yield row, seen, infos, actions, told


def check_rows(played: Played, *, entity: int, policy: str, position: int = 0, spaces: Any) -> int:
    """Compares all that one entity saw and did to the bit; how many rows there were."""
    observation_space, action_space = spaces
    count = 0
    pairs = zip(recorded(played, entity), noted(played, policy, position), strict=True)
    for (part, t, lane), (row, seen, infos, actions, told) in pairs:
        for leaf, array in zip(part.observations[entity], flatten(observation_space, seen), strict=True):
            assert leaf[t, lane].tobytes() == array[row].tobytes()
        active = bool(infos["active"][row])
        assert part.active[t, lane, entity] == active
        for leaf, array in zip(part.actions[entity], flatten(action_space, actions), strict=True):
            assert leaf[t, lane].tobytes() == (array[row] if active else np.zeros_like(array[row])).tobytes()
        assert part.rewards[t, lane, entity] == told[1][row]
        assert (part.terminated[t, lane, entity], part.truncated[t, lane, entity]) == (told[2][row], told[3][row])
        masks = part.masks[entity]
        if masks is not None:
            assert masks[t, lane].tolist() == infos["action_mask"][row].tolist()
        if told[2][row] or told[3][row]:
            check_end(part, t, lane, entity, flatten(observation_space, told[4]["final_obs"][row]))
        count += 1
    return count


def check_end(part: Part, t: int, lane: int, entity: int, final: list[NDArray[Any]]) -> None:
    ticks, lanes, leaves = part.ends[entity]
    (at,) = np.flatnonzero((ticks == part.tick[t]) & (lanes == part.lane[lane]))
    for leaf, array in zip(leaves, final, strict=True):
        assert leaf[at].tobytes() == np.asarray(array, leaf.dtype).tobytes()


def spaces_of(played: Played, entity: int = 0) -> tuple[Any, Any]:
    found = open_dataset(played.folder.path).matches[0].entities[entity]
    return found.observation_space, found.action_space


def files(played: Played | Path) -> dict[str, bytes]:
    """All files of the samples by name."""
    home = (played if isinstance(played, Path) else played.folder.path) / "samples"
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def check_returns(played: Played) -> list[Episode]:
    """Compares the recorded episodes with the lines of episodes.jsonl, where a policy drives one entity."""
    found = list(open_dataset(played.folder.path).episodes())
    summed = {(e.lane, e.number, e.policy): e.undiscounted for e in found}
    assert len(summed) == len(found), "no episode twice"
    told = {(e["lane"], e["episode"], s["policy"]): s["return"] for e in played.episodes for s in e["seats"]}
    assert summed == pytest.approx(told, abs=1e-12)
    return found


# ---------------------------------------------------------------------------------------------------- recorded data


def test_observations_of_every_kind_come_back_to_the_bit(tmp_path: Path) -> None:
    blue = {"algorithm": "test_recording:Records"}
    played = play(run_of("games:EverySpace", blue=blue), tmp_path)
    assert check_rows(played, entity=0, policy="blue", spaces=spaces_of(played)) == 50 * 3
    episodes = check_returns(played)
    assert {type(episode.observations) for episode in episodes} == {dict}
    assert set(episodes[0].final_observation) == set(spaces_of(played)[0].spaces)


def test_both_sides_of_a_match_are_recorded_in_any_blocks(tmp_path: Path) -> None:
    data = run_of("touchdown", "blue", "red", kwargs={"max_steps": 9}, match={"pipeline": 2})
    played = play(data, tmp_path)
    for entity, policy in enumerate(("blue", "red")):
        assert check_rows(played, entity=entity, policy=policy, spaces=spaces_of(played, entity)) == 150
    check_returns(played)


def test_seat_of_entities_that_end_at_different_ticks_is_recorded(tmp_path: Path) -> None:
    data = run_of("games:Dropout", ["blue", "blue"], "red", kwargs={"lengths": [2, 4, 6]})
    played = play(data, tmp_path)
    for entity, (policy, position) in enumerate((("blue", 0), ("blue", 1), ("red", 0))):
        check_rows(played, entity=entity, policy=policy, position=position, spaces=spaces_of(played, entity))
    whole = [e for e in open_dataset(played.folder.path).episodes() if not e.cut]
    lengths = {entity: {len(e.rewards) for e in whole if e.entity == entity} for entity in ("e0", "e1", "e2")}
    assert lengths == {"e0": {2}, "e1": {4}, "e2": {6}}
    assert {e.undiscounted for e in whole if e.entity == "e2"} == {18.0}


def test_in_turns_an_action_earns_rewards_until_the_next_one(tmp_path: Path) -> None:
    played = play(run_of("games:Alternate", "blue", "red", lanes=2), tmp_path)
    for entity, policy in enumerate(("blue", "red")):
        check_rows(played, entity=entity, policy=policy, spaces=spaces_of(played, entity))
    whole = [e for e in check_returns(played) if not e.cut]
    first, second = ([e for e in whole if e.policy == name] for name in ("blue", "red"))
    assert {tuple(e.rewards) for e in first} == {(11.0, 11.0, 11.0)}
    assert {(e.rewards_before, *e.rewards) for e in second} == {(10.0, 11.0, 11.0, 1.0)}
    assert all((np.diff(e.tick) == 2).all() for e in whole)


def test_action_masks_are_recorded(tmp_path: Path) -> None:
    played = play(run_of("pettingzoo:classic.tictactoe_v3", "blue", "red", lanes=2), tmp_path)
    assert open_dataset(played.folder.path).entity("blue").mask_size == 9
    for entity, policy in enumerate(("blue", "red")):
        check_rows(played, entity=entity, policy=policy, spaces=spaces_of(played, entity))
    for episode in check_returns(played):
        assert episode.masks is not None
        assert episode.masks[np.arange(len(episode.actions)), episode.actions].all()


def test_an_episode_longer_than_a_part_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run_of("games:Countdown", kwargs={"length": 17}, ticks=100, checkpoint_every=100, blue=RANDOM)
    whole = play(data, tmp_path)
    monkeypatch.setattr("arena.dataset.writer._MOST_TICKS", 3)
    parted = play(data, tmp_path)
    assert len(files(parted)) > 30 > len(files(whole))
    left, right = (list(open_dataset(played.folder.path).episodes()) for played in (whole, parted))
    by_place = sorted(right, key=lambda e: (e.lane, e.number))
    for one, other in zip(sorted(left, key=lambda e: (e.lane, e.number)), by_place, strict=True):
        np.testing.assert_equal(vars(one), vars(other))


def test_a_reset_in_mid_episode_leaves_no_episode(tmp_path: Path) -> None:
    played = play(run_of("games:Countdown", lanes=1, blue={"algorithm": "workers:ResetsOften"}), tmp_path)
    (match,) = open_dataset(played.folder.path).matches
    assert sum(part.begins.sum() for part in match.parts()) > 10
    check_returns(played)


def test_abandoned_seat_is_recorded_as_idle(tmp_path: Path) -> None:
    leaves = {"algorithm": "workers:Counts", "options": {"leave": [7]}}
    data = run_of("games:RandomLengths", "blue", "red", lanes=1, blue=leaves)
    played = play({**data, "checkpoint_every": 50}, tmp_path)
    (match,) = open_dataset(played.folder.path).matches
    (part,) = match.parts()
    assert part.idle[:, 0].sum() == 43
    assert not part.idle[:, 1].any()
    idle = {(e["lane"], e["episode"]): e["seats"][0]["idle_ticks"] for e in played.episodes}
    assert {(e.lane, e.number): e.idle_ticks for e in match.episodes("blue")} == idle


def test_restarted_game_is_recorded_as_workers_saw_it(tmp_path: Path) -> None:
    Faulty.forget()
    data = run_of("faulty_games:Faulty", lanes=2, kwargs={"length": [5, 8]}, on_env_error="restart")
    played = play(data, tmp_path)
    assert check_rows(played, entity=0, policy="blue", spaces=spaces_of(played)) == 100
    cut = [e for e in open_dataset(played.folder.path).episodes() if e.cut]
    assert any(e.tick[-1] % 20 for e in cut), "not by the end of a leg alone"


# ------------------------------------------------------------------------------------------ parts, legs and resuming


def test_files_of_samples_are_private_and_in_the_run_folder(tmp_path: Path) -> None:
    played = play(run_of("games:Countdown", match={"copies": 2}), tmp_path)
    home = played.folder.samples
    assert sorted(path.name for path in home.iterdir()) == ["match-0000", "match-0001"]
    assert sorted(path.name for path in (home / "match-0001").iterdir()) == [
        "000000000000.lane-0000.npz",
        "000000000020.lane-0000.npz",
        "000000000040.lane-0000.npz",
        "checksums",
        "manifest.json",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*") if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home, *home.iterdir())} == {0o700}
    with np.load(home / "match-0001" / "000000000020.lane-0000.npz", allow_pickle=False) as part:
        assert part["tick"].tolist() == list(range(21, 41))
        assert part["0/observation/0"].shape == (20, 3, 1)


def test_recording_does_not_change_the_run(tmp_path: Path) -> None:
    data = run_of("touchdown", "blue", "red", kwargs={"max_steps": 9}, blue=RANDOM)
    on, off = play(data, tmp_path), play({**data, "record": "nothing"}, tmp_path)
    assert on.folder.episodes.read_bytes() == off.folder.episodes.read_bytes()
    assert not off.folder.samples.exists()


LEARNS = {"algorithm": "workers:Counts"}
FAILS = {"algorithm": "workers:Counts", "options": {"fails_at": 70}}
HOLDS = {"algorithm": "workers:Counts"}


def test_resumed_run_has_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.dataset.writer._MOST_TICKS", 3)
    data = run_of("touchdown", "blue", "red", kwargs={"max_steps": 9}, ticks=100, blue=HOLDS)
    whole = play(data, tmp_path / "whole", given=True)
    broken = {**data, "policies": {**data["policies"], "blue": FAILS}}
    with pytest.raises(RoleFailed, match="brittle"):
        play(broken, tmp_path / "parted", given=True)
    before = files(tmp_path / "parted" / "run")
    assert any(name.startswith("match-0000/000000000060") for name in before), "what was played of the leg is there"
    parted = play(data, tmp_path / "parted", resume=True)
    assert files(parted) == files(whole)


def test_samples_of_another_match_are_not_mixed_in(tmp_path: Path) -> None:
    data = run_of("games:Countdown")
    data["matches"] = [{"env": "game", "seats": ["blue"]}, {"env": "game", "seats": ["red"]}]
    data["policies"] = {"blue": LEARNS, "red": RANDOM}
    play({**data, "ticks": 40}, tmp_path, given=True)
    before = files(tmp_path / "run")
    data["matches"][0]["copies"] = 2  # so match 1 is now blue's
    with pytest.raises(RoleFailed, match="holds samples of other entities, policies or spaces") as caught:
        play({**data, "ticks": 80}, tmp_path, resume=True)
    assert caught.value.failure.exit_code == 2
    assert files(tmp_path / "run") == before


def test_a_record_may_begin_and_end_when_a_run_is_resumed(tmp_path: Path) -> None:
    data = run_of("games:Countdown", blue=LEARNS)
    for ticks, record in ((40, "nothing"), (80, "samples"), (120, "nothing")):
        played = play({**data, "ticks": ticks, "record": record}, tmp_path, given=ticks == 40, resume=ticks > 40)
    (match,) = open_dataset(played.folder.path).matches
    assert [int(part.tick[0]) for part in match.parts()] == [41, 61]


# ----------------------------------------------------------------------------------------------------------- trouble


def test_full_disk_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    data = run_of("games:EverySpace", ticks=60, lanes=4, checkpoint_every=30, blue=RANDOM, results={"every": 60})
    with full_above(9_000), pytest.raises(RoleFailed, match=r"\.npz cannot be written: File too large") as caught:
        play(data, tmp_path, given=True)
    failure = caught.value.failure
    assert (failure.exit_code, "Traceback" in failure.message) == (1, False)
    assert "environment of match 0" in failure.who
    assert not list((tmp_path / "run").rglob("*.npz*.part"))
    whole = play(data, tmp_path / "whole", given=True)
    again = play(data, tmp_path, resume=True)
    assert files(again) == files(whole)
