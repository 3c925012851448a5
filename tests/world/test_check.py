"""`arena check` plays the first ticks with code of the user, and names the key, the file and the line of an error."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gymnasium import Env, spaces
from torch import Tensor

from arena.game.infos import warn_no_mask
from command import Command
from in_process import one_match
from own_parts import Decay, Net, PPOByLoss
from workers import Player

ROOT = Path(__file__).parents[2]
HERE = __name__.rpartition(".")[2]


class Cards(Env[Any, Any]):
    """Three cards, of which the last one is not in the hand; ten moves an episode.

    `kind` says what is allowed at the fourth move: with `forbids` nothing, with `sometimes` all, without a mask.
    """

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, kind: str = "") -> None:
        self.kind = kind

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.moves = 0
        return np.zeros(3, np.float32), self._info()

    def step(self, action: Any) -> Any:
        if action == 2 and self._info():
            raise LookupError("this card is not in the hand")
        self.moves += 1
        seen = np.full(3, self.moves / 10, np.float32)
        return seen, 1.0, self.moves == 10, False, self._info()

    def _info(self) -> dict[str, Any]:
        if self.kind == "sometimes" and self.moves == 3:
            return {}
        return {"action_mask": np.array([1, 1, 0], np.int8) * (self.kind != "forbids" or self.moves != 3)}


def first(observations: Any, infos: Any) -> Any:
    return np.zeros(len(observations), np.int64)


def hidden(observations: Any, infos: Any) -> Any:
    return np.full(len(observations), 2)


def fraction(observations: Any, infos: Any) -> Any:
    return np.full(len(observations), 0.5)


def late(observations: Any, infos: Any) -> Any:
    return [0, 0, 0][int(10 * observations[0, 0]) :][0] + first(observations, infos)


class Own(Player):
    """Plays the first card. `where` says in which call it fails, or that it returns."""

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int, where: str = "") -> None:
        super().__init__(env, group, ticks=ticks)
        self.where = where

    def run(self) -> None:
        self.env.reset()
        for tick in range(1, self.ticks + 1):
            if self.where == "returns" and tick == 6:
                return
            self.env.step(np.zeros(self.env.num_envs + (self.where == "act"), np.int64))
            if tick % 50 == 0:
                self.learn()

    def learn(self) -> None:
        if self.where == "learn":
            json.loads("{")
        self.group.log(moved=1.0)


class Savers(Own):
    """Has a state and an actor."""

    kept = 0

    def state_dict(self) -> Any:
        self.kept += 1
        return {"save": {"kept": Path()}, "list": [1]}.get(self.where, {"kept": self.kept * (self.where == "forgets")})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = state["keep" if self.where == "load" else "kept"]

    def actor(self, *, greedy: bool = False) -> Any:
        if self.where == "no actor":
            return None
        return lambda observations, infos: infos["enemy"] if self.where == "actor" else first(observations, infos)


class Looks(Net):
    """Fails in torch, at an observation that is not all zeros."""

    def forward(self, leaves: Any) -> Tensor:
        torch.nn.functional.embedding((leaves[0][:, 0] * 10).long(), torch.zeros(1, 2))
        return super().forward(leaves)


class Misspelled(PPOByLoss):
    """Needs a field that minibatches do not have."""

    def loss(self, network: Any, batch: Any) -> Any:
        return super().loss(network, batch)[0] * batch.advantage


class Picky(Decay):
    """Takes the two made-up rows with which it is tried, and no larger minibatch."""

    def __call__(self, network: Any, batch: Any) -> Any:
        [][len(batch.actions) > 2 or slice(0)]
        return super().__call__(network, batch)


CARDS = {"make": f"{HERE}:Cards"}
ROLLOUT = {"n_steps": 8, "minibatch_size": 8, "hidden_sizes": [4]}


def policy_of(algorithm: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "options": options}


def scripted(function: str) -> dict[str, Any]:
    return policy_of("scripted", function=f"{HERE}:{function}")


def own(where: str, kind: str = "Own") -> dict[str, Any]:
    return policy_of(f"{HERE}:{kind}", where=where)


def line_of(text: str) -> int:
    """The number of the line of this file that begins with a text."""
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if line.strip().startswith(text))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def write(policy: Any, game: Any = CARDS, **match: Any) -> str:
    data = one_match(game, {"blue": policy}, ticks=1000, match={"lanes": 2, **match})
    Path("match.yaml").write_text(yaml.safe_dump({"name": "cards", **data}))
    return "match.yaml"


@pytest.mark.parametrize(
    ("policy", "key", "words", "line"),
    [
        (scripted("late"), "options.function", "IndexError: list index out of range", "return [0, 0, 0]"),
        (own("act"), "algorithm", "ValueError: a batch of Discrete(3) has the shape (2,), got (3,)", "self.env.step("),
        (own("learn"), "algorithm", "json.decoder.JSONDecodeError: ", "json.loads("),
        (
            policy_of("ppo", **ROLLOUT, encoder=f"{HERE}:Looks"),
            "options.encoder",
            "IndexError: index out of range in self",
            "torch.nn.functional.embedding(",
        ),
        (
            policy_of("ppo", **ROLLOUT, extra_loss={"class": f"{HERE}:Picky"}),
            "options.extra_loss",
            "IndexError: list index out of range",
            "[][len(batch.actions) > 2",
        ),
        (
            policy_of(f"{HERE}:Misspelled", **ROLLOUT),
            "algorithm",
            "AttributeError: 'Batch' object has no attribute 'advantage'",
            "return super().loss(network, batch)[0] *",
        ),
        (own("load", "Savers"), "algorithm", "KeyError: 'keep'", "self.kept = state["),
        (own("actor", "Savers"), "algorithm", "KeyError: 'enemy'", "return lambda observations, infos: infos["),
    ],
    ids=["function", "act", "learn", "encoder", "extra loss", "loss", "load", "actor"],
)
def test_errors_of_own_code_name_key_file_and_line(
    policy: Any, key: str, words: str, line: str, command: Command
) -> None:
    said = command("check", write(policy), code=2).err
    how = "failed (when it played|in load_state_dict\\(\\), or when its actor\\(\\) played)"
    assert re.match(f"arena: error: match.yaml: policies.blue.{key}: {how}: {re.escape(words)}", said), said
    assert said.endswith(f"({__file__}, line {line_of(line)})\n"), said
    assert not list(Path("temporary").iterdir()) and not Path("runs").exists(), "nothing is left"


@pytest.mark.parametrize(
    ("policy", "game", "words"),
    [
        (scripted("fraction"), {}, r"policies.blue.options.function: .*the value 0.5 .*for Discrete\(3\)"),
        (
            own("save", "Savers"),
            {},
            rf"policies.blue.algorithm: .*state\['kept'\]: a PosixPath cannot be kept .*{line_of('def state_dict')}\)$",
        ),
        (
            own("list", "Savers"),
            {},
            rf"policies.blue.algorithm: .*the state is .*, a list; .* a dict \(.*, line {line_of('def state_dict')}\)$",
        ),
        (
            own("no actor", "Savers"),
            {},
            rf"policies.blue.algorithm: .*actor\(\) returned None; .*, line {line_of('def actor')}\)$",
        ),
        (
            scripted("hidden"),
            {},
            r"policies.blue: chose 2 for 'agent_0' on tick 1, which the action mask \[1 1 0\] of 'game' forbids",
        ),
        (scripted("first"), {"kind": "forbids"}, "'agent_0': the mask forbids everything; an active entity needs"),
    ],
)
def test_wrong_values_are_told_in_one_sentence(policy: Any, game: Any, words: str, command: Command) -> None:
    said = command("check", write(policy, {**CARDS, "kwargs": game}), code=2).err
    assert re.search(words, said), said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("policy", "match", "told"),
    [
        (scripted("first"), {}, "played: 130 ticks of 1 of 1 match\n"),
        (scripted("first"), {"lanes": 100}, "played: 11 ticks of 1 of 1 match\n"),
        (scripted("first"), {"copies": 5}, "played: 130 ticks of 2 of 5 matches\n"),
        (own(""), {"copies": 2}, "played: 130 ticks of 2 of 2 matches; blue: 2 updates\n"),
        (own("", "Savers"), {}, "played: 130 ticks of 1 of 1 match; blue: 2 updates\n"),
        (own("", "Savers"), {}, "blue: made again from its saved state, then 4 ticks by actor()\n"),
        (own("returns"), {}, "run() has returned after 5 of 1000 ticks; the seat idles\n"),
        (own("forgets", "Savers"), {}, "\nwarning: policy blue: load_state_dict(state) has not restored state['kept']"),
        (policy_of("ppo", **ROLLOUT | {"n_steps": 200}), {}, "played: 520 ticks of 1 of 1 match; blue: 2 updates\n"),
        (policy_of("ppo", **ROLLOUT | {"n_steps": 990}), {}, "played: 1000 ticks of 1 of 1 match; blue: 1 update\n"),
        (own(""), {"lanes": 40}, "played: 108 ticks of 1 of 1 match; blue: 1 update\n"),
        (policy_of("dqn", learning_starts=2000), {"copies": 4}, "played: 2000 ticks of 2 of 4 matches; blue: 2 up"),
        (policy_of("dqn", learning_starts=7000), {"copies": 4}, ": --set policies.blue.options.learning_starts=64\n"),
        (policy_of("dqn", learning_starts=7000), {"lanes": 100}, ": --set policies.blue.options.learning_starts=5\n"),
    ],
)  # fmt: skip
def test_first_ticks_are_played_and_leave_nothing(
    policy: Any, match: Any, told: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last rows two of the four workers collect fewer transitions than the algorithm asks for."""
    monkeypatch.setattr("arena.cli.check._SECONDS", 0.0 if "7000" in str(policy) else 1000.0)
    assert told in command("check", write(policy, **match)).out
    assert {path.name for path in Path().iterdir()} == {"match.yaml", "temporary"}
    assert not list(Path("temporary").iterdir())


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (
            17,
            "\nwarning: policies.blue.options.minibatch_size: 17 is more than the 16 samples that a worker collects ",
        ),
        (16, ""),
    ],
)
def test_check_warns_of_a_minibatch_larger_than_a_rollout(size: int, told: str, command: Command) -> None:
    said = command("check", write(policy_of("ppo", **ROLLOUT | {"minibatch_size": size}), copies=2)).out
    assert ("minibatch_size: " in said, told in said) == (bool(told), True), said


@pytest.mark.parametrize("name", ["check", "plan"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("curriculum.class=curricula:Longr", "curriculum.class: 'curricula:Longr': "),
        ("curriculum={class: 'curricula:UntilElo', options: {elo: 1, eloo: 1}}", "has no option 'eloo'"),
        ("evaluation={every: 1000, function: 'curricula:measured'}", "evaluation.function: 'curricula:measured': "),
        ("loggers=['curricula:Lines']", "loggers[0]: 'curricula:Lines': "),
    ],
)
def test_check_refuses_names_of_hooks_as_a_run_does(name: str, change: str, told: str, command: Command) -> None:
    said = command(name, write(scripted("first")), "--set", "checkpoint_every=1000", "--set", change, code=2).err
    assert told in said


def test_check_says_which_games_are_not_played(command: Command) -> None:
    said = command("check", ROOT / "configs" / "external_cartpole.yaml").out
    assert "not played: the external games of match 0\n" in said and "\nplayed: " not in said


def test_evaluation_names_the_line_of_an_actor_that_fails(command: Command) -> None:
    command("train", write(own("actor", "Savers")), "--ranks", 1, "--ticks", 20, "--run-dir", "run")
    said = command("evaluate", "run", "--episodes", 2, code=1).err
    line = line_of("return lambda observations, infos: infos[")
    assert f"\npolicies.blue.algorithm: KeyError: 'enemy' ({__file__}, line {line})\n" in said
    assert said.endswith("its log is run/evaluations/last/logs/rank-0000.log\n")
    assert "Traceback" not in said and "Traceback" in Path("run/evaluations/last/logs/rank-0000.log").read_text()


def test_game_that_gives_masks_at_some_steps_is_valid_and_trains(
    command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(scripted("first"), {**CARDS, "kwargs": {"kind": "sometimes"}})
    words = "the game gave 'agent_0' no action mask, though the first reset had one: everything is allowed; a mask of"
    warn_no_mask.cache_clear()
    said = command("check", path).out
    assert f"warning: {words}" in said and said.endswith("configuration match.yaml: valid, with 1 warning\n")
    assert [text.startswith(words) for text in caplog.messages] == [True]
    warn_no_mask.cache_clear()
    command("train", path, "--ranks", 1, "--run-dir", "run")
    assert Path("run/logs/rank-0000.log").read_text().count(words) == 1
