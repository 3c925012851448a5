"""The algorithm of `arena play`: a human in the worker's place, who is asked for each decision of the seat.

`Console` has the lines from the player and to the player; `Advisor` knows what a policy thinks of the choices.

tick 3, reward 0, return 0
globals: step=3
0 Mine: x=0, y=2
1 Robot: x=1, y=1
Move of 1 Robot: 0 +x, 1 -x, 3 -y, 4 Defuse Mines
> 4
"""

from __future__ import annotations

import inspect
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from arena import registry
from arena.cli.play.decisions import (
    Advice,
    Decision,
    Turn,
    check_playable,
    decisions,
    joined,
    lines,
    numbers_of,
    tables,
)
from arena.cli.play.shown_game import PICTURE
from arena.errors import ConfigError, PlayerLeft, percent
from arena.game.api import Labels
from arena.game.infos import fields_of
from arena.game.spaces import no_op, row, stack
from arena.preflight.spec import spec_of
from arena.preflight.stubs import SpecVectorEnv, StubGroup, from_spaces
from arena.records import checkpoint
from arena.serving.models import PureModel
from arena.serving.policy import Policy
from arena.terminal.output import say

if TYPE_CHECKING:
    from arena.group.group import Group

_SECONDS = 0.2  # between two looks whether the process is ending
CLOSED_PIPE = 128 + signal.SIGPIPE  # exit code

_HELP = (
    "an answer is the number before a choice, or the beginning of its label; with --advice an empty line takes the "
    "choice marked with *; q ends the game"
)


class Human:
    """One seat, a PettingZoo parallel environment, that a human plays for some episodes.

    `advice`, whose opinion is shown, and `judges`, the opponents, are policies as of `as_adviser`; judges are asked in
    the `seats` that they know. Of each entity that people play: its seat, its place (see `Advisor`), and its `labels`
    as plain data.

    Attributes:
        console: what shows turns to the human, and asks for the choices.
    """

    face = "parallel"
    schedule = "ticks"  # it waits for no other worker

    def __init__(
        self,
        env: Any,
        group: Group,
        *,
        ticks: int,
        seats: Mapping[str, int],
        labels: Mapping[str, Any],
        places: Mapping[str, int] = {},
        episodes: int = 1,
        advice: Mapping[str, Any] | None = None,
        judges: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.env, self._episodes = env, episodes
        self.console: Any = Console(named=len(seats) > 1)
        self._labels = msgspec.convert(labels, dict[str, Labels])
        self._notices: list[str] = []  # by the next turn
        self._advisors: dict[str, dict[str, Advisor]] = {}  # about each entity: judges by name, and the adviser by ""
        for agent in env.possible_agents:
            spaces = env.observation_space(agent), env.action_space(agent), places.get(agent, 0)
            self._advisors[agent] = {} if advice is None else {"": Advisor(advice["name"], advice, *spaces)}
            for one in (one for one in judges if seats.get(agent) in one["seats"]):
                try:
                    self._advisors[agent][one["name"]] = Advisor(one["name"], one, *spaces)
                except (ConfigError, ValueError, RuntimeError):  # it tells nothing, or plays another kind of seat
                    pass
                except Exception as error:
                    self._notices.append(failure_text(one["name"], error))

    @classmethod
    def check(cls, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Whether a human can play such a seat."""
        check_playable(action_space)

    @classmethod
    def from_spaces(cls, env: Any, group: Group, *, ticks: int, **options: Any) -> Human:
        """One that cannot play; all that its `__init__` asks of an environment are spaces."""
        return cls(env, group, ticks=ticks, **options)

    def run(self) -> None:
        """Plays the episodes."""
        env, console = self.env, self.console
        for _ in range(self._episodes):
            observations, infos = env.reset()
            for advisor in chain.from_iterable(map(dict.values, self._advisors.values())):
                advisor.begin()
            console.see(0, infos)
            rewards = dict.fromkeys(env.agents, 0.0)
            returns = dict.fromkeys(env.agents, 0.0)
            tick = 0
            while env.agents:
                actions = {}
                for agent in env.agents:
                    space = env.action_space(agent)
                    if fields_of(infos[agent]).active is False:
                        actions[agent] = no_op(space)
                        continue
                    turn = self._turn(agent, tick, rewards[agent], returns[agent], observations[agent], infos[agent])
                    actions[agent] = joined(space, turn.decisions, console.choices(turn))
                observations, rewards, terminated, truncated, infos = env.step(actions)
                tick += 1
                console.see(tick, infos)
                for agent, reward in rewards.items():
                    returns[agent] += reward
                    if terminated[agent] or truncated[agent]:
                        console.end(agent, tick, returns[agent])

    def _turn(self, agent: str, tick: int, reward: float, earned: float, observation: Any, info: Any) -> Turn:
        """What an entity observes, and its decisions, with an adviser's opinion."""
        labels = self._labels[agent]
        spaces, mask = (self.env.observation_space(agent), self.env.action_space(agent)), fields_of(info).action_mask
        decided = decisions(*spaces, observation, mask, labels)
        found, advisors = dict[str, Advice](), self._advisors[agent]
        for name in [*advisors]:
            try:
                found[name] = advisors[name].advice(observation, mask, decided)
            except Exception as error:  # of an algorithm; the match needs no opinion
                self._notices.append(failure_text(advisors.pop(name).name, error))
        advice, notices, self._notices = found.pop("", None), self._notices, []
        seen = tables(spaces[0], labels.observations, observation)
        return Turn(agent, tick, reward, earned, seen, decided, advice, found, notices)


class Console:
    """The player's terminal, or two pipes.

    Input is read from the descriptor `source`: a thread that waits in `sys.stdin` keeps its lock, so Python cannot end.
    """

    def __init__(self, source: int = 0, *, named: bool = False) -> None:
        self._source, self._named = source, named
        self._echo = not os.isatty(source)  # then the answers are seen nowhere else
        self._infos: Mapping[str, Mapping[str, Any]] = {}

    def see(self, tick: int, infos: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes the infos of a tick, by entity, which may hold pictures."""
        self._infos = infos

    def _draw(self, entity: str) -> None:
        if (picture := self._infos[entity].get(PICTURE)) is not None:
            self.say(picture.rstrip("\n"))

    def choices(self, turn: Turn) -> list[float]:
        """Shows a turn; the choice of each decision.

        Raises:
            PlayerLeft: the player ends the game.
        """
        forced = bool(turn.decisions) and all(len(one.options) == 1 for one in turn.decisions)
        if not forced:
            self._draw(turn.entity)
        advice = turn.advice
        who = f"{turn.entity}: " if self._named else ""
        worth = "" if advice is None or advice.value is None else f", value {advice.value:.3g}"
        self.say(f"{who}tick {turn.tick}, reward {turn.reward:g}, return {turn.earned:g}{worth}")
        for line in (*turn.notices, *lines(() if forced else turn.tables)):
            self.say(line)
        found = []
        for place, decision in enumerate(turn.decisions):
            advised = (None, None) if advice is None else (advice.choices[place], advice.shares[place])
            found.append(self._answer(turn.tick, decision, *advised))
        return found

    def end(self, entity: str, tick: int, earned: float) -> None:
        """Says how an episode of an entity has ended."""
        self._draw(entity)
        who = f"{entity}: " if self._named else ""
        self.say(f"{who}episode over after {tick} ticks: return {earned:g}")

    def _answer(self, tick: int, decision: Decision, advised: float | None, shares: Sequence[float] | None) -> float:
        """Asks until there is an answer; `advised`: the choice of the adviser, if there is one."""
        if shares is None:
            question = decision.question() + ("" if advised is None else f", {advised:.4g}*")
        else:
            best = decision.options[int(np.argmax(shares))]
            advised = best.choice
            marked = [
                # As `percent` does: what is not exactly 0 is shown as 1 % at least.
                f"{option} {'<' if 1e-11 < share < 0.01 else ''}{percent(share)}{'*' if option is best else ''}"
                for option, share in zip(decision.options, shares, strict=True)
            ]
            question = f"{decision.what}: {', '.join(marked)}"
        if len(decision.options) == 1:
            self.say(f"{decision.question()}, the only choice")
            return decision.options[0].choice
        self.say(question)
        while True:
            answer = self.ask()
            if answer is None or answer == "q":
                raise PlayerLeft(f"ended by the player at tick {tick}")
            if answer == "?":
                self.say(_HELP)
                continue
            if answer == "" and advised is not None:
                return advised
            if (chosen := decision.answered(answer)) is not None:
                return chosen.choice
            self.say(f"{answer!r} is no choice here: {decision.listed()}")

    def say(self, text: str) -> None:
        """Writes a line; colors of a game's text count on a terminal alone."""
        with _read():
            say(text, styles=True)

    def ask(self) -> str | None:
        """One line from the player, without the blanks around it; None at the end of the input."""
        if not self._echo:
            with _read():
                sys.stdout.write("> ")
                sys.stdout.flush()
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._source], [], [], _SECONDS)[0]:
                continue
            byte = os.read(self._source, 1)  # no more than this line: the rest may be for another seat
            if not byte:
                break
            line += byte
        if not line:
            return None
        text = line.decode(errors="replace").strip()
        if self._echo:
            self.say(f"> {text}")
        return text


@contextmanager
def _read() -> Iterator[None]:
    """Turns the error of output that has no reader any more, such as `head`, into the end of the game."""
    try:
        yield
    except BrokenPipeError as error:
        raise PlayerLeft("", exit_code=CLOSED_PIPE) from error


class Advisor:
    """A policy that is asked about one entity, and does not play; `policy` as of `as_adviser`.

    Of a policy that learns as a team, the entity has a `place` among those of the policy in its match, in the order of
    their seats; several teams follow each other.

    The probabilities are from `log_prob` of its algorithm: for each choice of a decision, with all other decisions
    fixed; a policy decides them independently of each other. Without that its own choice has all of the probability.

    Attributes:
        name: of the policy.
        remembers: whether it is to be asked at each tick of the entity, as it remembers, or may remember, what it sees.
    """

    def __init__(
        self,
        name: str,
        policy: Mapping[str, Any],
        observation_space: Space[Any],
        action_space: Space[Any],
        place: int = 0,
    ) -> None:
        cls, options = configured(name, policy)
        if spec_of(cls).checks_spaces:
            cls.check(observation_space, action_space)
        self._place = place % policy["team"]
        entities = [str(entity) for entity in range(policy["team"])]
        group = StubGroup(name, "gradients", seed=0, shared_seed=0)

        def make(rows: int) -> Any:
            env = SpecVectorEnv(observation_space, action_space, rows=rows, entities=entities)
            algorithm = from_spaces(cls, env, group, ticks=1, options=options)
            if policy["load"] is not None:
                algorithm.load_state_dict(checkpoint.load(Path(policy["load"])).state)
            return algorithm

        self._policy = Policy(make, observation_space, action_space, None, policy["team"])
        self._algorithm = self._policy.algorithm
        self.name, self._observation_space, self._action_space = name, observation_space, action_space
        self._served = PureModel(self._algorithm, 0) if getattr(cls, "served", None) else None
        self.remembers = self._policy.remembers
        self._log_prob, self._state_value = self._method("log_prob"), self._method("state_value")
        self._tells = self._log_prob is not None and not isinstance(action_space, Box)
        self.begin()

    def _method(self, name: str) -> Any:
        """A method that can be asked for each tick; None: there is none, or it takes no memory of one that has it."""
        method = getattr(self._algorithm, name, None)
        if method is None or self._served is None or not self.remembers:
            return method
        return method if "memory" in inspect.signature(method).parameters else None

    def begin(self) -> None:
        """An episode begins."""
        self._policy.reset()
        if self._served is not None:
            self._memory = np.zeros((1, self._served.memory_size), np.float32)

    def advice(self, observation: Any, mask: NDArray[np.int8] | None, decided: Sequence[Decision]) -> Advice:
        """What it thinks of the decisions of a tick, of which each has at least one option."""
        seen = stack(self._observation_space, [observation])
        before: dict[str, Any] = {}
        if self._served is None:
            acted = self._policy.act(observation, mask, entity=self._place)
        else:
            before = {"memory": self._memory} if self.remembers else {}
            masks = None if mask is None else mask[None]
            batch, self._memory = self._served.act(np.array([self._place]), seen, masks, self._memory, None)
            acted = row(self._action_space, batch, 0)
        choices = numbers_of(self._action_space, acted)
        value = None
        if self._state_value is not None:
            values = self._state_value(seen, **before)
            value = None if values is None else float(values[0])
        shares: list[list[float] | None] = []
        for number, (decision, chosen) in enumerate(zip(decided, choices, strict=True)):
            if self._tells:
                try:
                    shares.append(self._shares(observation, mask, decided, number, before))
                    continue
                except ConfigError:  # not of these options, or this seat
                    self._tells = False
            shares.append([float(one.choice == chosen) for one in decision.options] if decision.options else None)
        return Advice(choices, shares, value)

    def _shares(
        self, observation: Any, mask: Any, decided: Sequence[Decision], place: int, before: Mapping[str, Any]
    ) -> list[float]:
        """The probabilities of the options of a decision, which add up to 1."""
        first = [decision.options[0].choice for decision in decided]
        actions = [
            joined(self._action_space, decided, [*first[:place], option.choice, *first[place + 1 :]])
            for option in decided[place].options
        ]
        rows = len(actions)
        log_probs = self._log_prob(
            stack(self._observation_space, [observation] * rows),
            stack(self._action_space, actions),
            None if mask is None else np.repeat(mask[None], rows, axis=0),
            **{name: np.repeat(memory, rows, axis=0) for name, memory in before.items()},
        )
        weights = np.exp(log_probs - log_probs.max())
        found: list[float] = (weights / weights.sum()).tolist()
        return found


def failure_text(name: str, error: Exception) -> str:
    """Tells that an algorithm has raised this when it was asked."""
    return f"{name} is not asked any more: {type(error).__name__}: {error}{registry.where_raised(error)}"


def configured(name: str, policy: Mapping[str, Any]) -> registry.ConfiguredAlgorithm:
    """The algorithm of a policy that is to advise, and its options."""
    found = registry.configured_algorithm(
        policy["algorithm"], policy["options"], acts=True, path=f"policies.{name}", any_device=True
    )
    if "vector" not in spec_of(found.cls).faces:
        text = f"{policy['algorithm']!r} of {name!r} has no face 'vector', so it cannot be asked about one entity"
        raise ConfigError(text, path="--advice")
    return found
