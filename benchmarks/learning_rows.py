"""The rows of the learning benchmark: which algorithm learns which game, in how many steps, and how well it must play.

Steps are those of the environment, summed over lanes: the samples that one entity collects. The options are in
`learning_options.yaml`; if Stable-Baselines3 has the algorithm and can play the game, it gets the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from arena.config import yaml

_FILE = Path(__file__).with_name("learning_options.yaml")
OPTIONS: Mapping[str, Any] = yaml.load(_FILE.read_text(), source=_FILE.name)

Line = Mapping[str, Any]
"""A line of `episodes.jsonl`."""

Value = Callable[[Line], "float | None"]
"""The value of an episode; None: the episode does not count."""


class Goal(NamedTuple):
    """The result that must be reached: the mean of a value over the episodes of the evaluation, or late in training."""

    claim: str
    limit: float
    value: Value
    at_most: bool = False
    in_training: bool = False  # over the episodes that end in the last fifth of the training, with sampled actions


class Peer(NamedTuple):
    """Stable-Baselines3's options for the same task."""

    algorithm: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        name: of the row, for `--rows`.
        make: the game, as in a configuration.
        steps: of the environment, summed over lanes and copies.
        policies: as in a configuration; the evaluation freezes policies that learn, with their learned weights.
        seats: of the training.
        goals: of the evaluation; the learning curve is of the first one's value.
        kwargs: of the game.
        wrappers: around it.
        lanes: of the match.
        copies: of the match: each has a worker per seat, and all workers of a policy learn as one group.
        evaluation: the seats of each match of the evaluation; empty: as in training.
        episodes: of each match of the evaluation, at least.
        peer: Stable-Baselines3's options; None: it lacks the algorithm, or cannot play the game.
        needs: Python modules that the game needs beyond the arena's own.
    """

    name: str
    make: str
    steps: int
    policies: Mapping[str, Any]
    seats: Sequence[Any]
    goals: Sequence[Goal]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: Sequence[Any] = ()
    lanes: int = 8
    copies: int = 1
    evaluation: Sequence[Sequence[Any]] = ()
    episodes: int = 50
    peer: Peer | None = None
    needs: Sequence[str] = ()

    @property
    def ticks(self) -> int:
        return self.steps // (self.lanes * self.copies)

    def training(self, seed: int) -> dict[str, Any]:
        """The configuration of the training."""
        return {
            "name": self.name,
            "seed": seed,
            "ticks": self.ticks,
            "envs": {"game": self._game},
            "policies": dict(self.policies),
            "matches": [{"env": "game", "seats": list(self.seats), "lanes": self.lanes, "copies": self.copies}],
        }

    def evaluating(self, run: str, seed: int) -> dict[str, Any]:
        """The configuration of the evaluation of a run; its games have other seeds than the run's."""
        return {
            "name": self.name,
            "seed": 1_000_000 + seed,
            "ticks": 1,  # the number of episodes decides
            "envs": {"game": self._game},
            "policies": {name: _frozen(policy, run) for name, policy in self.policies.items()},
            "matches": [
                {"env": "game", "seats": list(seats), "lanes": min(self.lanes, 10)}
                for seats in self.evaluation or [self.seats]
            ],
        }

    @property
    def _game(self) -> dict[str, Any]:
        wrappers = {"wrappers": list(self.wrappers)} if self.wrappers else {}
        return {"make": self.make, "kwargs": dict(self.kwargs), **wrappers}


PLAYERS = ("random", "scripted")  # algorithms that do not learn


def _frozen(policy: Mapping[str, Any], run: str) -> dict[str, Any]:
    return dict(policy) if policy["algorithm"] in PLAYERS else {**policy, "frozen": True, "load": run}


# -------------------------------------------------------------------------------------------- what an episode counts


def returns(policy: str) -> Value:
    """The mean return of a policy's entities."""

    def value(line: Line) -> float | None:
        found = [seat["return"] for seat in line["seats"] if seat["policy"] == policy]
        return sum(found) / len(found) if found else None

    return value


def team_sum(policy: str) -> Value:
    """The sum of the returns of all of a policy's entities."""

    def value(line: Line) -> float | None:
        return sum(seat["return"] * len(seat["entities"]) for seat in line["seats"] if seat["policy"] == policy)

    return value


def wins(policy: str, *, seat: int) -> Value:
    """1 for an episode that a policy has won in this seat, 0 for its other episodes in this seat."""

    def value(line: Line) -> float | None:
        there = line["seats"][seat]
        return float(there["outcome"] == "win") if there["policy"] == policy else None

    return value


# ------------------------------------------------------------------------------------------- Stable-Baselines3's words

_ON_POLICY = ("n_steps", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "normalize_advantage")
_PPO = {"minibatch_size": "batch_size", "n_epochs": "n_epochs", "clip_range": "clip_range"}
_USUAL = {  # options of an algorithm unless a row has its own
    "ppo": {"n_steps": 128, "minibatch_size": 256, "n_epochs": 4},
    "a2c": {"n_steps": 8, "learning_rate": 1e-3, "learning_rate_schedule": "constant"},
}
_OFF_POLICY = ("buffer_size", "learning_starts", "batch_size", "gamma", "tau")
_EXTRA = {
    "DQN": ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "max_grad_norm"),
    "SAC": ("ent_coef", "target_entropy"),
    "TD3": ("policy_delay", "target_policy_noise", "target_noise_clip"),
    "DDPG": (),
}
_NOISE = ("action_noise", "noise_std", "noise_theta")


def sb3_on_policy(algorithm: str, options: Mapping[str, Any]) -> Peer:
    """Options of an algorithm that learns from rollouts, in Stable-Baselines3's terms; a linear schedule is a word."""
    given = {**_USUAL[algorithm.lower()], **options}
    renamed = {name: name for name in _ON_POLICY} | (_PPO if algorithm == "PPO" else {})
    own = {theirs: given[ours] for ours, theirs in renamed.items() if ours in given}
    if algorithm == "A2C":
        own["use_rms_prop"] = False
    return Peer(algorithm, {**own, **_shared(given, epsilon=1e-5)})


def sb3_off_policy(algorithm: str, options: Mapping[str, Any], *, lanes: int) -> Peer:
    """The same for an algorithm with replay: as many gradient steps per sample, as many updates of the target."""
    own = {name: options[name] for name in (*_OFF_POLICY, *_EXTRA[algorithm], *_NOISE) if name in options}
    steps = options["training_intensity"] * options["train_every"] * lanes / options["batch_size"]
    own |= {"train_freq": options["train_every"], "gradient_steps": max(1, round(steps))}
    if algorithm == "DQN":
        own["n_steps"] = options.get("n_step", 3)
        collected = options["batch_size"] / options["training_intensity"]  # per gradient step
        own["target_update_interval"] = round(options["target_update_interval"] * collected)
    return Peer(algorithm, {**own, **_shared(options, epsilon=1e-8)})


def _shared(options: Mapping[str, Any], *, epsilon: float) -> dict[str, Any]:
    words = ("learning_rate", "learning_rate_schedule", "adam_epsilon", "hidden_sizes", "activation")
    return {"adam_epsilon": epsilon, **{name: options[name] for name in words if name in options}}


# ------------------------------------------------------------------------------------------------------------ the rows


def single(name: str, game: str, steps: int, limit: float, *, at_most: bool = False, **changes: Any) -> Row:
    """One policy alone in a game; its algorithm is the second word of the row's name."""
    return Row(
        name=name,
        make=game,
        steps=steps,
        policies={"p": learner(name.split("-")[1], name)},
        seats=["p"],
        goals=[Goal("return", limit, returns("p"), at_most)],
        **changes,
    )


def learner(algorithm: str, name: str) -> dict[str, Any]:
    """A policy with the options of this name in `learning_options.yaml`."""
    return {"algorithm": algorithm, "options": {**_USUAL.get(algorithm, {}), **OPTIONS[name]}}


def rollouts(algorithm: str, name: str) -> Peer:
    """Stable-Baselines3's options for a row that learns from rollouts."""
    return sb3_on_policy(algorithm, OPTIONS[name])


def replay(algorithm: str, name: str) -> Peer:
    """Stable-Baselines3's options for a row that learns from replay, in one environment."""
    return sb3_off_policy(algorithm, OPTIONS[name], lanes=1)


def cartpoles() -> list[Row]:
    """One pole; one pole whose velocities are not observed; two poles."""
    game, unseen = "gymnasium:CartPole-v1", "without_velocities:cartpole"
    two = {name: learner(name, f"two-cartpoles-{name}") for name in ("ppo", "dqn")}
    goals = [Goal("return of ppo", 400, returns("ppo")), Goal("return of dqn", 200, returns("dqn"))]
    return [
        single("cartpole-ppo", game, 100_000, 475, peer=rollouts("PPO", "cartpole-ppo")),
        single("cartpole-a2c", game, 300_000, 400, peer=rollouts("A2C", "cartpole-a2c")),
        single("cartpole-dqn", game, 50_000, 450, lanes=1, peer=replay("DQN", "cartpole-dqn")),
        single("cartpole-dqn-prioritised", game, 50_000, 450, lanes=1),
        single("positions-ppo-recurrent", unseen, 100_000, 400),
        single("positions-ppo-feedforward", unseen, 100_000, 200, at_most=True),
        single("positions-dqn-recurrent", unseen, 100_000, 450, lanes=4),
        single("positions-sac-recurrent", unseen, 100_000, 400, lanes=4),
        single("swing-td3-recurrent", "without_velocities:pendulum", 50_000, -250, lanes=1),
        single("swing-sac-recurrent", "without_velocities:pendulum", 50_000, -250, lanes=1),
        Row("two-cartpoles", "learning_games:TwoCartPoles", 300_000, two, ["ppo", "dqn"], goals),
    ]


def actors() -> list[Row]:
    """IMPALA with 1, 4 and 16 actors, whose samples are up to eight updates old."""
    rows = []
    for game, make, steps, others, goal in (
        ("cartpole", "gymnasium:CartPole-v1", 300_000, {}, Goal("return", 475, returns("p"))),
        ("touchdown", "touchdown", 100_000, {"random": {"algorithm": "random"}}, Goal("wins", 0.9, wins("p", seat=0))),
    ):
        for copies, lanes in ((1, 8), (4, 2), (16, 1)):
            name = f"{game}-impala-{copies}"
            policy = {**learner("slow_learners:LateIMPALA", f"{game}-impala"), "sync": "samples", "max_lag": 8}
            seats = ["p", *others]
            rows.append(Row(name, make, steps, {"p": policy, **others}, seats, [goal], lanes=lanes, copies=copies))
    return rows


def other_single_games() -> list[Row]:
    """One policy alone."""
    acrobot, pendulum, lander = "gymnasium:Acrobot-v1", "gymnasium:Pendulum-v1", "gymnasium:LunarLander-v3"
    mountain = "gymnasium:MountainCarContinuous-v0"
    box2d = ("Box2D",)
    return [
        single("acrobot-ppo", acrobot, 300_000, -95, lanes=16, peer=rollouts("PPO", "acrobot-ppo")),
        single("acrobot-dqn", acrobot, 100_000, -95, lanes=1, peer=replay("DQN", "acrobot-dqn")),
        single("pendulum-ppo", pendulum, 200_000, -300, lanes=4, episodes=100, peer=rollouts("PPO", "pendulum-ppo")),
        single("pendulum-sac", pendulum, 20_000, -180, lanes=1, episodes=100, peer=replay("SAC", "pendulum-sac")),
        single("pendulum-td3", pendulum, 20_000, -180, lanes=1, episodes=100, peer=replay("TD3", "pendulum-td3")),
        single("pendulum-ddpg", pendulum, 20_000, -180, lanes=1, episodes=100, peer=replay("DDPG", "pendulum-ddpg")),
        single("mountaincar-td3", mountain, 100_000, 88, lanes=1, peer=replay("TD3", "mountaincar-td3")),
        single("lunarlander-ppo", lander, 500_000, 180, lanes=16, needs=box2d, peer=rollouts("PPO", "lunarlander-ppo")),
        single("lunarlander-dqn", lander, 100_000, 100, lanes=1, needs=box2d, peer=replay("DQN", "lunarlander-dqn")),
    ]


def teams() -> list[Row]:
    """Several entities of one policy."""
    return [
        Row(
            name="spread-ppo",
            make="pettingzoo:mpe2.simple_spread_v3",
            steps=500_000,
            policies={"p": learner("ppo", "spread-ppo")},
            seats=[["p", "p", "p"]],
            goals=[Goal("team sum", -50, team_sum("p"))],
            kwargs={"N": 3, "max_cycles": 25},
            lanes=16,
            needs=("mpe2",),
        ),
        Row(
            name="spread-maddpg",
            make="pettingzoo:mpe2.simple_spread_v3",
            steps=500_000,
            policies={"p": learner("maddpg", "spread-maddpg")},
            seats=[["p", "p", "p"]],
            goals=[Goal("team sum", -60, team_sum("p"))],
            kwargs={"N": 3, "max_cycles": 25},
            lanes=16,
            needs=("mpe2",),
        ),
        Row(
            name="two-step-maddpg",
            make="matrix",
            steps=20_000,
            policies={"p": learner("maddpg", "two-step-maddpg")},
            seats=[["p", "p"]],
            goals=[Goal("return", 7.5, returns("p"))],
            kwargs={"game": "two_step"},
        ),
        Row(
            name="spread-qmix",
            make="pettingzoo:mpe2.simple_spread_v3",
            steps=500_000,
            policies={"p": learner("qmix", "spread-qmix")},
            seats=[["p", "p", "p"]],
            goals=[Goal("team sum", -60, team_sum("p"))],
            kwargs={"N": 3, "max_cycles": 25},
            wrappers=["state"],
            lanes=16,
            needs=("mpe2",),
        ),
        Row(
            name="two-step-qmix",
            make="matrix",
            steps=20_000,
            policies={"p": learner("qmix", "two-step-qmix")},
            seats=[["p", "p"]],
            goals=[Goal("return", 8, returns("p"))],
            kwargs={"game": "two_step"},
        ),
        Row(
            name="two-step-vdn",
            make="matrix",
            steps=20_000,
            policies={"p": learner("vdn", "two-step-qmix")},
            seats=[["p", "p"]],
            goals=[Goal("return", 7, returns("p")), Goal("return, not above", 7, returns("p"), at_most=True)],
            kwargs={"game": "two_step"},
        ),
        *foraging(),
        Row(
            name="tag-ppo",
            make="pettingzoo:mpe2.simple_tag_v3",
            steps=250_000,
            policies={"chaser": learner("ppo", "tag-ppo"), "prey": {"algorithm": "random"}},
            seats=[["chaser", "chaser", "chaser"], "prey"],
            goals=[Goal("return of each adversary", 30, returns("chaser"))],
            lanes=16,
            needs=("mpe2",),
        ),
    ]


def foraging() -> list[Row]:
    """Level-based foraging, two tasks; goals are the returns of arXiv 2006.07869, after 10 and 100 times as many steps.

    Ours are of the last fifth of the training: players that both wait for the other are stuck if they are greedy. QMIX
    has the greedy ones, too.
    """
    two, three = "Foraging-8x8-2p-2f-coop-v3", "Foraging-10x10-3p-3f-v3"
    published = {"qmix": {two: 0.96, three: 0.84}, "mappo": {two: 1.0, three: 0.99}}
    return [
        Row(
            name=f"foraging-{algorithm}" + ("-three" if entities == 3 else ""),
            make="learning_games:Foraging",
            steps=200_000,
            policies={"p": learner(algorithm, f"foraging-{algorithm}")},
            seats=[["p"] * entities],
            goals=[
                Goal("team sum", published[algorithm][task], team_sum("p"), in_training=True),
                *([Goal("team sum, greedy", published["qmix"][task], team_sum("p"))] if algorithm == "qmix" else []),
            ],
            kwargs={"task": task},
            needs=("lbforaging",),
            episodes=100,
        )
        for algorithm in published
        for entities, task in ((2, two), (3, three))
    ]


def duels() -> list[Row]:
    """Two policies that play against each other."""
    return [
        Row(
            name="four-ppo",
            make="pettingzoo:classic.connect_four_v3",
            steps=100_000,
            policies={"p": learner("ppo", "four-ppo"), "random": {"algorithm": "random"}},
            seats=["p", "p"],
            goals=[
                Goal("wins against random, moving first", 0.9, wins("p", seat=0)),
                Goal("wins against random, moving second", 0.9, wins("p", seat=1)),
            ],
            lanes=16,
            evaluation=[["p", "random"], ["random", "p"]],
            episodes=100,
            needs=("pygame",),
        ),
        rock("rock-ppo", "always the same", 6.5, "learning_games:hold"),
        rock("rock-ppo-recurrent", "what beats the last choice", 8.5, "policies.scripts:beat_last"),
    ]


def rock(name: str, against: str, limit: float, function: str) -> Row:
    """Ten rounds of rock-paper-scissors against a script."""
    return Row(
        name=name,
        make="matrix",
        steps=200_000,
        policies={"p": learner("ppo", name), "script": {"algorithm": "scripted", "options": {"function": function}}},
        seats=["p", "script"],
        goals=[Goal(f"points of 10 against {against}", limit, returns("p"))],
        kwargs={"game": "rock_paper_scissors"},
    )


def units() -> list[Row]:
    """Games with units."""
    mines = [Goal("wins in the last fifth of training", 0.88, returns("p"), in_training=True)]
    cannon = [Goal("wins in the last fifth of training", 0.97, returns("p"), in_training=True)]
    tie = [Goal("return", 0.8, returns("p")), Goal("return of hidden throws", 1.2, returns("p"), at_most=True)]

    def task(name: str, steps: int, limit: float, *, at_most: bool = False, **changes: Any) -> Row:
        return unit_row(name, "unit_task", steps, [Goal("return", limit, returns("p"), at_most)], **changes)

    return [
        unit_row("minesweeper-ppo", "minesweeper", 98_304, mines, lanes=64),
        unit_row("cannon-ppo", "minesweeper", 49_152, cannon, lanes=64, kwargs={"orbital_cannon": True, "cooldown": 0}),
        unit_row(
            "snake-ppo", "multi_snake", 98_304, [Goal("return", 0.30, returns("p"))], lanes=64, kwargs={"snakes": 1}
        ),
        task("hotdog-ppo", 32_768, 0.99, kwargs={"task": "not_hotdog"}),
        task("count-ppo", 8_192, 0.99, kwargs={"task": "count", "masked_choices": 2}),
        task("bandit-ppo", 8_192, 0.95, kwargs={"task": "armed_bandit"}),
        task("xor-ppo", 500_000, 0.95, kwargs={"task": "xor"}),
        task("cherries-ppo", 249_984, 0.95, kwargs={"task": "cherry_pick"}),
        task("lava-ppo-relative", 10_240, 0.95, kwargs={"task": "floor_is_lava"}),
        task("lava-ppo-absolute", 10_240, 0.3, at_most=True, kwargs={"task": "floor_is_lava"}),
        unit_row("hidden-ppo", "unit_task", 8_192, tie, kwargs={"task": "rock_paper_scissors"}, episodes=1000),
        task("hidden-ppo-cheat", 8_192, 1.9, kwargs={"task": "rock_paper_scissors", "cheat": True}),
        Row(
            name="skirmish-ppo",
            make="skirmish",
            steps=500_000,
            policies={"p": learner("ppo", "skirmish-ppo"), "random": {"algorithm": "random"}},
            seats=["p", "random"],
            goals=[Goal("wins against random", 0.85, wins("p", seat=0))],
            lanes=32,
            episodes=200,
        ),
    ]


def unit_row(name: str, game: str, steps: int, goals: Sequence[Goal], **changes: Any) -> Row:
    """One policy alone in a game with units."""
    given = {"lanes": 32, "episodes": 200, **changes}
    return Row(
        name=name, make=game, steps=steps, policies={"p": learner("ppo", name)}, seats=["p"], goals=goals, **given
    )


ROWS: Mapping[str, Row] = {
    row.name: row for row in (*cartpoles(), *actors(), *other_single_games(), *teams(), *duels(), *units())
}
