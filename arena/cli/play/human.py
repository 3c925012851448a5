"""The algorithm of `arena play`: a human in the worker's place, who is asked for each decision of the seat.

tick 3, reward 0, return 0
globals: step=3
0 Mine: x=0, y=2
1 Robot: x=1, y=1
Move of 1 Robot: 0 +x, 1 -x, 3 -y, 4 Defuse Mines
> 4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.cli.play.advice import Advisor
from arena.cli.play.console import BOLD, DIM, YELLOW, Console
from arena.cli.play.decisions import Decision, Option, check_playable, decisions, described, joined
from arena.cli.play.shown_game import PICTURE
from arena.errors import PlayerLeft
from arena.game.infos import fields_of
from arena.game.spaces import no_op

if TYPE_CHECKING:
    from arena.group.group import Group

_RESULTS = {"win": "won", "loss": "lost", "draw": "drawn"}
_HELP = (
    "an answer is the number before a choice, or the beginning of its label; with --advice an empty line takes the "
    "choice marked with *; q ends the game"
)


class Human:
    """One seat that a human plays.

    Args:
        env: a PettingZoo parallel environment.
        group: not used.
        ticks: not used; the environment says when it ends.
        episodes: how many are played.
        advice: `name`, `algorithm`, `options` and `load` of a policy whose opinion is shown; None: none is.
        named: whether each line names its entity, as there are several.

    Raises:
        ConfigError: actions that are no choices, or a policy that cannot advise.
    """

    face = "parallel"
    schedule = "ticks"  # it waits for no other worker

    def __init__(
        self,
        env: Any,
        group: Group,
        *,
        ticks: int,
        episodes: int = 1,
        advice: Mapping[str, Any] | None = None,
        named: bool = False,
    ) -> None:
        self.env, self._episodes = env, episodes
        self._named = named or len(env.possible_agents) > 1
        self._advisors: dict[str, Advisor] = {}
        if advice is not None:
            for agent in env.possible_agents:
                spaces = env.observation_space(agent), env.action_space(agent)
                self._advisors[agent] = Advisor(advice["name"], advice, *spaces)

    @classmethod
    def check(cls, observation_space: Space[Any], action_space: Space[Any]) -> None:
        """Whether a human can play such a seat.

        Raises:
            ConfigError: the actions are no choices.
        """
        check_playable(action_space)

    @classmethod
    def from_spaces(cls, env: Any, group: Group, *, ticks: int, **options: Any) -> Human:
        """One that cannot play; all that its `__init__` asks of an environment are spaces."""
        return cls(env, group, ticks=ticks, **options)

    def run(self) -> None:
        """Plays the episodes.

        Raises:
            PlayerLeft: the player has ended the game.
        """
        env, console = self.env, Console()
        for _ in range(self._episodes):
            observations, infos = env.reset()
            rewards = dict.fromkeys(env.agents, 0.0)
            returns = dict.fromkeys(env.agents, 0.0)
            tick = 0
            while env.agents:
                actions = {}
                for agent in env.agents:
                    if fields_of(infos[agent]).active is not False:
                        seen = observations[agent], infos[agent]
                        self._show(console, agent, tick, rewards[agent], returns[agent], *seen)
                        actions[agent] = self._decide(console, agent, tick, *seen)
                    else:
                        actions[agent] = no_op(self.env.action_space(agent))
                observations, rewards, terminated, truncated, infos = env.step(actions)
                tick += 1
                for agent, reward in rewards.items():
                    returns[agent] += reward
                    if terminated[agent] or truncated[agent]:
                        result = _RESULTS.get(str(infos[agent].get("outcome")), "")
                        who = f"{agent}: " if self._named else ""
                        words = f"{who}episode over after {tick} ticks: return {returns[agent]:g}"
                        console.say(", ".join(filter(None, (words, result))), BOLD)

    def _show(
        self, console: Console, agent: str, tick: int, reward: float, total: float, observation: Any, info: Any
    ) -> None:
        if PICTURE in info:
            console.say(str(info[PICTURE]).rstrip("\n"))
        who = f"{agent}: " if self._named else ""
        value = self._advisors[agent].value(observation) if agent in self._advisors else None
        worth = "" if value is None else f", value {value:.3g}"
        console.say(f"{who}tick {tick}, reward {reward:g}, return {total:g}{worth}", BOLD)
        for line in described(self.env.observation_space(agent), observation):
            console.say(line)

    def _decide(self, console: Console, agent: str, tick: int, observation: Any, info: Mapping[str, Any]) -> Any:
        """Asks for each decision of an entity; returns its action."""
        spaces = self.env.observation_space(agent), self.env.action_space(agent)
        mask: NDArray[np.int8] | None = fields_of(info).action_mask
        decided = decisions(*spaces, observation, mask)
        shares: Sequence[Sequence[float] | None] = [None] * len(decided)
        if agent in self._advisors:
            shares = self._advisors[agent].probabilities(observation, mask, decided)
        choices = [
            self._ask(console, tick, decision, share).choice for decision, share in zip(decided, shares, strict=True)
        ]
        return joined(spaces[1], decided, choices)

    def _ask(self, console: Console, tick: int, decision: Decision, shares: Sequence[float] | None) -> Option:
        """Asks until there is an answer."""
        best = None if shares is None else decision.options[int(np.argmax(shares))]
        question = decision.question()
        if shares is not None:
            marked = [
                console.styled(
                    f"{option} {100 * share:.0f} %{'*' if option is best else ''}", YELLOW if option is best else ""
                )
                for option, share in zip(decision.options, shares, strict=True)
            ]
            question = f"{decision.what}: {', '.join(marked)}"
        console.say(question)
        while True:
            answer = console.ask()
            if answer is None or answer == "q":
                raise PlayerLeft(f"ended by the player at tick {tick}")
            if answer == "?":
                console.say(_HELP, DIM)
                continue
            chosen = best if answer == "" else decision.answered(answer)
            if chosen is not None:
                return chosen
            console.say(f"{answer!r} is no choice here: {decision.listed()}")
