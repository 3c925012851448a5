"""Advice of a policy on a player's choices: its probabilities, decision by decision."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from arena import Choice, Select, UnitSpace
from arena.cli.play.decisions import decisions, joined
from arena.cli.play.human import Advisor, configured
from arena.errors import ConfigError
from arena.game.spaces import stack

SPACE = UnitSpace(
    {"Robot": ["x"], "Mine": ["x"]},
    actions={"Move": Choice(["left", "right", "stay"]), "Fire": Select(masked=True)},
)
SEEN: dict[str, Any] = {
    "units": {"Robot": np.array([[1], [3]], np.float32), "Mine": np.array([[2], [-1]], np.float32)},
    "actions": {
        "Move": {"actors": np.array([1, 0]), "mask": np.array([[1, 0, 1], [1, 1, 1]], np.int8)},
        "Fire": {"actors": np.array([0]), "actees": np.array([2, 3, 1]), "mask": np.array([1, 0, 1], np.int8)},
    },
}


def given(algorithm: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "options": options, "load": None}


@pytest.mark.parametrize(
    ("algorithm", "options"), [("ppo", {"transformer": {"d_model": 8, "layers": 1}}), ("random", {})]
)
@pytest.mark.slow
def test_probabilities_of_decisions_multiply_to_those_of_actions(algorithm: str, options: dict[str, Any]) -> None:
    advisor = Advisor("blue", given(algorithm, **options), SPACE, SPACE.action_space)
    decided = decisions(SPACE, SPACE.action_space, SEEN, None)
    shares = advisor.probabilities(SEEN, None, decided)
    assert [len(share) for share in shares] == [2, 3, 2]
    assert [sum(share) for share in shares] == pytest.approx([1.0] * 3)
    for places in itertools.product(*(range(len(share)) for share in shares)):
        choices = [decision.options[place].choice for decision, place in zip(decided, places, strict=True)]
        action = stack(SPACE.action_space, [joined(SPACE.action_space, decided, choices)])
        whole = np.exp(advisor._algorithm.log_prob(stack(SPACE, [SEEN]), action, None)[0])
        assert np.prod([share[place] for share, place in zip(shares, places, strict=True)]) == pytest.approx(
            whole, rel=1e-4
        )
    assert advisor.value(SEEN) == (0.0 if algorithm == "ppo" else None)  # a transformer's first values are exactly 0


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (given("scripted", action=1), "'blue' tells no probabilities: scripted has no log_prob()"),
        (given("ppo", recurrent="lstm"), "'blue' has a memory"),
    ],
)
def test_policies_that_cannot_advise_are_refused(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"--advice: {message}".replace("(", r"\(").replace(")", r"\)")):
        configured("blue", policy)
