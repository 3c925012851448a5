"""A user's program, which two strict type checkers pass and a test runs: a game, an algorithm, a league, analysis."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

import arena
from arena import (
    Callback,
    Config,
    ConfigError,
    Env,
    Evaluation,
    Frame,
    Interface,
    League,
    Match,
    Matchmaking,
    PastSelves,
    Policy,
    RoundRobin,
    Snapshots,
    Step,
    Trainer,
)
from arena.experiment import Experiment

ACTIONS = 3


class Undercut:
    """Two players name a number; the lower one wins its difference, unless it is lower by exactly one."""

    batched = True

    def __init__(self, *, lanes: int, length: int = 4) -> None:
        self.lanes, self.length = lanes, length
        observed, choices = Box(0.0, 1.0, (2,), np.float32), Discrete(ACTIONS)
        self.interface = Interface(
            ("first", "second"), (observed, observed), (choices, choices), (0, 0), (), "zero_sum"
        )
        self._ticks = np.zeros(lanes, int)
        self._before = np.zeros((lanes, 2), np.float32)

    def reset(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        self._ticks[lanes] = 0
        self._before[lanes] = 0.0
        return self._frame()

    def step(self, actions: Sequence[NDArray[np.int64]]) -> Step:
        first, second = np.asarray(actions[0]), np.asarray(actions[1])
        self._ticks += 1
        gap = second - first
        won = np.where(np.abs(gap) == 1, -gap, gap).astype(float)
        self._before[:, 0], self._before[:, 1] = first / ACTIONS, second / ACTIONS
        over = np.repeat((self._ticks >= self.length)[:, None], 2, axis=1)
        return Step(self._frame(), np.stack([won, -won], axis=1), over, np.zeros_like(over))

    def render(self) -> str | None:
        return f"{self._before[0]}"

    def close(self) -> None:
        pass

    def _frame(self) -> Frame:
        active = np.ones((self.lanes, 2), bool)
        return Frame([self._before, self._before[:, ::-1].copy()], active, [None, None])


class Counter:
    """Answers the number that the other player has named most often."""

    face = "vector"
    schedule = "ticks"

    def __init__(self, env: Any, group: Any, *, ticks: int, offset: int = 1) -> None:
        self.env, self.group, self.offset = env, group, offset
        self.counts = np.zeros(ACTIONS)

    def run(self) -> None:
        act = self.actor()
        observations, infos = self.env.reset()
        while True:
            observations, *_, infos = self.env.step(act(observations, infos))

    def actor(self, *, greedy: bool = False) -> Callable[[NDArray[np.float32], Any], NDArray[np.int64]]:
        def act(observations: NDArray[np.float32], infos: Any) -> NDArray[np.int64]:
            named = np.rint(observations[:, 1] * ACTIONS).astype(int)
            np.add.at(self.counts, named, 1)
            return np.full(len(observations), (int(self.counts.argmax()) + self.offset) % ACTIONS)

        return act

    def state_dict(self) -> dict[str, NDArray[np.float64]]:
        return {"counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.counts = np.array(state["counts"])


class Lengths(Callback):
    """Measures how long episodes are."""

    def on_start(self, run: arena.callbacks.StartedRun) -> None:
        assert not run.resumed

    def on_next_round(self, league: arena.league.LeagueView) -> None:
        assert "learner" in league.policies

    def on_episode(self, line: Mapping[str, Any]) -> None:
        self.measure(ticks=float(line["length"]))


def league(*, rounds: int, ticks: int) -> Config:
    """A learner, its snapshots, and an opponent that counts."""
    options = {"n_steps": 10, "minibatch_size": 20, "hidden_sizes": [8]}
    rule = PastSelves(self_play=0.5)
    opponents = ["counter"]
    drawn = Matchmaking(env="game", policies=["learner"], against=opponents, rule=rule, lanes=2, copies=2)
    return Config(
        name="undercut",
        seed=3,
        ticks=ticks,
        rounds=rounds,
        envs={"game": Env(make=Undercut, kwargs={"length": 4})},
        policies={
            "learner": Policy(algorithm="ppo", options=options, color="#1f77b4"),
            "counter": Policy(algorithm=Counter, options={"offset": 2}, frozen=True),
        },
        matches=[drawn],
        league=League(snapshots=Snapshots(every=1, keep=3)),
        evaluation=Evaluation(every=ticks, episodes=4),
        checkpoint_every=ticks,
        callbacks=[Lengths],
    )


def duel(old: str) -> Config:
    """The learner of a run, which goes on learning, against itself as it was."""
    loaded = Policy(algorithm="ppo", options={"n_steps": 10, "minibatch_size": 20, "hidden_sizes": [8]}, load=old)
    lengths, players = {"length": 4}, {"new": loaded, "old": Policy(algorithm="random")}
    seats = [*players]
    matches: list[Match | RoundRobin] = [Match(env="game", seats=seats, lanes=2)]
    matches.append(RoundRobin(env="game", policies=seats))
    return Config(
        name="duel",
        ticks=40,
        envs={"game": Env(make=Undercut, kwargs=lengths)},
        policies=players,
        matches=matches,
        checkpoint_every=20,
    )


def best_of(rows: Sequence[Mapping[str, Any]]) -> tuple[str, float]:
    """The player of the first row, and its rating."""
    name: str = rows[0]["player"]
    return name, float(rows[0]["elo"])


def main(home: Path) -> int:
    """Trains, compares and analyzes below a folder."""
    config = league(rounds=2, ticks=40)
    config.to_yaml()
    kinds = [row["role"] for row in arena.plan_run(config, ranks=1)]
    assert kinds[0] == "root"

    seen: list[str] = []
    result: arena.RunResult = arena.train(
        config, home / "league", ranks=1, on_event=lambda event: seen.append(event.kind)
    )
    assert result.finished, result.ticks
    value: float | None = result.scores["learner"].last_return
    text = "-" if value is None else f"{value:.2f}"

    run = arena.open_run(result.run_dir)
    returns: dict[str, float] = {}
    for row in run.episodes():
        returns[row["policy"]] = returns.get(row["policy"], 0.0) + row["return"]
    updates = len(run.metrics())
    table: arena.Table = arena.standings(result.run_dir)

    with Trainer(duel(f"{result.run_dir}:learner@last"), run_dir=home / "duel") as trainer:
        mean = 0.0
        for line in trainer:
            mean = line["policy_reward_mean"]["new"]
        trainer.evaluate(4, against=f"{result.run_dir}:learner@first")

    rows = arena.evaluate(home / "duel", 4, checkpoints=("first", "last"), against="random")
    players = [f"{home / 'duel'}:new", f"{result.run_dir}:learner@last", f"{result.run_dir}:counter"]
    games: arena.TournamentResult = arena.tournament(players, 48, run_dir=home / "games")
    best, elo = best_of(games.standings)

    policy: arena.serving.Policy = arena.load_policy(f"{home / 'duel'}:new@last")
    action = policy.act(np.zeros(2, np.float32))
    try:
        arena.load_policy(f"{home / 'duel'}:missing")
    except ConfigError as error:
        missing = str(error)
    else:
        raise AssertionError("there is no such policy")
    Experiment(run=config, set={"policies.learner.options.gamma": {"grid_search": [0.9, 0.99]}}, repeat=2)

    print(f"{text} {mean:.2f} {updates} {len(table)} {len(rows)} {best} {elo:.0f} {int(action)} {missing} {len(seen)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
