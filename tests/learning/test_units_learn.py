"""Small games with units whose best returns are known: relative places, hidden units, masks, rows without units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arena.errors import BudgetReached
from arena.registry import adapt_environment
from fakes import solo_group
from policies.networks.units.options import Relative, Transformer
from policies.ppo import PPO
from unit_games import Lanes

pytestmark = [pytest.mark.slow, pytest.mark.long]

LANES = 32
USUAL = {
    "n_steps": 16,
    "learning_rate": 2e-3,
    "learning_rate_schedule": "linear",
    "minibatch_size": 128,
    "n_epochs": 4,
    "ent_coef": 0.01,
}
SHORT = {**USUAL, "n_steps": 8, "learning_rate": 3e-3, "minibatch_size": 64}
PLACES = Transformer(relative=Relative(position=("x", "y"), extent=(1, 1)))


def learned(samples: int, seed: int, options: dict[str, Any], **kwargs: Any) -> tuple[float, PPO]:
    """The mean return of greedy play after so many samples, and the worker."""
    env = Lanes(adapt_environment("unit_task", kwargs, LANES), ticks=samples // LANES, seed=1000 * seed)
    ppo = PPO(env, solo_group(seed=seed), ticks=samples // LANES, **options)
    with pytest.raises(BudgetReached):
        ppo.run()
    act, other = ppo.actor(greedy=True), Lanes(adapt_environment("unit_task", kwargs, LANES), seed=50_000 + seed)
    observations, infos = other.reset()
    while len(other.returns) < 1000:
        observations, *_, infos = other.step(act(observations, infos))
    return float(np.mean(other.returns)), ppo


SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


@SEEDS
def test_relative_places_find_the_high_ground_anywhere(seed: int) -> None:
    assert learned(10_240, seed, {**USUAL, "transformer": PLACES}, task="floor_is_lava")[0] >= 0.95


def test_without_relative_places_the_high_ground_is_not_found() -> None:
    assert learned(10_240, 0, USUAL, task="floor_is_lava")[0] <= 0.3


@SEEDS
def test_a_hidden_throw_is_known_to_the_value_alone(seed: int) -> None:
    mean, ppo = learned(8_192, seed, USUAL, task="rock_paper_scissors")
    assert 0.8 <= mean <= 1.2
    assert np.mean([logged["explained_variance"] for logged in ppo.group.logged[-3:]]) >= 0.8


@SEEDS
def test_a_throw_that_is_shown_is_beaten(seed: int) -> None:
    assert learned(8_192, seed, USUAL, task="rock_paper_scissors", cheat=True)[0] >= 1.9


@SEEDS
def test_units_are_counted_under_a_mask(seed: int) -> None:
    assert learned(8_192, seed, SHORT, task="count", masked_choices=2)[0] >= 0.99


@SEEDS
def test_a_game_without_units_is_learned(seed: int) -> None:
    assert learned(8_192, seed, SHORT, task="armed_bandit")[0] >= 0.95
