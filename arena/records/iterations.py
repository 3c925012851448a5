"""The contents of a run's results: a pure state machine, episodes and updates in, results out.

    episodes(rows)            in the order of `episodes.jsonl`
    reach(tick, logged)       all episodes up to this tick were handed over
    update(record), leave(policy)
    known()                   -> the results that are complete
    take(tick)                -> the result of the tick at which a leg has ended

A result covers the episodes and updates at ticks in (tick of the last result, its tick]. Its means are of the new
episodes, or of the newest `smoothing` ones if fewer are new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from arena.records.figures import Figures, Metrics
from arena.records.metrics import EpisodeKey, EpisodeRecord, UpdateRecord, key_of

NO_UPDATES: Mapping[str, int] = {}


class Totals(NamedTuple):
    """What was counted up to the tick of a result, from the beginning of the run."""

    tick: int = 0  # of every match
    iteration: int = 0  # the number of results
    timesteps: int = 0  # steps of games: ticks of all lanes of all matches
    agent_timesteps: int = 0  # the same, each times the entities of its game
    episodes: int = 0  # that ended and were not cut


class Steps(NamedTuple):
    """Steps of games, and the same times entities."""

    games: int = 0
    agents: int = 0


class Iterations:
    """The results of a run that are not on record yet, one every so many ticks.

    Args:
        smoothing: the least number of episodes in a mean, if there are so many.
        policies: the names of the policies that have keys in a result.
        metric_names: of the metrics that earlier results have: all, and those of games.

    Attributes:
        totals: up to the newest result that is on record or was taken.
        steps_at: the steps of all matches up to a tick, earlier rounds included; set when a round begins.
    """

    def __init__(
        self,
        *,
        every: int,
        smoothing: int,
        policies: Collection[str],
        totals: Totals,
        metric_names: tuple[Collection[str], Collection[str]] = ((), ()),
    ) -> None:
        self.totals = totals
        self.steps_at: Callable[[int], Steps] = lambda _: Steps()
        self._every, self._smoothing, self._policies = every, smoothing, tuple(policies)
        self._recent: deque[EpisodeRecord] = deque(maxlen=smoothing)  # the newest up to those of this iteration
        self._new = Figures()  # of this iteration
        self._later: deque[EpisodeRecord] = deque()  # of later iterations
        self._newest: dict[str, UpdateRecord] = {}  # per policy, of this iteration or an earlier one
        self._later_updates: dict[str, deque[UpdateRecord]] = {}
        self._learners: frozenset[str] = frozenset()
        self._updates: dict[str, int] = {}  # per policy, the newest update that was handed over
        self._logged: dict[str, int] = {}  # per policy, the newest one that is known to have been sent in this leg
        self._reached: float = 0  # all episodes up to this tick were handed over
        self._until = 0  # the planned end of the leg
        self._metric_names = [{*names} for names in metric_names]
        self._of_episodes: dict[EpisodeKey, list[Metrics]] = {}  # measured values of episodes that may still count
        self._of_ticks: list[tuple[int, Metrics]] = []  # likewise of iterations

    def begin_leg(self, start: int, until: int, learners: Collection[str]) -> None:
        """Takes the tick at which a leg begins, and the policies that may log updates.

        The leg is to end at the tick `until`, whose result is taken when it has ended.
        """
        self._reached = start
        self._until, self._learners, self._logged = until, frozenset(learners), {}

    def episodes(self, episodes: Sequence[EpisodeRecord]) -> None:
        """Takes episodes in the order of `episodes.jsonl`."""
        self._later.extend(episodes)
        self._cover(self.following)

    def reach(self, tick: float, logged: Mapping[str, int] = NO_UPDATES) -> None:
        """Takes the tick up to which all matches that still play have played, and handed over their episodes.

        `logged`: per policy the newest update that some of its workers had sent when they requested this tick. So a
        result is complete when the root has received these updates.
        """
        self._reached = tick
        for policy, newest in logged.items():
            self._logged[policy] = max(newest, self._logged.get(policy, 0))

    def update(self, record: UpdateRecord) -> None:
        """Takes an update; those of one policy come in the order of their ticks."""
        self._updates[record.policy] = max(record.update, self._updates.get(record.policy, 0))
        if record.ticks <= self.following and not self._later_updates.get(record.policy):
            self._newest[record.policy] = record
        else:
            self._later_updates.setdefault(record.policy, deque()).append(record)

    def measured(self, tick: int, metrics: Metrics) -> None:
        """Takes what was measured in the iteration that has a tick."""
        self._of_ticks.append((tick, metrics))

    def measured_of(self, episode: EpisodeKey, metrics: Metrics) -> None:
        """Takes what was measured of an episode, before the episode."""
        self._of_episodes.setdefault(episode, []).append(metrics)

    def leave(self, policy: str) -> None:
        """A policy logs nothing any more in this leg."""
        self._learners -= {policy}

    @property
    def following(self) -> int:
        """The tick of the next result, if the run does not end before it."""
        return (self.totals.tick // self._every + 1) * self._every

    def known(self) -> Iterator[dict[str, Any]]:
        """The results that are complete while a leg is played."""
        while (tick := self.following) < self._until:
            # The result of the tick at which a leg ends is taken when everything up to it was handed over.
            # A worker may log an update of the tick when it has already requested the next one.
            if tick + 1 >= self._reached:
                return
            if any(self._updates.get(name, 0) < self._logged.get(name, 0) for name in self._learners):
                return
            yield self.take(tick)

    def take_until(self, tick: int) -> Iterator[dict[str, Any]]:
        """The results before a tick at which a leg has ended: everything up to it was handed over."""
        while self.following < tick:
            yield self.take(self.following)

    def take(self, tick: int) -> dict[str, Any]:
        """The result of a tick: everything up to it was handed over, and no result was taken beyond it."""
        self._cover(tick)
        for name, later in self._later_updates.items():
            while later and later[0].ticks <= tick:
                self._newest[name] = later.popleft()
        # The steps that are on record, and those of the ticks since then.
        (now, now_agents), (then, then_agents) = self.steps_at(tick), self.steps_at(self.totals.tick)
        before = self.totals
        steps = Steps(before.timesteps + now - then, before.agent_timesteps + now_agents - then_agents)
        self.totals = Totals(tick, before.iteration + 1, steps.games, steps.agents, before.episodes + self._new.count)
        smoothed, new = self._new, self._new.count
        if new < self._smoothing:
            smoothed = Figures()
            smoothed.add(self._recent, self._of_episodes)
        # The metrics of smoothed episodes and, unsmoothed, of this iteration.
        for measured_at, metrics in self._of_ticks:
            if measured_at <= tick:
                smoothed.measure(metrics)
        self._of_ticks = [later for later in self._of_ticks if later[0] > tick]
        self._metric_names = [a | b for a, b in zip(self._metric_names, smoothed.measured, strict=True)]
        if self._of_episodes:
            kept = {*map(key_of, self._recent), *map(key_of, self._later)}
            self._of_episodes = {key: found for key, found in self._of_episodes.items() if key in kept}
        all_names, of_games = self._metric_names
        updates = {name: self._newest[name] for name in self._policies if name in self._newest}
        found = {
            "training_iteration": self.totals.iteration,
            "ticks": tick,
            "timesteps_total": steps.games,
            "timesteps_this_iter": steps.games - before.timesteps,
            "agent_timesteps_total": steps.agents,
            "episodes_total": self.totals.episodes,
            "episodes_this_iter": new,
            **smoothed.rewards(),
            **smoothed.returns(self._policies),
            "policy_win_rate": smoothed.win_rates(self._policies),
            "custom_metrics": smoothed.metrics(all_names),
            "policy_custom_metrics": smoothed.policy_metrics(self._policies, of_games),
            "info": {
                "learner": {
                    name: {"update": record.update, "samples": record.samples, **record.values}
                    for name, record in updates.items()
                },
                "num_steps_sampled": sum(record.samples for record in updates.values()),
            },
        }
        self._new = Figures()
        self._cover(self.following)  # they already belong to the iteration that begins
        return found

    def _cover(self, tick: int) -> None:
        """Takes the episodes up to a tick: of this iteration, or, as a run goes on, of results on record."""
        whole = []
        while self._later and self._later[0].tick <= tick:
            if not (episode := self._later.popleft()).cut:
                whole.append(episode)
        self._recent.extend(whole)
        new = [episode for episode in whole if episode.tick > self.totals.tick]
        self.totals = self.totals._replace(episodes=self.totals.episodes + len(whole) - len(new))
        self._new.add(new, self._of_episodes)
