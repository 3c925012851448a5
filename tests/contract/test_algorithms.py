"""What every learning algorithm of the registry satisfies: state, groups, failures, masks, options, sizes.

A new algorithm is tested here as soon as it is in the registry. Tests of single algorithms are in `tests/unit`.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from arena import registry
from arena.errors import BudgetReached, ConfigError
from arena.game.spaces import flatten
from arena.records.state_codec import decode, encode
from fakes import ScriptedEnv, ThreadGroup, all_equal, flat_weights, hide_idle_rows, solo_group, together
from gpu import needs_cuda
from policies import td3
from policies.common.algorithm import Algorithm
from policies.common.average import Decisions, Reservoir
from policies.common.options import Curve, value_at
from policies.common.replay import Replay, Transitions
from policies.common.sequences import SequenceReplay, Sequences
from policies.networks import reparameterized
from recorded_samples import record

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = {"choices": spaces.Discrete(4), "numbers": spaces.Box(-0.5, 2.0, (2,), np.float32)}
ACTIONS["parts"] = spaces.Dict(
    at=ACTIONS["numbers"], of=spaces.Tuple((spaces.MultiDiscrete([2, 3]), ACTIONS["choices"]))
)
ENTITIES = ("first", "second")  # of the seat
SMALL: dict[str, Any] = {
    **{"hidden_sizes": (8,), "check_every": 1, "log_every": 4},
    **{"n_steps": 6, "minibatch_size": 9, "n_epochs": 2, "option_ticks": 3},
    **{"train_every": 4, "learning_starts": 20, "batch_size": 8, "training_intensity": 2.0, "n_step": 1},
    "gradient_steps": 3,
}
FULL: dict[str, Any] = {
    **{"minibatch_size": 999, "n_steps": 12, "n_epochs": 3, "option_ticks": 3, "hidden_sizes": (8,)},
    **{"train_every": 12, "learning_starts": 0, "batch_size": 200, "training_intensity": 40.0},
    **{"learning_rate": 2e-3, "learning_rate_schedule": "constant", "reservoir_size": 999},
}
RICH: dict[str, Any] = {
    **{"learning_rate_schedule": "linear", "normalize_observations": True, "normalize_rewards": True},
    **{"target_kl": 0.002, "max_grad_norm": 0.5},
    **{"prioritized": True, "n_step": 2, "tau": 0.5, "target_update_interval": 3},
}
FOLLOWED: dict[str, Any] = {  # schedules
    "batch_mode": "complete_episodes",
    "learning_rate": Curve(start=2e-3, end=1e-3, shape="cosine", until=0.5),
    **{"ent_coef": ((0.0, 0.3), (0.6, 0.1)), "epsilon": ((0.2, 1.0), (0.4, 0.1))},
    "noise_std": Curve(start=0.5, end=0.0),
}


MEMORY: dict[str, Any] = {"hidden_size": 6, "sequence_length": 4, "burn_in": 3}

DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


OWN_PARTS = {"encoder": "own_parts:Net", "extra_loss": {"class": "own_parts:Decay", "options": {"by": 0.01}}}


class Case(NamedTuple):
    """An algorithm, the actions that it plays, and its kind of memory."""

    name: str
    actions: str
    recurrent: str | None = None  # with a memory, and parts of a user's own
    average: str = ""  # "average": with the average policy of its best responses

    def __str__(self) -> str:
        return "-".join(filter(None, self))


def options_of(name: str) -> tuple[str, ...]:
    return registry.option_parameters(registry.algorithm(name)).names


def accepts(name: str, space: spaces.Space[Any]) -> bool:
    try:
        registry.algorithm(name).check_actions(space)
    except ConfigError:
        return False
    return True


NAMES = [
    name
    for name, entry in registry.ALGORITHMS.items()
    if not entry.package and issubclass(registry.algorithm(name), Algorithm)
]
CASES = [Case(name, actions) for name in NAMES for actions, space in ACTIONS.items() if accepts(name, space)]
CASES += [
    case._replace(recurrent=kind)
    for case, kind in zip(CASES, itertools.cycle(["lstm", "gru"]))
    if "recurrent" in {*options_of(case.name)} - {*registry.algorithm(case.name).Options.REFUSED}
]
CASES += [
    Case(name, "choices", average="average")
    for name in NAMES
    if "average" in {*options_of(name)} - {*registry.algorithm(name).Options.REFUSED}
]
WITH_REWARDS = [case for case in CASES if "data" not in options_of(case.name)]  # others learn from recorded samples
WITH_MASKS = [case for case in CASES if case.actions == "choices"]


def params(cases: list[Case]) -> list[Any]:
    """Parameters; of an algorithm with two cases the second one is slow, so that `make test-fast` has one of each."""
    seen: set[str] = set()
    found = []
    for case in cases:
        found.append(pytest.param(case, id=str(case), marks=[pytest.mark.slow] if case.name in seen else []))
        seen.add(case.name)
    return found


class Learner:
    """Makes and trains workers of one algorithm.

    Args:
        case: the algorithm and its actions.
        folder: for recorded samples.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self.cls, self.actions, self.folder = registry.algorithm(case.name), ACTIONS[case.actions], folder
        self.known, self.recurrent = options_of(case.name), case.recurrent
        self.average = bool(case.average)
        self.data = self.record("samples", ticks=50, lanes=4) if "data" in self.known else ""

    def record(self, name: str, *, ticks: int, lanes: int) -> str:
        """The path of recorded samples with random actions."""
        drawn = batch_space(self.actions, lanes)
        drawn.seed(1)
        return str(
            record(
                self.folder / name,
                VECTOR,
                self.actions,
                lambda _: drawn.sample(),
                ticks=ticks,
                lanes=lanes,
                length=min(ticks, 5),
            )
        )

    def options(self, **more: Any) -> dict[str, Any]:
        """Small values, and those given, of the options that the algorithm has."""
        memory = {"recurrent": self.recurrent, **MEMORY, **OWN_PARTS} if self.recurrent else {}
        given = {**SMALL, "data": self.data, **memory, **more}
        if self.average:  # some decisions are forgotten
            sizes = {"anticipatory": 0.7, "reservoir_size": 50}
            given = {"average": True, **sizes, **given, "normalize_observations": False}
        else:
            given.pop("reservoir_size", None)
        if isinstance(self.actions, spaces.Discrete):
            given.pop("noise_std", None)  # of numbers alone
        refused = self.cls.Options.REFUSED
        return {name: value for name, value in given.items() if name in self.known and name not in refused}

    def env(self, *, lanes: int = 2, ticks: int = 30, seed: int = 0, **more: Any) -> ScriptedEnv:
        rng = np.random.default_rng(seed)
        more.setdefault("reward", lambda observations, actions: rng.normal(size=len(observations)))
        env = ScriptedEnv(VECTOR, self.actions, rows=lanes * len(ENTITIES), ticks=ticks, seed=seed, **more)
        env.seat_entities = ENTITIES  # type: ignore[attr-defined]
        return env

    def make(self, env: ScriptedEnv, group: ThreadGroup | None = None, *, ticks: int = 0, **options: Any) -> Any:
        """A worker of a run of `ticks`; 0: of those of its environment."""
        return self.cls(env, group or solo_group(), ticks=ticks or env.ticks, **self.options(**options))

    def train(self, env: ScriptedEnv, group: ThreadGroup | None = None, **options: Any) -> Any:
        """A worker after its whole run."""
        algorithm = self.make(env, group, **options)
        run(algorithm)
        return algorithm


@pytest.fixture(scope="module", params=params(CASES))
def learner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Learner:
    return Learner(request.param, tmp_path_factory.mktemp(request.param.name))


def run(algorithm: Any) -> None:
    with pytest.raises(BudgetReached):
        algorithm.run()


def unequal_env(learner: Learner, group: ThreadGroup, **more: Any) -> ScriptedEnv:
    """1, 2, ... lanes with other observations for each worker."""
    return learner.env(lanes=1 + group.rank, seed=group.rank, **more)


def all_idle(rows: int) -> Any:
    """No row ever acts."""
    return lambda tick: np.zeros(rows, np.bool_)


# -------------------------------------------------------------------------------------------------------------- state


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "more", [pytest.param({}, marks=pytest.mark.long), RICH, FOLLOWED], ids=["plain", "rich", "scheduled"]
)
def test_stored_state_continues_to_the_same_bits(learner: Learner, more: dict[str, Any], device: str) -> None:
    def continued(algorithm: Any) -> Any:
        for generator in vars(algorithm).values():  # each leg of a run has new random streams
            if isinstance(generator, torch.Generator):
                generator.manual_seed(7)
        algorithm.env = learner.env(ticks=19, seed=5)
        run(algorithm)
        return algorithm.state_dict(), algorithm.worker_state_dict(), flat_weights(algorithm.network)

    first, second = (learner.make(learner.env(ticks=33), ticks=99, device=device, **more) for _ in range(2))
    run(first)  # the leg ends within a rollout, and between two updates
    stored, own = first.state_dict(), first.worker_state_dict()
    assert not all_equal(second.state_dict(), stored)
    second.load_state_dict(decode(*encode(stored)))
    second.load_worker_state_dict(decode(*encode(own)))
    first.load_worker_state_dict(own)
    assert all_equal(second.state_dict(), stored)
    assert all_equal(second.worker_state_dict(), own)
    before = flat_weights(first.network)
    after = continued(first)
    assert all_equal(continued(second), after)
    assert not np.array_equal(before, after[-1])


def test_options_follow_their_schedules(learner: Learner) -> None:
    algorithm = learner.train(learner.env(ticks=64), **FOLLOWED, log_every=1)
    logged = algorithm.group.logged
    assert len(logged) > 1
    for name in {*FOLLOWED} & {*learner.options(**FOLLOWED)} - {"batch_mode"}:
        values = [line[name] for line in logged]
        assert values[0] > values[-1] >= value_at(FOLLOWED[name], 1.0)
        assert {*values} <= {value_at(FOLLOWED[name], tick / 64) for tick in range(65)}


def test_same_seed_gives_same_weights_without_global_generators(learner: Learner) -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    one, same, other = (flat_weights(learner.train(learner.env(), solo_group(seed=seed)).network) for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert torch.equal(torch_before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])


def test_actor_has_no_side_effects_and_is_random_unless_greedy(learner: Learner) -> None:
    algorithm = learner.make(learner.env(lanes=20), exploration_final_eps=1.0)
    observations, infos = algorithm.env.reset()
    infos["_final_obs"] = np.ones(len(observations), np.bool_)  # each time an episode begins, with an empty memory
    before = algorithm.state_dict()
    streams = [one.get_state() for one in vars(algorithm).values() if isinstance(one, torch.Generator)]
    begins = {"active": infos["active"], "_final_obs": np.ones(len(infos["active"]), np.bool_)}  # nothing is remembered
    actors = algorithm.actor(greedy=True), algorithm.actor()

    def played(act: Any) -> bytes:
        return b"".join(
            part.tobytes() for part in flatten(algorithm.env.single_action_space, act(observations, begins))
        )

    greedy, drawn = ({played(act) for _ in range(5)} for act in actors)
    assert len(greedy) == 1
    assert len(drawn) == (1 if getattr(algorithm, "plays_mean", False) else 5)
    assert all_equal(before, algorithm.state_dict())
    now = [one.get_state() for one in vars(algorithm).values() if isinstance(one, torch.Generator)]
    assert all(map(torch.equal, streams, now))


@needs_cuda
def test_gpu_learns_what_the_cpu_learns_and_both_play_the_same(learner: Learner) -> None:
    on_cpu, on_gpu = (learner.train(learner.env(ticks=12), device=device, **FULL) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(flat_weights(on_gpu.network), flat_weights(on_cpu.network), atol=1e-4, rtol=0)
    on_cpu.load_state_dict(decode(*encode(on_gpu.state_dict())))
    assert np.array_equal(flat_weights(on_gpu.network), flat_weights(on_cpu.network))
    observations = learner.env().observation_space.sample()
    for greedy in (True, False):
        by_cpu, by_gpu = (one.actor(greedy=greedy)(observations, {}) for one in (on_cpu, on_gpu))
        np.testing.assert_allclose(by_gpu, by_cpu, atol=1e-4, rtol=0)


# ------------------------------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sync", ["gradients", "samples"])
@pytest.mark.parametrize("more", [RICH, FOLLOWED], ids=["rich", "scheduled"])
def test_workers_with_unequal_rows_hold_equal_weights(
    learner: Learner, more: dict[str, Any], sync: str, device: str
) -> None:
    """The last worker has the most rows, and never acts."""

    def work(group: ThreadGroup) -> Any:
        active = all_idle(3 * len(ENTITIES)) if group.rank == 2 else None
        algorithm = learner.make(unequal_env(learner, group, active=active), group, device=device, **more)
        before = flat_weights(algorithm.network)
        run(algorithm)
        return before, flat_weights(algorithm.network), group.called, len(group.logged)

    (before, after, *others), *rest = together(3, work, sync=sync)
    assert not np.array_equal(before, after)
    for _, weights, *same in rest:
        assert np.array_equal(weights, after)
        assert same == others
    assert "check_equal" in others[0]


def test_gradients_and_samples_of_one_full_batch_give_the_same_weights(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `sync: samples` rank 0 steps as one worker on the samples of all; the mean gradient must be the same."""

    def same_noise(shape: Any, generator: Any) -> torch.Tensor:
        return torch.linspace(-0.8, 1.1, shape[-1]).repeat(*shape[:-1], 1)

    def all_transitions(replay: Replay, *_: Any, **__: Any) -> Transitions:
        return replay._at(torch.from_numpy(np.flatnonzero(replay._complete)), torch.ones(replay.size))

    for module, name in (
        (td3, "normal"),
        (reparameterized, "normal"),
        (reparameterized, "gumbel"),
    ):
        monkeypatch.setattr(module, name, same_noise)

    def all_sequences(replay: SequenceReplay, *_: Any, **__: Any) -> Sequences:
        origins = np.flatnonzero(replay._sequences.leaves)
        return replay._sequences_at(origins, torch.ones(len(origins)), replay.size)

    monkeypatch.setattr(Replay, "sample", all_transitions)
    monkeypatch.setattr(SequenceReplay, "sample", all_sequences)

    def all_decisions(reservoir: Reservoir, *_: Any) -> Decisions:
        return reservoir.at(torch.arange(reservoir.seen))

    monkeypatch.setattr(Reservoir, "sample", all_decisions)

    def work(group: ThreadGroup) -> Any:
        algorithm = learner.make(unequal_env(learner, group, ticks=12), group, **FULL)
        before, backward, steps = flat_weights(algorithm.network), algorithm.backward, []

        def counted(batch: Any) -> Any:
            steps.append(batch.size)
            return backward(batch)

        algorithm.backward = counted
        run(algorithm)
        return before, flat_weights(algorithm.network), len(steps), group.called.count("average")

    by_gradients, by_samples = (together(2, work, sync=sync) for sync in ("gradients", "samples"))
    before, expected, steps, _ = by_samples[0]
    assert steps > 0
    assert np.abs(expected - before).max() > 1e-3
    for _, weights, made, exchanges in by_gradients:
        assert made == steps
        assert exchanges == steps * (1 + learner.average)  # all networks of a learner in one exchange
        np.testing.assert_allclose(weights, expected, atol=2e-6, rtol=0)


def test_worker_without_transitions_takes_part_and_weighs_nothing(learner: Learner) -> None:
    single = learner.record("single", ticks=1, lanes=1)  # the share of the second worker is empty

    def work(group: ThreadGroup) -> Any:
        active = all_idle(2 * len(ENTITIES)) if group.rank == 1 else None
        env = unequal_env(learner, group, active=active)
        return flat_weights(learner.train(env, group, data=single, reservoir_size=999).network)

    busy, idle = together(2, work)
    alone = learner.train(unequal_env(learner, solo_group()), data=single, reservoir_size=999)
    assert np.array_equal(busy, idle)
    np.testing.assert_allclose(busy, flat_weights(alone.network), atol=2e-6, rtol=0)


@pytest.mark.parametrize("learner", params(WITH_REWARDS), indirect=True)
def test_observations_of_rows_that_wait_have_no_effect(learner: Learner) -> None:
    found = []
    for value in (0.0, 9.0):
        env = learner.env(ticks=24, active=lambda tick: (np.arange(4) + tick) % 2 == 0)
        algorithm = learner.make(hide_idle_rows(env, value), prioritized=True, n_step=2, normalize_observations=True)
        before = flat_weights(algorithm.network)
        run(algorithm)
        found.append(flat_weights(algorithm.network))
    np.testing.assert_allclose(*found, atol=1e-6, rtol=0)
    assert not np.array_equal(before, found[0])


@pytest.mark.parametrize("sync", ["gradients", "samples"])
@pytest.mark.parametrize("learner", params(WITH_REWARDS), indirect=True)
def test_nothing_is_learned_if_no_row_ever_acts(learner: Learner, sync: str) -> None:
    algorithm = learner.make(learner.env(active=all_idle(2 * len(ENTITIES))), solo_group(sync=sync))
    before = flat_weights(algorithm.network)
    run(algorithm)
    assert np.array_equal(flat_weights(algorithm.network), before)


# ----------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("reward", [np.nan, np.inf, 1e39], ids=["nan", "infinite", "not a float32"])
@pytest.mark.parametrize("learner", params(WITH_REWARDS), indirect=True)
def test_non_finite_reward_stops_before_the_update(learner: Learner, reward: float) -> None:
    algorithm = learner.make(learner.env(reward=lambda observations, actions: np.full(len(observations), reward)))
    before = flat_weights(algorithm.network)
    with pytest.raises(FloatingPointError, match="policy 'blue'"):
        algorithm.run()
    assert np.array_equal(flat_weights(algorithm.network), before)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_non_finite_loss_or_gradient_stops_all_workers(learner: Learner, what: str) -> None:
    """The loss or gradient of one worker is made non-finite."""

    def work(group: ThreadGroup) -> Any:
        algorithm = learner.make(unequal_env(learner, group), group)
        before, backward = flat_weights(algorithm.network), algorithm.backward

        def spoiled(batch: Any) -> Any:
            found = backward(batch)
            if what == "gradient":
                next(weight for weight in algorithm.network.parameters() if weight.grad is not None).grad.fill_(np.inf)
                return found
            return (found[0] * np.nan, *found[1:]) if isinstance(found, tuple) else found * np.nan

        if group.rank == 1:
            algorithm.backward = spoiled
        with pytest.raises(FloatingPointError, match=r"policy 'blue': (update|gradient step) 1 measured"):
            algorithm.run()
        return np.array_equal(flat_weights(algorithm.network), before)

    assert together(2, work) == [True, True]


def test_states_that_do_not_fit_are_refused(learner: Learner) -> None:
    algorithm = learner.make(learner.env())
    for part in algorithm.state_dict():
        state = algorithm.state_dict()
        del state[part]
        with pytest.raises(ConfigError, match=rf"no state of {learner.cls.__name__}: it has .*; expected network"):
            algorithm.load_state_dict(state)
    other = learner.make(learner.env(), hidden_sizes=(9,))
    with pytest.raises(ConfigError, match="do not fit this network"):
        algorithm.load_state_dict(other.state_dict())


@pytest.mark.parametrize("learner", params(WITH_REWARDS), indirect=True)
def test_an_environment_that_resets_on_the_next_step_is_refused(learner: Learner) -> None:
    env = learner.env()
    env.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ConfigError, match="resets on the same step"):
        learner.make(env).run()


# -------------------------------------------------------------------------------------------------- masks and options


@pytest.mark.parametrize("learner", params(WITH_MASKS), indirect=True)
def test_forbidden_action_is_never_taken(learner: Learner) -> None:
    allowed = np.array([[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 1, 1], [1, 0, 0, 0]], np.int8)

    def masks(tick: int) -> Any:
        return np.roll(allowed, tick, axis=1)

    env = learner.env(ticks=60, masks=masks)
    algorithm = learner.train(env)
    assert len(env.actions) == 60
    for tick, actions in enumerate(env.actions):
        assert masks(tick)[np.arange(4), actions].all()
    observations = env.observation_space.sample()
    for act in (algorithm.actor(), algorithm.actor(greedy=True)):
        for tick in range(12):
            assert masks(tick)[np.arange(4), act(observations, {"action_mask": masks(tick)})].all()


@pytest.mark.parametrize("name", NAMES)
def test_unknown_option_is_refused_with_the_nearest_one(name: str) -> None:
    with pytest.raises(ConfigError, match=r"no option 'learning_rat'; did you mean 'learning_rate'") as caught:
        registry.configured_algorithm(name, {"learning_rat": 0.1}, acts=False, path="policies.blue")
    assert caught.value.path == "policies.blue.options.learning_rat"


def test_sizes_equal_the_counts_of_a_run(learner: Learner) -> None:
    options = {"learning_starts": 40, "batch_size": 24, **({"anticipatory": 1.0} if learner.average else {})}

    def work(group: ThreadGroup) -> Any:
        algorithm = learner.make(learner.env(ticks=48, seed=group.rank), group, **options)
        backward, batches = algorithm.backward, []

        def counted(batch: Any) -> Any:
            batches.append(batch.size)
            return backward(batch)

        algorithm.backward = counted
        run(algorithm)
        return batches, len(group.logged), getattr(algorithm.options, "n_epochs", 1)

    (first, lines, epochs), (second, *_) = together(2, work)
    steps = [mine + yours for mine, yours in zip(first, second, strict=True)]
    done = {
        "samples per update": sum(steps) / epochs / lines,
        "samples per gradient step": max(steps),
        "updates per run": lines,
        "gradient steps per update": len(steps) / lines,
        "gradient steps per run": len(steps),
        "lines of metrics per run": lines,
    }
    rows = 2 if getattr(learner.cls, "learner", "") == "team" else 2 * len(ENTITIES)  # a team has one per lane
    said = learner.cls.sizes(learner.options(**options), rows=rows, ticks=48, workers=2)
    assert said
    assert said == {name: done[name] for name in said}
