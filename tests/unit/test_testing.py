"""The conformance check detects each documented breach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from gymnasium.spaces import Sequence as ItemSequence

import crowd
from arena import Ragged
from arena.game.api import BatchedEnv, Frame, Interface, Step
from arena.testing import ContractBroken, check_batched_env

ACTIONS = MultiDiscrete([3, 2], start=[0, 5])


class Countdown:
    """A valid game, modified by the tests: two entities; the first ends after two ticks, the second after three."""

    def __init__(self, lanes: int = 2, sight: Space[Any] | None = None) -> None:
        self.lanes = lanes
        spaces = (sight or Box(0, 9, (1,), np.float32),) * 2
        self.interface = Interface(("one", "other"), spaces, (Discrete(3, start=1), ACTIONS), (3, 5))
        self.left = np.zeros((lanes, 2), int)

    def observations(self) -> list[Any]:
        return list(self.left.T[..., None].astype(np.float32))

    def frame(self) -> Frame:
        masks = [np.tile(np.array(mask, np.int8), (self.lanes, 1)) for mask in ([0, 1, 1], [1, 0, 0, 0, 1])]
        return Frame(self.observations(), self.left > 0, masks)

    def reset(self, lanes: Any, seeds: Any = None, options: Any = None) -> Frame:
        self.left[lanes] = (2, 3)
        return self.frame()

    def step(self, actions: Sequence[Any]) -> Step:
        live = self.left > 0
        assert all(action != 1 for action in actions[0][live[:, 0]])  # the mask forbids it
        assert (actions[1][live[:, 1]] == (0, 6)).all()  # nothing else is allowed
        self.left -= live
        ended = live & (self.left == 0)
        return Step(self.frame(), live.astype(float), ended, np.zeros_like(ended))

    def render(self) -> Any:
        return np.zeros((4, 4, 3), np.uint8)

    def close(self) -> None: ...


class RaggedCountdown(Countdown):
    """Observes as many ones as there are ticks left."""

    def __init__(self) -> None:
        super().__init__(sight=ItemSequence(Box(0, 9, (1,), np.float32), stack=True))

    def observations(self) -> list[Any]:
        return [Ragged(np.ones((left.sum(), 1), np.float32), left) for left in self.left.T]


def test_a_right_game_passes() -> None:
    check_batched_env(Countdown(), ticks=20)


def changed(**parts: Callable[[Step], Any]) -> Callable[[Step], Step]:
    return lambda step: step._replace(**{name: part(step) for name, part in parts.items()})


def framed(**parts: Callable[[Frame], Any]) -> Callable[[Step], Step]:
    return lambda step: step._replace(
        frame=step.frame._replace(**{name: part(step.frame) for name, part in parts.items()})
    )


BREACHES: dict[str, Callable[[Step], Step]] = {
    "expected an array float64": changed(rewards=lambda step: step.rewards.astype(np.float32)),
    "step.terminated is": changed(terminated=lambda step: step.terminated[0]),
    "must be finite": changed(rewards=lambda step: step.rewards * np.nan),
    "numbers that float32 holds": changed(rewards=lambda step: step.rewards + 1e300),
    "had ended got a reward": changed(rewards=lambda step: step.rewards + 1),
    "ended twice": changed(terminated=lambda step: ~step.frame.active),
    "has ended is active": framed(active=lambda frame: np.ones_like(frame.active)),
    "no entity is active": framed(active=lambda frame: np.zeros_like(frame.active)),
    "observations has 1 items": framed(observations=lambda frame: frame.observations[:1]),
    r"observations is int64\(2, 1\)": framed(observations=lambda frame: [o.astype(int) for o in frame.observations]),
    "it must lie in Box": framed(observations=lambda frame: [o + 100 for o in frame.observations]),
    "None, and 0, or neither": framed(masks=lambda frame: [None, None]),
    "items are 0": framed(masks=lambda frame: [mask * 2 for mask in frame.masks]),
    "needs an allowed action": framed(masks=lambda frame: [mask * 0 for mask in frame.masks]),
    "final mask": framed(final_masks=lambda frame: [mask * 2 for mask in frame.masks]),
    "infos have the sizes": framed(infos=lambda frame: [[{}]] * 2),
    "a mask is in an info": framed(infos=lambda frame: [[{"action_mask": 1}] * 2] * 2),
}


@pytest.mark.parametrize("message", BREACHES)
def test_a_breach_in_a_step_is_named(message: str) -> None:
    class Broken(Countdown):
        def step(self, actions: Sequence[Any]) -> Step:
            return BREACHES[message](super().step(actions))

    with pytest.raises(ContractBroken, match=message):
        check_batched_env(Broken(), ticks=20)


def test_unseeded_randomness_is_detected() -> None:
    class Unseeded(Countdown):
        def step(self, actions: Sequence[Any]) -> Step:
            step = super().step(actions)
            return step._replace(rewards=step.rewards * np.random.default_rng().random())

    with pytest.raises(ContractBroken, match="another game the second time"):
        check_batched_env(Unseeded(), ticks=20)
    check_batched_env(Unseeded(), ticks=20, repeatable=False)


def test_game_that_cannot_take_every_seed_of_a_run_fails() -> None:
    class Short(Countdown):
        def reset(self, lanes: Any, seeds: Any = None, options: Any = None) -> Frame:
            np.array([0 if seed is None else seed for seed in seeds or ()], np.int32)
            return super().reset(lanes, seeds, options)

    with pytest.raises(ContractBroken, match=r"fails with the seed 4294967295: OverflowError.*seed % 2\*\*31"):
        check_batched_env(Short(), ticks=20)


def test_two_given_objects_are_compared() -> None:
    class Remembers(Countdown):
        """Pays more after the first reset of all lanes."""

        resets = 0

        def reset(self, lanes: Any, seeds: Any = None, options: Any = None) -> Frame:
            self.resets += bool(lanes.all() and seeds)
            return super().reset(lanes, seeds, options)

        def step(self, actions: Sequence[Any]) -> Step:
            step = super().step(actions)
            return step._replace(rewards=step.rewards * self.resets)

    with pytest.raises(ContractBroken, match="another game the second time"):
        check_batched_env(Remembers(), ticks=20)
    check_batched_env(Remembers(), ticks=20, again=Remembers())


def test_tolerable_findings_are_reported_and_others_raised() -> None:
    class Weak(Countdown):
        def step(self, actions: Sequence[Any]) -> Step:
            step = super().step(actions)
            return step._replace(rewards=step.rewards * np.random.default_rng().random())

        def render(self) -> Any:
            raise OSError("no screen")

    class Broken(Weak):
        def step(self, actions: Sequence[Any]) -> Step:
            return super().step(actions)._replace(rewards=np.full((2, 2), np.nan))

    told: list[str] = []
    check_batched_env(Weak(), ticks=20, tolerate=told.append)
    assert ["another game the second time" in told[0], "render() raised OSError: no screen" in told[1]] == [True] * 2
    assert ["replays" in told[0], "pictures" in told[1]] == [True] * 2
    with pytest.raises(ContractBroken, match=r"render\(\) raised OSError: no screen"):
        check_batched_env(Weak(), ticks=20, repeatable=False)
    with pytest.raises(ContractBroken, match="must be finite"):
        check_batched_env(Broken(), ticks=20, tolerate=told.append)
    assert len(told) == 2


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("entities", ("one", "one"), "each with its own name"),
        ("action_spaces", (Discrete(3),), "interface.action_spaces has 1 items"),
        ("mask_sizes", (3, 4), "other: mask_size is 4"),
    ],
)
def test_a_breach_in_the_interface_is_named(field: str, value: Any, message: str) -> None:
    env = Countdown()
    env.interface = Interface(**{**vars(env.interface), field: value})
    with pytest.raises(ContractBroken, match=message):
        check_batched_env(env)


def test_object_that_is_no_batched_env_is_refused() -> None:
    with pytest.raises(ContractBroken, match="int is no BatchedEnv"):
        check_batched_env(3)  # type: ignore[arg-type]


def test_picture_has_three_channels() -> None:
    class Flat(Countdown):
        def render(self) -> Any:
            return np.zeros((4, 4), np.uint8)

    with pytest.raises(ContractBroken, match=r"render\(\) gave uint8\(4, 4\)"):
        check_batched_env(Flat(), ticks=20)


def test_observations_of_any_length_are_ragged() -> None:
    assert isinstance(RaggedCountdown(), BatchedEnv)
    check_batched_env(RaggedCountdown(), ticks=20)

    class Listed(RaggedCountdown):
        def observations(self) -> list[Any]:
            return [list(column) for column in super().observations()]

    class Wide(RaggedCountdown):
        def observations(self) -> list[Any]:
            return [Ragged(column.values.astype(float), column.lengths) for column in super().observations()]

    class Short(RaggedCountdown):
        def observations(self) -> list[Any]:
            return [column[:1] for column in super().observations()]

    for wrong, message in ((Listed, "expected a Ragged"), (Wide, "expected an array float32"), (Short, "has 1 rows")):
        with pytest.raises(ContractBroken, match=message):
            check_batched_env(wrong(), ticks=20)


def test_games_with_units_are_played_with_allowed_choices() -> None:
    check_batched_env(crowd.Crowd(2, alone=True), ticks=4)
    check_batched_env(crowd.Crowd(2, turns=True), ticks=4)

    class Hidden(crowd.Crowd):
        def _frame(self) -> Frame:
            frame = super()._frame()
            walk = frame.observations[0]["actions"]["walk"]
            walk["actors"] = Ragged(walk["actors"].values + 100, walk["actors"].lengths)
            return frame

    with pytest.raises(ContractBroken, match=r"'p0': lane \d: action 'walk': actor \d+ is no unit"):
        check_batched_env(Hidden(2), ticks=4)
