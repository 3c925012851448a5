"""A team learns the same whether one worker drives all its entities or each has a worker of its own."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import Tensor

from arena.config.load import parse_config
from arena.errors import BudgetReached, ConfigError
from arena.game.spaces import row
from arena.plan.build import make_plan
from arena.plan.plan import Plan
from arena.preflight.seats import check_teams, learners_of
from fakes import ScriptedEnv, ThreadGroup, all_equal, flat_weights, solo_group, together
from learning_steps import evaluate, learn, play, run
from policies.common.sequences import Sequences
from policies.maddpg import MADDPG
from policies.mappo import MAPPO
from policies.masac import MASAC
from policies.networks import reparameterized
from policies.ppo import PPO
from policies.qmix import QMIX
from policies.vdn import VDN

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
MIXED = spaces.Dict(a=spaces.Box(0, 255, (8, 8, 3), np.uint8), b=spaces.Discrete(4, start=-1), c=VECTOR)
CHOICE, NUMBERS = spaces.Discrete(4), spaces.Box(-0.5, 2.0, (2,), np.float32)
E, L, TICKS = 3, 2, 28
SMALL = {"hidden_sizes": (8,), "batch_size": 8, "training_intensity": 4.0, "learning_starts": 8, "train_every": 4}
ROLLOUTS = {"hidden_sizes": (8,), "n_steps": 7, "minibatch_size": 999, "learning_rate": 2e-3}

NORMALIZED = {"normalize_observations": True, "prioritized": True, "shared_actor": False}
REMEMBERS = {"recurrent": "gru", "hidden_size": 5, "sequence_length": 3, "burn_in": 2}
further = partial(pytest.param, marks=pytest.mark.long)  # a row that repeats the path of others
both = pytest.mark.parametrize("kind", [MADDPG, MASAC])


class Uneven(ScriptedEnv):
    """A game of lanes of three entities, which leave one by one; each lane has its own episode length.

    Observations and rewards do not depend on actions; they follow from the seed. The entities in `places` are seen and
    driven; `in_turns`: on some ticks no entity of a lane acts; `leg`: every episode is cut after so many ticks.
    """

    def __init__(
        self,
        space: Any = VECTOR,
        actions: Any = CHOICE,
        *,
        seed: int = 0,
        first: int = 0,
        ticks: int = 40,
        places: range = range(E),
        masked: bool = False,
        in_turns: bool = False,
        leg: int = 0,
    ) -> None:
        super().__init__(space, actions, rows=L * len(places), ticks=ticks)
        self.seat_entities = tuple(f"entity_{place}" for place in places)
        self.tick, self.places, self.masked, self.leg, self.seed = first, places, masked, leg, seed
        self.in_turns = in_turns
        self.joint_space = batch_space(space, L * E)

    def _drawn(self, tick: int, what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, tick, what])

    def _observed(self, tick: int, what: int = 0) -> Any:
        self.joint_space.seed(int(self._drawn(tick, what).integers(2**31)))
        return self._own(self.joint_space.sample())

    def _own(self, rows: Any) -> Any:
        if isinstance(rows, dict):
            return {key: self._own(value) for key, value in rows.items()}
        return rows.reshape(L, E, *rows.shape[1:])[:, list(self.places)].reshape(-1, *rows.shape[1:])

    def _length(self, lane: int, entity: int) -> int:
        return 2 + lane + 2 * entity

    def _in_game(self, tick: int) -> np.ndarray[Any, Any]:
        """The rows that act after so many ticks, [L * E]."""
        since = tick % self.leg if self.leg else tick
        return np.array(
            [since % self._length(lane, E - 1) < self._length(lane, e) for lane in range(L) for e in range(E)]
        )

    def _infos(self) -> dict[str, Any]:
        moves = (self.tick + np.arange(L * E) // E) % 3 > 0 if self.in_turns else True
        infos: dict[str, Any] = {"active": self._own(self._in_game(self.tick) & moves)}
        return {**infos, **self._allowed(1)}

    def _allowed(self, what: int) -> dict[str, Any]:
        allowed = self._drawn(self.tick, what).random((L * E, 4)) < 0.6
        allowed[:, self.tick % 4] = True
        return {"action_mask": self._own(allowed.astype(np.int8))} if self.masked else {}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._observed(self.tick), self._infos()

    def step(self, actions: Any) -> Any:
        if self.tick >= self.ticks:
            raise BudgetReached
        acted = self._in_game(self.tick)
        self.tick += 1
        since = (self.tick - 1) % self.leg + 1 if self.leg else self.tick
        lengths = [self._length(lane, e) for lane in range(L) for e in range(E)]
        over = np.array([(since - 1) % lengths[i - i % E + E - 1] + 1 == lengths[i] for i in range(L * E)])
        cut = acted & ~over if self.leg and since == self.leg else np.zeros(L * E, np.bool_)
        cut = cut | (over & (np.arange(L * E) % 2 == 0))  # some are cut where others terminate
        terminated, truncated = (self._own(part) for part in (over & ~cut, cut))
        rewards = self._own(self._drawn(self.tick, 2).normal(size=L * E) * acted)
        infos, ended = self._infos(), terminated | truncated
        if ended.any():
            last, infos["final_info"] = self._observed(self.tick, 3), self._allowed(4)
            infos["final_obs"] = np.full(len(ended), None, object)
            for index in np.flatnonzero(ended):
                infos["final_obs"][index] = row(self.single_observation_space, last, index)
        return self._observed(self.tick), rewards, terminated, truncated, infos


def one_of(group: ThreadGroup) -> range:
    """The place of a worker that drives one entity."""
    place = group.team.index(group.rank)
    return range(place, place + 1)


def acted(done: list[list[Any]]) -> list[Any]:
    """The actions of all ticks of a seat, joined from those of its entities' workers."""
    return [np.stack(parts, 1).reshape(-1, *parts[0].shape[1:]) for parts in zip(*done, strict=True)]


# ------------------------------------------------------------------------------------------------- the same experience


@pytest.fixture
def steady_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that is equal in every row, so that the numbers of draws do not matter."""

    def steady(shape: Any, generator: Any) -> Tensor:
        return torch.linspace(-0.8, 1.1, shape[-1]).expand(tuple(shape))

    for name in ("normal", "gumbel"):
        monkeypatch.setattr(reparameterized, name, steady)


def like(learner: Any, actions: list[Any]) -> Any:
    """The learner, which plays the recorded actions of others."""
    recorded = iter(actions)

    def choose(*_: Any) -> Tensor:
        return torch.as_tensor(np.array(next(recorded)))

    learner.act_randomly = learner.explore = choose
    learner.actions.to_env = lambda chosen: chosen
    return learner


def noting(learner: Any) -> list[Any]:
    """The actions of the learner from now on, as stored for learning."""
    taken: list[Any] = []
    to_env = learner.actions.to_env

    def note(actions: Any) -> Any:
        taken.append(actions.copy())
        return to_env(actions)

    learner.actions.to_env = note
    return taken


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sync", "space", "actions", "options"),
    [
        (MADDPG, "gradients", VECTOR, CHOICE, {"n_step": 3, "buffer_size": 40}),
        (MASAC, "samples", VECTOR, NUMBERS, NORMALIZED),
        (QMIX, "gradients", VECTOR, CHOICE, {**NORMALIZED, "n_step": 2}),
        (QMIX, "gradients", VECTOR, CHOICE, {**REMEMBERS, **NORMALIZED, "n_step": 2}),
        (MASAC, "samples", VECTOR, NUMBERS, {**REMEMBERS, "buffer_size": 40}),
        further(MADDPG, "samples", VECTOR, CHOICE, {**REMEMBERS, "n_step": 3}),
        further(VDN, "samples", VECTOR, CHOICE, NORMALIZED),
        further(QMIX, "samples", MIXED, CHOICE, {"state": "c", "n_step": 3}),
        further(MASAC, "gradients", VECTOR, CHOICE, {"n_step": 3, "buffer_size": 40}),
        further(MADDPG, "samples", VECTOR, NUMBERS, NORMALIZED),
        further(MADDPG, "gradients", MIXED, CHOICE, {}),
    ],
)
def test_team_of_workers_equals_one_seat(
    kind: Any, sync: str, space: Any, actions: Any, options: dict[str, Any], steady_noise: None
) -> None:
    given = {"masked": actions is CHOICE, "ticks": TICKS}

    def work(group: ThreadGroup) -> Any:
        env = Uneven(space, actions, places=one_of(group), **given)
        learner = kind(env, group, ticks=TICKS, **SMALL, **options)
        taken = noting(learner)
        run(learner)
        return flat_weights(learner.network), taken, learner.state_dict(), group.logged, learner.replay

    workers = together(E, work, sync=sync, team_size=E)
    seated = kind(Uneven(space, actions, **given), solo_group(sync=sync), ticks=TICKS, **SMALL, **options)
    run(like(seated, acted([taken for _, taken, *_ in workers])))
    assert seated.gradient_steps > 10
    for weights, _, state, logged, _ in workers:
        np.testing.assert_allclose(weights, flat_weights(seated.network), atol=1e-6, rtol=0)
        assert state["intensity"] == seated.intensity.state_dict()
        assert logged == [pytest.approx(line, abs=1e-4) for line in seated.group.logged]
    mine, theirs = (replay.state_dict()["rings"] for replay in (workers[0][4], seated.replay))
    if "recurrent" in options:  # the last bits depend on how many rows act at once
        memories = ([ring["sequences"].pop("memories") for ring in rings] for rings in (mine, theirs))
        for one, other in zip(*memories, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
            assert np.abs(one).max() > 0.1
    assert all_equal(mine, theirs)
    assert all(replay is None or replay.size == 0 for *_, replay in workers[1:])


# -------------------------------------------------------------------------------------------------------------- memory


class Long(Uneven):
    """Whose entities stay for longer."""

    def _length(self, lane: int, entity: int) -> int:
        return 9 + lane + 4 * entity


def remembering(kind: Any, **options: Any) -> tuple[Any, Sequences]:
    """A learner after a run with the same weights, and all that its replay holds."""
    given = {**SMALL, **REMEMBERS, "n_step": 2, "learning_rate": 0.0, **options}
    learner = kind(Long(in_turns=True, ticks=60), solo_group(), ticks=60, **given)
    with torch.no_grad():
        for weight in learner.network.parameters():
            weight.mul_(2)  # what is remembered matters
    run(learner)
    origins = np.flatnonzero(learner.replay._sequences.leaves)
    return learner, learner.replay._sequences_at(origins, torch.ones(len(origins)), learner.replay.size)


def features_of_a_game(learner: Any, encoder: Any) -> dict[bytes, Tensor]:
    """What an encoder finds in each observation of the game, by its bytes: entity by entity, in whole episodes."""
    env, remember, found = Long(in_turns=True, ticks=60), learner.network.remember, {}
    seen, infos = env.reset()
    memory = torch.zeros(L * E, learner.memory_size)

    def look(rows: Any, observations: Any) -> None:
        features = encoder.own([torch.from_numpy(observations), memory[rows]])
        found.update(zip([one.tobytes() for one in observations], features, strict=True))

    for _ in range(60):
        look(np.arange(L * E), seen)
        acts = torch.from_numpy(infos["active"])[:, None]
        memory = torch.where(acts, remember([torch.from_numpy(seen), memory]), memory)
        seen, _, terminated, truncated, infos = env.step(None)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            look(ended, np.stack(list(infos["final_obs"][ended])))
            memory[ended] = 0.0
    look(np.arange(L * E), seen)
    return found


@pytest.mark.parametrize("kind", [QMIX, MADDPG])
@torch.no_grad()
def test_features_of_lanes_equal_those_of_each_entity_in_whole_episodes(kind: Any) -> None:
    """Entities wait for their turn, and leave one by one; a lane's sequence ends where one leaves."""
    with torch.enable_grad():
        learner, batch = remembering(kind)
    assert len(batch.burned) > 3
    for encoder in {learner.network.encoder, getattr(learner.network, "actors_encoder", learner.network.encoder)}:
        expected, compared = features_of_a_game(learner, encoder), 0
        joint = batch.all_features(encoder)
        goes_on = batch.discounts.amax(1) > 0
        known = zip(joint, (batch.places, batch.followings), (torch.ones_like(goes_on), goes_on), strict=True)
        for features, places, follows in known:
            seen, acts = (leaf[places] for leaf in batch.observations)
            assert torch.equal(encoder.acts(features), acts.float())
            for number, entity in torch.nonzero(acts.bool() & follows[:, None]).tolist():
                there = expected[seen[number, entity].numpy().tobytes()]
                torch.testing.assert_close(encoder.by_entity(features)[number, entity], there, atol=1e-5, rtol=0)
                compared += 1
        assert compared > 200
        assert torch.stack(list(expected.values())).std() > 0.05


@pytest.mark.parametrize("kind", [VDN, QMIX, MADDPG, MASAC])
def test_losses_of_sequences_move_all_weights(kind: Any) -> None:
    learner, batch = remembering(kind, shared_actor=False)
    for optimizer in learner.optimizers.values():
        optimizer.zero_grad()
    learner.backward(batch)
    still = [name for name, weight in learner.network.named_parameters() if not weight.grad.abs().sum() > 0]
    assert still == []


# --------------------------------------------------------------------------------------------------------------- mappo


def judged(kind: Any, env: Any, group: ThreadGroup, **options: Any) -> Any:
    """A worker that has played one rollout, and the batch that it makes of it."""
    learner = kind(env, group, ticks=40, **ROLLOUTS, **options)
    learner.rollout.begin(*env.reset())
    play(learner)
    learner.normalization.observe(group, learner.rollout)
    return learner, evaluate(learner)


@pytest.mark.slow
@pytest.mark.parametrize(("space", "sync"), [(VECTOR, "gradients"), further(MIXED, "samples")])
def test_mappo_team_equals_one_seat(space: Any, sync: str) -> None:
    options = {"normalize_rewards": True, "normalize_observations": True}

    def work(group: ThreadGroup) -> Any:
        env = Uneven(space, places=one_of(group), masked=True)
        learner, batch = judged(MAPPO, env, group, **options)
        learn(learner, batch)
        return learner.rollout, batch, flat_weights(learner.network)

    workers = together(E, work, sync=sync, team_size=E)
    seat = MAPPO(Uneven(space, masked=True), solo_group(sync=sync), ticks=40, **ROLLOUTS, **options)
    taken = iter(acted([list(rollout.flat()[2].view(7, L).numpy()) for rollout, *_ in workers]))
    seat.act = lambda *_: next(taken)  # type: ignore[method-assign]
    seat.rollout.begin(*seat.env.reset())
    play(seat)
    seat.normalization.observe(seat.group, seat.rollout)
    batch = evaluate(seat)
    whose = batch.observations[-1]  # an entity's place, the last leaf
    for place, (_, own, _) in enumerate(workers):
        expected = batch.take(torch.nonzero(whose == place).squeeze(1))
        assert own.size == expected.size > 0
        for mine, theirs in zip(
            (*own.observations, own.masks, own.actions),
            (*expected.observations, expected.masks, expected.actions),
            strict=True,
        ):
            assert torch.equal(mine, theirs)
        for name in ("log_probs", "values", "advantages", "returns"):
            torch.testing.assert_close(getattr(own, name), getattr(expected, name), atol=1e-6, rtol=1e-5)
    learn(seat, batch)
    for _, _, weights in workers:
        np.testing.assert_allclose(weights, flat_weights(seat.network), atol=1e-6, rtol=0)


# ------------------------------------------------------------------------------------------------------ teams in a plan


def plan_of(*matches: Any, **policy: Any) -> Plan:
    """A plan of touchdown with two players per team; each match is its seats, or its whole description."""
    data = {
        "ticks": 1000,
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": 2}}},
        "policies": {"p": {"algorithm": "maddpg", **policy}, "q": {"algorithm": "random"}},
        "matches": [{"env": "game", **(one if isinstance(one, dict) else {"seats": one})} for one in matches],
    }
    if "'q'" not in repr(matches):
        del data["policies"]["q"]
    return make_plan(parse_config(data, source="test.yaml"))


@pytest.mark.parametrize(
    ("matches", "teams"),
    [
        ([["p", "p", "q", "q"]], [(0, 1)]),
        ([["q", "p", "q", "p"]], [(0, 1)]),
        ([[["p", "p"], "q", "q"]], [(0,)]),
        ([{"seats": ["p", "p", "q", "q"], "copies": 2}], [(0, 1), (2, 3)]),
        ([[["p", "p"], "q", "q"], ["q", "q", "p", "p"]], [(0,), (1, 2)]),
        ([[["p", "p"], ["p", "p"]]], [(0,), (1,)]),
        ([["p", "p", "p", "p"]], [(0, 1, 2, 3)]),
        ([{"seats": ["p", "p", "p", "p"], "sides": [[0, 2], [1, 3]]}], [(0, 2), (1, 3)]),
    ],
)
def test_the_workers_of_single_entities_of_a_match_are_a_team(matches: Any, teams: Any) -> None:
    plan = plan_of(*matches)
    assert list(plan.teams["p"]) == teams


@both
def test_sizes_count_joint_transitions_in_any_seating(kind: Any) -> None:
    def sizes(*seats: Any) -> dict[str, int]:
        plan = plan_of(*({"seats": list(match), "copies": 2, "lanes": 4} for match in seats))
        learners = learners_of(kind, plan, plan.policies["p"])
        assert {learner.rows for learner in learners} == {4}
        options = {"learning_starts": 100, "batch_size": 32, "training_intensity": 8, "log_every": 50}
        return kind.sizes(options, rows=learners[0].rows, ticks=plan.ticks, workers=len(learners))

    together_seated = sizes([["p", "p"], "q", "q"])
    assert sizes(["p", "p", "q", "q"]) == together_seated
    assert together_seated == {
        "samples per gradient step": 32 * 2,
        "gradient steps per run": 8 * (1000 * 4 * 2 - 100) // (32 * 2),
        "lines of metrics per run": 20,
    }


@pytest.mark.parametrize("kind", [MADDPG, MASAC, MAPPO, VDN, QMIX])
def test_teams_of_one_or_of_unequal_sizes_are_refused(kind: Any) -> None:
    for seats, message in [
        (["p", "q", "q", "q"], r"here the team has one; .* seats: \[blue, blue, red\] or \[\[blue, blue\], red\]"),
        ([["p", "p"], "p", "q"], r"here the team has one"),
    ]:
        plan = plan_of(seats)
        with pytest.raises(ConfigError, match=message) as caught:
            check_teams(kind, plan, plan.policies["p"])
        assert caught.value.path.startswith("matches[0].seats[")
    plan = plan_of(["p", "p", "q", "q"], ["p", "p", "p", "q"])
    with pytest.raises(ConfigError, match="the team has 3 entities, the policy's first one has 2") as caught:
        check_teams(kind, plan, plan.policies["p"])
    assert caught.value.path == "matches[1].seats[0]"


@pytest.mark.parametrize("kind", [MADDPG, MAPPO])
def test_team_with_pooled_samples_needs_a_barrier(kind: Any) -> None:
    without = {"sync": "samples", "max_lag": 2}
    plan = plan_of(["p", "p", "q", "q"], **without)
    with pytest.raises(ConfigError, match="set max_lag: 0, or give the team one seat") as caught:
        check_teams(kind, plan, plan.policies["p"])
    assert caught.value.path == "policies.p.max_lag"
    for seats, policy in itertools.product([["p", "p", "q", "q"], [["p", "p"], "q", "q"]], [{}, without]):
        plan = plan_of(seats, **policy)
        if seats[0] != "p" or not policy:
            check_teams(kind, plan, plan.policies["p"])
    check_teams(PPO, plan_of(["p", "p", "q", "q"], **without), plan.policies["p"])
