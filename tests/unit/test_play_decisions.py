"""What a player of `arena play` is shown and asked, which answers are choices, and advice of a policy on them."""

from __future__ import annotations

import itertools
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from arena import Choice, GlobalChoice, Select, UnitSpace
from arena.cli.play.decisions import Advice, Turn, check_playable, decisions, joined, lines, tables
from arena.cli.play.human import Advisor, Console, Human
from arena.errors import ConfigError, PlayerLeft
from arena.game.labels import declared_labels
from arena.game.spaces import stack
from policies.random import Random

SPACE = UnitSpace(
    {"Mine": ["x", "y"], "Robot": ["x", "y"], "Orbital Cannon": []},
    global_features=["step"],
    actions={
        "Move": Choice(["+x", "-x", "+y", "-y", "Defuse Mines"]),
        "Fire Orbital Cannon": Select(),
        "Aim": Select(masked=True),
        "Turn": GlobalChoice(["go on", "go home", "stop"], masked=False),
    },
    hidden=["Mine"],
)
SEEN: dict[str, Any] = {
    "globals": np.array([3], np.float32),
    "units": {
        "Mine": np.array([[0, 2], [0.5, 0]], np.float32),
        "Robot": np.array([[1, 1]], np.float32),
        "Orbital Cannon": np.zeros((1, 0), np.float32),
    },
    "visible": {"Mine": np.array([1, 0], np.int8)},
    "actions": {
        "Move": {"actors": np.array([2]), "mask": np.array([[1, 1, 0, 1, 1]], np.int8)},
        "Fire Orbital Cannon": {"actors": np.array([3]), "actees": np.array([0, 2])},
        "Aim": {"actors": np.array([3, 2]), "actees": np.array([2, 0]), "mask": np.array([0, 1, 1, 1], np.int8)},
        "Turn": {"actors": np.array([4])},
    },
}


def asked() -> list[Any]:
    return decisions(SPACE, SPACE.action_space, SEEN, None)


def test_units_are_listed_by_index_and_hidden_ones_are_not() -> None:
    assert lines(tables(SPACE, (), SEEN)) == [
        "globals: step=3",
        "0 Mine: x=0, y=2",
        "2 Robot: x=1, y=1",
        "3 Orbital Cannon",
    ]


def test_questions_list_allowed_choices_in_order() -> None:
    assert [decision.question() for decision in asked()] == [
        "Move of 2 Robot: 0 +x, 1 -x, 3 -y, 4 Defuse Mines",
        "Fire Orbital Cannon of 3 Orbital Cannon at: 0 Mine, 2 Robot",
        "Aim of 3 Orbital Cannon at: 0 Mine",
        "Aim of 2 Robot at: 2 Robot, 0 Mine",
        "Turn: 0 go on, 1 go home, 2 stop",
    ]


@pytest.mark.parametrize(
    ("place", "answer", "choice"),
    [
        (0, "4", 4),
        (0, "def", 4),
        (0, "DEFUSE MINES", 4),
        (0, "+", 0),
        (0, "2", None),  # masked
        (0, "+y", None),
        (0, "9", None),
        (0, "", None),
        (0, "4.0", None),
        (0, "-1", None),
        (1, "2", 1),  # the index that is listed, not its place in the list
        (1, "1", None),
        (1, "Rob", None),
        (2, "0", 1),
        (4, "go", None),  # two labels begin so
        (4, "go h", 1),
        (4, "s", 2),
    ],
)
def test_answers_are_numbers_or_the_beginning_of_one_label(place: int, answer: str, choice: int | None) -> None:
    found = asked()[place].answered(answer)
    assert (None if found is None else found.choice) == choice


def test_choices_of_all_decisions_make_an_action_of_the_space() -> None:
    action = joined(SPACE.action_space, asked(), [4, 1, 1, 0, 2])
    assert {name: numbers.tolist() for name, numbers in action.items()} == {
        "Move": [4], "Fire Orbital Cannon": [1], "Aim": [1, 0], "Turn": [2],
    }  # fmt: skip
    assert action in SPACE.action_space


def test_discrete_and_multi_discrete_actions_count_from_their_start() -> None:
    box = spaces.Box(0, 1, (2,))
    discrete = spaces.Discrete(4, start=5)
    (decision,) = decisions(box, discrete, np.zeros(2), np.array([1, 0, 1, 0], np.int8))
    assert decision.question() == "action: 5, 7"
    assert joined(discrete, [decision], [7]) == 7
    several = spaces.MultiDiscrete(np.array([[2, 3]]), start=np.array([[0, 1]]))
    found = decisions(box, several, np.zeros(2), np.array([0, 1, 1, 1, 0], np.int8))
    assert [decision.question() for decision in found] == ["action 0: 1", "action 1: 1, 2"]
    assert joined(several, found, [1, 2]).tolist() == [[1, 2]]
    assert lines(tables(box, (), np.zeros(2))) == ["observation=[0. 0.]"]


def test_labels_name_choices_keys_and_observations() -> None:
    box, discrete = spaces.Box(0, 1, (2,)), spaces.Discrete(3, start=1)
    metadata = {"actions": ["stay", "left", "up"], "observations": ["x", "y"], "keys": {"a": "left", "left": "left"}}
    (labels,) = declared_labels(metadata, ("a",), (box,), (discrete,))
    (decision,) = decisions(box, discrete, np.zeros(2), np.array([1, 1, 0], np.int8), labels)
    assert decision.question() == "action: 1 stay, 2 left [a]"
    assert [getattr(decision.answered(text), "choice", None) for text in ("a", "le", "S", "2", "u", "left")] == [
        2, 2, 1, 2, None, 2,
    ]  # fmt: skip
    assert lines(tables(box, labels.observations, np.array([0.25, 1 / 3]))) == ["x=0.25, y=0.3333"]
    several = spaces.MultiDiscrete([2, 2])
    (labels,) = declared_labels({"actions": {"fire": ["no", "yes"], "turn": None}}, ("a",), (box,), (several,))
    found = decisions(box, several, np.zeros(2), None, labels)
    assert [one.question() for one in found] == ["fire: 0 no, 1 yes", "turn: 0, 1"]


def test_numbers_of_a_box_are_asked_within_its_bounds() -> None:
    box = spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32))
    found = decisions(box, box, np.zeros(2), None)
    assert [one.question() for one in found] == [
        "action 0: a number from -1 to 1", "action 1: a number from 0 to inf",
    ]  # fmt: skip
    answers = [getattr(found[0].answered(text), "choice", None) for text in ("0.5", "-1", "1.01", "nan", "x", "")]
    assert answers == [0.5, -1.0, None, None, None, None]
    assert found[1].answered("inf") is None
    action = joined(box, found, [0.5, 2.0])
    assert action in box and action.tolist() == [0.5, 2.0]
    (whole,) = decisions(box, spaces.Box(0, 9, (1,), np.int64), np.zeros(2), None)
    assert whole.answered("2.5") is None and getattr(whole.answered("2"), "choice", None) == 2
    bits = spaces.MultiBinary(2)
    assert joined(bits, decisions(box, bits, np.zeros(2), None), [1, 0]) in bits


@pytest.mark.parametrize("space", [spaces.Box(0, 1, (65,)), spaces.MultiBinary(65), spaces.Dict(a=spaces.Discrete(2))])
def test_actions_that_are_no_choices_are_refused(space: Any) -> None:
    with pytest.raises(ConfigError, match="a human can be asked for choices"):
        check_playable(space)


# Advice of a policy on a player's choices: its probabilities, decision by decision


DUEL_SPACE = UnitSpace(
    {"Robot": ["x"], "Mine": ["x"]},
    actions={"Move": Choice(["left", "right", "stay"]), "Fire": Select(masked=True)},
)
DUEL_SEEN: dict[str, Any] = {
    "units": {"Robot": np.array([[1], [3]], np.float32), "Mine": np.array([[2], [-1]], np.float32)},
    "actions": {
        "Move": {"actors": np.array([1, 0]), "mask": np.array([[1, 0, 1], [1, 1, 1]], np.int8)},
        "Fire": {"actors": np.array([0]), "actees": np.array([2, 3, 1]), "mask": np.array([1, 0, 1], np.int8)},
    },
}


def given(algorithm: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "options": options, "load": None, "team": 1}


@pytest.mark.parametrize(
    ("algorithm", "options"), [("ppo", {"transformer": {"d_model": 8, "layers": 1}}), ("random", {})]
)
@pytest.mark.slow
def test_probabilities_of_decisions_multiply_to_those_of_actions(algorithm: str, options: dict[str, Any]) -> None:
    advisor = Advisor("blue", given(algorithm, **options), DUEL_SPACE, DUEL_SPACE.action_space)
    assert not advisor.remembers
    decided = decisions(DUEL_SPACE, DUEL_SPACE.action_space, DUEL_SEEN, None)
    opinion = advisor.advice(DUEL_SEEN, None, decided)
    shares = [share for share in opinion.shares if share is not None]
    assert [len(share) for share in shares] == [2, 3, 2]
    assert [sum(share) for share in shares] == pytest.approx([1.0] * 3)
    for places in itertools.product(*(range(len(share)) for share in shares)):
        choices = [decision.options[place].choice for decision, place in zip(decided, places, strict=True)]
        action = stack(DUEL_SPACE.action_space, [joined(DUEL_SPACE.action_space, decided, choices)])
        whole = np.exp(advisor._algorithm.log_prob(stack(DUEL_SPACE, [DUEL_SEEN]), action, None)[0])
        assert np.prod([share[place] for share, place in zip(shares, places, strict=True)]) == pytest.approx(
            whole, rel=1e-4
        )
    assert opinion.value == (0.0 if algorithm == "ppo" else None)  # as a transformer's first are


BOX, LOOKS = spaces.Box(-1, 1, (3,), np.float32), np.random.default_rng(2).uniform(-1, 1, (4, 3)).astype(np.float32)


def opinions(advisor: Advisor, action_space: Any) -> list[Advice]:
    """What it thinks on the ticks of an episode."""
    advisor.begin()
    return [advisor.advice(seen, None, decisions(BOX, action_space, seen, None)) for seen in LOOKS]


@pytest.mark.slow
def test_advice_of_a_memory_is_that_of_its_whole_episode() -> None:
    space = spaces.Discrete(3)
    advisor = Advisor("blue", given("ppo", recurrent="lstm"), BOX, space)
    found = opinions(advisor, space)
    for choice in range(3):
        whole = np.exp(advisor._algorithm.log_prob(LOOKS, np.full(4, choice), None))
        assert [one.shares[0][choice] for one in found if one.shares[0]] == pytest.approx(whole, rel=1e-5)
    assert opinions(advisor, space) == found, "a new episode begins without a memory"
    alone = advisor.advice(LOOKS[3], None, decisions(BOX, space, LOOKS[3], None))
    assert alone != found[3]


@pytest.mark.parametrize("algorithm", ["dqn", "sac", "hppo", "ppo"])
@pytest.mark.slow
def test_policies_without_probabilities_and_numbers_advise_their_own_choice(algorithm: str) -> None:
    space = spaces.Discrete(3) if algorithm == "dqn" else spaces.Box(-1, 1, (2,), np.float32)
    advisor = Advisor("blue", given(algorithm), BOX, space)
    act = advisor._algorithm.actor(greedy=True)
    for seen, found in zip(LOOKS, opinions(advisor, space), strict=True):
        acted = act(seen[None], {})[0]
        assert found.choices == pytest.approx(np.ravel(acted).tolist())
        assert found.shares == ([[float(one == acted) for one in range(3)]] if algorithm == "dqn" else [None, None])
        assert (found.value is None) == (algorithm != "ppo")


def test_choices_rarer_than_1_percent_are_not_rounded_up(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    console, space = Console(reader), spaces.Discrete(4)
    console.see(0, {"a": {}})
    advice = Advice([0.0], [[0.99, 0.006, 0.004, 0.0]], None)
    with pytest.raises(PlayerLeft):
        console.choices(Turn("a", 0, 0.0, 0.0, (), decisions(BOX, space, LOOKS[0], None), advice))
    os.close(reader)
    assert ": 0 99 %*, 1 <1 %, 2 <1 %, 3 0 %\n" in capfd.readouterr().out


class Mute(Random):
    def log_prob(self, observations: Any, actions: Any, masks: Any) -> Any:
        raise KeyError("lost")


class Unmade(Random):
    @classmethod
    def check(cls, observation_space: Any, action_space: Any) -> None:
        raise AttributeError("nothing")


def test_opponents_that_cannot_be_asked_are_dropped_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    env = SimpleNamespace(possible_agents=["a"])
    env.observation_space, env.action_space = lambda _: BOX, lambda _: spaces.Discrete(3)
    names = {"mute": f"{__name__}:Mute", "unmade": f"{__name__}:Unmade", "random": "random"}
    judges = [{"name": name, "seats": [0], **given(algorithm)} for name, algorithm in names.items()]
    human = Human(env, None, ticks=1, seats={"a": 0}, labels={"a": {}}, judges=judges)  # type: ignore[arg-type]
    turn, later = (human._turn("a", tick, 0.0, 0.0, LOOKS[tick], {}) for tick in range(2))
    assert [*turn.by] == [*later.by] == ["random"] and later.notices == []
    unmade, mute = turn.notices
    assert unmade.startswith("unmade is not asked any more: AttributeError: nothing")
    assert mute.startswith("mute is not asked any more: KeyError: 'lost' (")
