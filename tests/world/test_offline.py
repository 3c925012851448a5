"""Learning and off-policy estimates from recorded data, with the policies' own weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete

from arena.dataset.minari import to_minari
from arena.dataset.reader import Samples, open_dataset
from arena.errors import ConfigError
from arena.records import checkpoint, read_results
from arena.serving import load_policy
from arena.trainer.player import Player
from fakes import all_equal
from in_process import Played, one_match, play, train
from policies.offline.importance_sampling import estimate

SIZES = {"hidden_sizes": [16]}
PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, **SIZES}}
RANDOM = {"algorithm": "random"}


def duel(blue: Any, red: Any = RANDOM, *, ticks: int = 60, **more: Any) -> dict[str, Any]:
    game = {"make": "touchdown", "kwargs": {"max_steps": 12}}
    given = {"seed": 5, "checkpoint_every": 20, "match": {"lanes": 4}}
    return one_match(game, {"blue": blue, "red": red}, ticks=ticks, **given) | more


def demonstrated(path: Path) -> str:
    """A run of a script, recorded; its folder."""
    script = {"algorithm": "scripted", "options": {"function": "policies.scripts:run"}}
    return str(play(duel(script, record="samples", ticks=120), path, given=True).folder.path)


def cloning(data: str, algorithm: str = "bc", **options: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "options": {"data": data, "policy": "blue", "train_every": 8, **SIZES, **options}}


def test_scripted_policy_is_cloned(tmp_path: Path) -> None:
    data = demonstrated(tmp_path / "data")
    clone = cloning(data, gradient_steps=30, learning_rate=0.003, hidden_sizes=[64])
    played = play(duel(clone, ticks=80), tmp_path)
    assert played.updates[-1]["agreement"] > 0.95
    clone = load_policy(f"{played.folder.path}:blue")
    agreed = [(clone.act(e.observations) == e.actions).mean() for e in open_dataset(data).episodes("blue")]
    assert np.mean(agreed) > 0.95


@pytest.mark.parametrize("algorithm", ["bc", "iql"])
def test_interrupted_learning_equals_an_uninterrupted_one(algorithm: str, tmp_path: Path) -> None:
    data = demonstrated(tmp_path / "data")
    clone = cloning(data, algorithm, gradient_steps=3, train_every=7)
    matches = [{"env": "game", "seats": ["blue", "red"], "lanes": 2, "copies": 2}]
    whole = play(duel(clone, ticks=40, matches=matches), tmp_path / "whole", given=True)
    play(duel(clone, ticks=20, matches=matches), tmp_path / "parted", given=True)
    parted = play(duel(clone, ticks=40, matches=matches), tmp_path / "parted", resume=True)
    left, right = (checkpoint.load(played.folder.checkpoints_path("blue")) for played in (whole, parted))
    assert left.state["updates"] == 5
    assert left.boundary == right.boundary == 40
    assert all_equal(left.state, right.state)
    assert whole.folder.episodes.read_bytes() == parted.folder.episodes.read_bytes()


@pytest.mark.filterwarnings("ignore:.*(is set to None|env_spec is None).*:UserWarning")
@pytest.mark.parametrize("algorithm", ["bc", "iql"])
def test_data_set_of_minari_teaches_what_the_samples_teach(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    data = demonstrated(tmp_path / "data")
    to_minari(data, "blue", "touchdown/runs-v0", cut=True, author="x", author_email="x", algorithm_name="scripted")
    states = []
    for number, options in enumerate(({"data": data}, {"data": "minari:touchdown/runs-v0", "policy": "minari"})):
        clone = cloning(**{"algorithm": algorithm, "gradient_steps": 3, "batch_size": 4096, **options})
        played = play(duel(clone, ticks=40), tmp_path / f"run{number}", given=True)
        states.append(checkpoint.load(played.folder.checkpoints_path("blue")).state["network"])
    assert states[0].keys() == states[1].keys()
    for name in states[0]:
        assert np.allclose(states[0][name], states[1][name], atol=1e-4), "the same rows, in another order"


@pytest.mark.parametrize("options", [{}, {"data": "nowhere"}, {"data": "minari:no/where-v0"}])
def test_learning_without_recorded_samples_is_refused(options: Any, tmp_path: Path, capfd: Any) -> None:
    train(duel({"algorithm": "iql", "options": options}), tmp_path / "run", code=2)
    error = capfd.readouterr().err
    assert "policies.blue.options" in error
    told = ("needs the option 'data'", "no recorded samples here", "fetch it: minari download no/where-v0")
    assert any(words in error for words in told)


def test_normalized_score_is_in_the_results_of_an_evaluation(tmp_path: Path) -> None:
    function = {"function": "arena.dataset.score:normalized", "options": {"random": 5, "expert": 10}}
    best = {"algorithm": "scripted", "options": {"action": 2}}
    evaluation = {"every": 40, "episodes": 8, **function}
    run = train(countdown(best, ticks=40, evaluation=evaluation) | {"checkpoint_every": 40}, tmp_path / "run")
    assert read_results(run.path)[-1]["evaluation"]["custom"] == {"normalized_score": {"blue": 100.0}}


def countdown(blue: Any, *, ticks: int, **more: Any) -> dict[str, Any]:
    """Five steps, each of which pays the number of the action: uniform play earns 5, the best 10."""
    given = {"seed": 5, "checkpoint_every": 1000, "match": {"lanes": 8}}
    return one_match({"make": "games:Countdown"}, {"blue": blue}, ticks=ticks, **given, **more)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A run with a policy whose checkpoints others play with."""
    return play(countdown(PPO, ticks=100), tmp_path_factory.mktemp("learned"))


@pytest.fixture(scope="module")
def samples(learned: Played, tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Samples played by its last checkpoint, unchanged."""
    frozen = {**PPO, "frozen": True, "load": str(learned.folder.path)}
    played = play(countdown(frozen, ticks=1000, record="samples"), tmp_path_factory.mktemp("played"))
    return open_dataset(played.folder.path)


def policy(samples: Samples) -> Any:
    """The policy that played them."""
    return load_policy(f"{samples.path.parent}:blue")


def test_on_policy_estimate_is_the_mean_return(samples: Samples) -> None:
    blue = policy(samples)
    found = estimate(samples.episodes("blue"), target=blue.log_prob, behavior=blue.log_prob)
    returns = [episode.undiscounted for episode in samples.episodes("blue")]
    assert found.episodes == len(returns) == 1600
    assert np.mean(returns) > 5.5, "it has learned"
    for value in (found.ordinary.value, found.per_decision.value, found.weighted.value):
        assert value == pytest.approx(np.mean(returns), abs=1e-12)


def test_off_policy_estimate_is_the_other_policys_return(samples: Samples, tmp_path: Path) -> None:
    """Uniform actions are asked about."""
    uniform = load_policy(f"{play(countdown(RANDOM, ticks=5), tmp_path).folder.path}:blue")
    found = estimate(samples.episodes("blue"), target=uniform.log_prob, behavior=policy(samples).log_prob)
    for estimated in (found.ordinary, found.per_decision, found.weighted):
        assert abs(estimated.value - 5.0) < 4 * estimated.standard_error < 1.0


def test_learning_policy_is_refused_as_behavior_policy(tmp_path: Path) -> None:
    samples = open_dataset(play(countdown(PPO, ticks=40, record="samples"), tmp_path).folder.path)
    blue = policy(samples)
    with pytest.raises(ConfigError, match=r"the policy 'blue' learned while it was recorded.*`frozen: true`"):
        estimate(samples.episodes("blue"), target=blue.log_prob, behavior=blue.log_prob)


def test_recurrent_policy_is_evaluated_by_episode(tmp_path: Path) -> None:
    remembers = {"algorithm": "ppo", "options": {**PPO["options"], "recurrent": "gru", "hidden_size": 8}}
    learned = play(countdown(remembers, ticks=32), tmp_path)
    frozen = {**remembers, "frozen": True, "load": str(learned.folder.path)}
    samples = open_dataset(play(countdown(frozen, ticks=40, record="samples"), tmp_path).folder.path)
    blue = policy(samples)
    for episode in samples.episodes("blue"):
        blue.reset()
        chosen = [blue.act(seen) for seen in episode.observations]
        each = [
            blue.log_prob(episode.observations, np.array([*chosen[:t], a, *chosen[t + 1 :]]), None)[t]
            for t in range(5)
            for a in range(3)
        ]
        assert np.array(each).reshape(5, 3).argmax(axis=1).tolist() == chosen
        break


def test_a_checkpoint_is_found_by_its_tick(learned: Played) -> None:
    first = load_policy(f"{learned.folder.path}:blue@0")
    last = load_policy(f"{learned.folder.path}:blue")
    assert (first.ticks, first.algorithm.updates, last.ticks, last.algorithm.updates) == (0, 0, 100, 6)
    seen, actions = np.full((3, 1), 4, np.float32), np.arange(3)
    assert first.log_prob(seen, actions, None) == pytest.approx(-np.log(3), abs=0.05), "close to uniform"
    assert np.exp(last.log_prob(seen, actions, None)).sum() == pytest.approx(1)
    assert last.log_prob(seen, actions, None)[2] > first.log_prob(seen, actions, None)[2]


def test_one_observation_and_a_batch_get_the_same_actions(learned: Played) -> None:
    blue = load_policy(f"{learned.folder.path}:blue")
    assert (blue.observation_space.shape, blue.action_space) == ((1,), Discrete(3))
    seen = np.arange(5, dtype=np.float32)[:, None]
    actions = blue.act(seen)
    assert actions.shape == (5,)
    assert [blue.act(one) for one in seen] == actions.tolist()
    allowed = np.eye(3, dtype=np.int8)[[0, 1, 2, 0, 1]]
    infos = [{"action_mask": mask} for mask in allowed]
    for either in (blue, Player(blue, "blue")):
        assert either.act(seen[0], allowed[2]) == either.act(seen[0], mask=allowed[2]) == 2
        assert [either.act(one, info) for one, info in zip(seen, infos, strict=True)] == [0, 1, 2, 0, 1]
    acted = [
        blue.act(seen, allowed),
        blue.act(seen, mask=allowed.astype(np.float64)),
        blue.act(seen, {"action_mask": allowed}),
    ]
    assert [each.tolist() for each in (*acted, blue.act(seen, infos))] == [[0, 1, 2, 0, 1]] * 4
    with pytest.raises(ValueError, match=r"of shape \(2, 5, 1\)"):
        blue.act(np.zeros((2, 5, 1), np.float32))


@pytest.mark.parametrize("rows", [(), (2,)], ids=["one", "a batch"])
@pytest.mark.parametrize(
    ("seen", "mask", "message"),
    [
        (
            0,
            np.ones(4, np.int8),
            r"the mask has dtype int8 and shape \({rows}4,?\); expected numbers \({rows}3,?\): 1",
        ),
        (0, np.full(3, 0.5), r"the mask has the value 0.5; "),
        (0, np.array([1, 2, 0]), r"the mask has the value 2; expected numbers \({rows}3,?\): 1 for each allowed"),
        (0, np.array([1, -1, 0]), r"the mask has the value -1; "),
        (0, np.zeros(3, np.int8), r"the mask has no allowed action; expected numbers"),
        (np.nan, None, r"the observation has the value nan; expected finite numbers"),
        (-np.inf, np.ones(3, np.int8), r"the observation has the value -inf; expected finite numbers"),
    ],
)
def test_what_a_server_refuses_is_refused(
    learned: Played, seen: float, mask: Any, message: str, rows: tuple[int, ...]
) -> None:
    blue = load_policy(f"{learned.folder.path}:blue")
    observations = np.zeros((*rows, 1), np.float32)
    assert np.shape(blue.act(observations, np.ones((*rows, 3), np.int8))) == rows
    observations[-1] = seen
    if mask is not None and rows:
        mask = np.stack([np.ones_like(mask), mask])
    with pytest.raises(ValueError, match=message.format(rows="2, " if rows else "")):
        blue.act(observations, mask)


def test_a_player_needs_no_allowed_action_where_it_does_not_act(learned: Played) -> None:
    player, seen = Player(load_policy(f"{learned.folder.path}:blue"), "blue"), np.zeros((2, 1), np.float32)
    masks = np.array([[0, 0, 0], [0, 1, 0]], np.int8)
    assert player.act_batch(seen, {"action_mask": masks, "active": np.array([False, True])})[1] == 1
    infos = [{"action_mask": mask, "active": mask.any()} for mask in masks]
    assert player.act_batch(seen, infos)[1] == 1
    assert [player.act(one, info) for one, info in zip(seen, infos, strict=True)][1] == 1
    with pytest.raises(ValueError, match="the mask has no allowed action"):
        player.act_batch(seen, {"action_mask": masks})
    with pytest.raises(ValueError, match="the info of row 0 has no action_mask, but others have one"):
        player.act_batch(seen, [{}, infos[1]])


def test_a_policy_without_weights_acts_in_any_number_of_rows(tmp_path: Path) -> None:
    uniform = load_policy(f"{play(countdown(RANDOM, ticks=5), tmp_path / 'a').folder.path}:blue")
    always = {"algorithm": "scripted", "options": {"action": 2}}
    constant = load_policy(f"{play(countdown(always, ticks=5), tmp_path / 'b').folder.path}:blue")
    seen = np.zeros((200, 1), np.float32)
    assert uniform.ticks is None
    assert set(uniform.act(seen, greedy=False).tolist()) == {0, 1, 2}
    assert constant.act(seen).tolist() == [2] * 200
    assert constant.act(seen[0]) == 2
    assert constant.act(seen[:3]).tolist() == [2] * 3
    with pytest.raises(ConfigError, match=r"\(scripted\) has no log_prob\(\)"):
        constant.log_prob(seen, np.zeros(200, np.int64), None)
