"""The rows of the learning benchmark: which algorithm learns which game, in how many steps, and how well it must play.

Steps are those of the environment, summed over lanes and copies: the samples that one entity collects. Options are
chosen by trying; where Stable-Baselines3 has the algorithm and the game it gets the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Line = Mapping[str, Any]
"""A line of `episodes.jsonl`."""

Value = Callable[[Line], "float | None"]
"""What an episode counts; None: it says nothing."""


class Goal(NamedTuple):
    """How well the learnt weights must play: the mean of a value over the episodes of the evaluation."""

    claim: str
    limit: float
    value: Value
    at_most: bool = False


class Peer(NamedTuple):
    """What Stable-Baselines3 is given for the same task."""

    algorithm: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        name: of the row, for `--rows`.
        make: the game, as in a configuration.
        steps: of the environment, summed over lanes and copies.
        policies: as in a configuration; those that learn are frozen for the evaluation, with what they have learnt.
        seats: who plays in training.
        goals: of the evaluation; the learning curve is of the first one's value.
        kwargs: of the game.
        wrappers: around it.
        lanes: of the match.
        evaluation: who plays in the evaluation, a match for each; empty: as in training.
        episodes: at least so many of each match.
        peer: Stable-Baselines3's part; None: it has no such algorithm, or cannot play such a game.
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
    evaluation: Sequence[Sequence[Any]] = ()
    episodes: int = 50
    peer: Peer | None = None
    needs: Sequence[str] = ()

    @property
    def ticks(self) -> int:
        return self.steps // self.lanes

    def training(self, seed: int) -> dict[str, Any]:
        """The configuration that learns."""
        return {
            "name": self.name,
            "seed": seed,
            "ticks": self.ticks,
            "envs": {"game": self._game},
            "policies": dict(self.policies),
            "matches": [{"env": "game", "seats": list(self.seats), "lanes": self.lanes}],
        }

    def evaluating(self, run: str, seed: int) -> dict[str, Any]:
        """The configuration that plays with what a run has learnt; its games are other ones than those of the run."""
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
    """The return of a policy's entities: the mean over them."""

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
    """1 for an episode that a policy has won in a seat, 0 for another one that it has played there."""

    def value(line: Line) -> float | None:
        there = line["seats"][seat]
        return float(there["outcome"] == "win") if there["policy"] == policy else None

    return value


# ------------------------------------------------------------------------------------------- Stable-Baselines3's words

_ON_POLICY = ("n_steps", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "normalize_advantage")
_PPO = {"minibatch_size": "batch_size", "n_epochs": "n_epochs", "clip_range": "clip_range"}
_PPO_DEFAULTS = {"n_steps": 128, "minibatch_size": 256, "n_epochs": 4}  # the arena's, where it has others
_A2C_DEFAULTS = {"n_steps": 8, "learning_rate": 1e-3}
_OFF_POLICY = ("buffer_size", "learning_starts", "batch_size", "gamma", "tau")
_EXTRA = {
    "DQN": ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "max_grad_norm"),
    "SAC": ("ent_coef", "target_entropy"),
    "TD3": ("policy_delay", "target_policy_noise", "target_noise_clip"),
    "DDPG": (),
}
_NOISE = ("action_noise", "noise_std", "noise_theta")


def sb3_on_policy(algorithm: str, options: Mapping[str, Any]) -> Peer:
    """The same for an algorithm that learns from rollouts; a linear schedule is told as a word."""
    given = {**(_PPO_DEFAULTS if algorithm == "PPO" else _A2C_DEFAULTS), **options}
    renamed = {name: name for name in _ON_POLICY} | (_PPO if algorithm == "PPO" else {})
    own = {theirs: given[ours] for ours, theirs in renamed.items() if ours in given}
    if algorithm == "A2C":
        own["use_rms_prop"] = False
    return Peer(algorithm, {**own, **_shared(given)})


def sb3_off_policy(algorithm: str, options: Mapping[str, Any], *, lanes: int) -> Peer:
    """The same for one that replays: as many gradient steps per sample, a target that moves as often."""
    own = {name: options[name] for name in (*_OFF_POLICY, *_EXTRA[algorithm], *_NOISE) if name in options}
    steps = options["training_intensity"] * options["train_every"] * lanes / options["batch_size"]
    own |= {"train_freq": options["train_every"], "gradient_steps": max(1, round(steps))}
    if algorithm == "DQN":
        collected = options["batch_size"] / options["training_intensity"]  # per gradient step
        own["target_update_interval"] = round(options["target_update_interval"] * collected)
    return Peer(algorithm, {**own, **_shared(options)})


def _shared(options: Mapping[str, Any]) -> dict[str, Any]:
    words = ("learning_rate", "learning_rate_schedule", "hidden_sizes", "activation")
    return {name: options[name] for name in words if name in options}


# ------------------------------------------------------------------------------------------------------------ the rows


def single(
    name: str,
    game: str,
    steps: int,
    algorithm: str,
    options: Mapping[str, Any],
    limit: float,
    *,
    at_most: bool = False,
    **changes: Any,
) -> Row:
    """One policy alone in a game."""
    return Row(
        name=name,
        make=game,
        steps=steps,
        policies={"p": {"algorithm": algorithm, "options": dict(options)}},
        seats=["p"],
        goals=[Goal("return", limit, returns("p"), at_most)],
        **changes,
    )


LINEAR = {"learning_rate_schedule": "linear"}

CARTPOLE_PPO = {**LINEAR, "learning_rate": 1e-3, "n_epochs": 10}
CARTPOLE_A2C = {**LINEAR, "learning_rate": 1e-3, "n_steps": 16, "gae_lambda": 0.95}
CARTPOLE_DQN = {
    **{"learning_rate": 1e-3, "buffer_size": 50_000, "learning_starts": 1_000, "batch_size": 64, "gamma": 0.99},
    **{"train_every": 4, "training_intensity": 16, "tau": 1.0, "target_update_interval": 100, "max_grad_norm": 10.0},
    **{"exploration_fraction": 0.16, "exploration_final_eps": 0.04, "hidden_sizes": [64, 64], "activation": "relu"},
}
ACROBOT_PPO = {**LINEAR, "learning_rate": 1e-3, "gae_lambda": 0.94}
ACROBOT_DQN = {**CARTPOLE_DQN, "learning_rate": 6e-4, "exploration_fraction": 0.12, "target_update_interval": 250}
PENDULUM_PPO = {"learning_rate": 1e-3, "n_steps": 256, "n_epochs": 10, "gamma": 0.9, "minibatch_size": 128}
PENDULUM = {
    **{"learning_rate": 1e-3, "buffer_size": 20_000, "learning_starts": 1_000, "batch_size": 256, "gamma": 0.98},
    **{"train_every": 1, "training_intensity": 256, "tau": 0.005, "hidden_sizes": [64, 64], "activation": "relu"},
}
PENDULUM_NOISE = {**PENDULUM, "action_noise": "gaussian", "noise_std": 0.1}
MOUNTAIN_CAR = {**PENDULUM, "buffer_size": 100_000, "gamma": 0.99, "action_noise": "correlated", "noise_std": 0.5}
LANDER_PPO = {
    **{**LINEAR, "learning_rate": 1e-3, "n_steps": 512, "minibatch_size": 256},
    **{"gamma": 0.999, "gae_lambda": 0.98, "ent_coef": 0.01},
}
LANDER_DQN = {**ACROBOT_DQN, "batch_size": 128, "training_intensity": 32, "hidden_sizes": [256, 256]}
POSITIONS = {**LINEAR, "learning_rate": 1e-3, "n_epochs": 10}
SPREAD_PPO = {
    **{**LINEAR, "learning_rate": 7e-4, "n_steps": 100, "minibatch_size": 1200},
    **{"n_epochs": 10, "gamma": 0.95, "ent_coef": 0.01},
}
TAG_PPO = SPREAD_PPO
FOUR_PPO = {**LINEAR, "learning_rate": 1e-3, "ent_coef": 0.01}
ROCK_PPO = {**LINEAR, "n_steps": 50, "learning_rate": 3e-3, "gamma": 0.9}
TWO_PPO = {**LINEAR, "learning_rate": 1e-3, "n_epochs": 10}
TWO_DQN = {**CARTPOLE_DQN, "training_intensity": 4}


def cartpoles() -> list[Row]:
    """One pole; one whose velocities nobody sees; two."""
    game, unseen = "gymnasium:CartPole-v1", "without_velocities:cartpole"
    ranked = {**CARTPOLE_DQN, "prioritized": True}
    two = {"ppo": {"algorithm": "ppo", "options": TWO_PPO}, "dqn": {"algorithm": "dqn", "options": TWO_DQN}}
    goals = [Goal("return of ppo", 400, returns("ppo")), Goal("return of dqn", 200, returns("dqn"))]
    remembering = {**POSITIONS, "recurrent": "lstm"}
    return [
        single("cartpole-ppo", game, 100_000, "ppo", CARTPOLE_PPO, 475, peer=sb3_on_policy("PPO", CARTPOLE_PPO)),
        single("cartpole-a2c", game, 300_000, "a2c", CARTPOLE_A2C, 400, peer=sb3_on_policy("A2C", CARTPOLE_A2C)),
        single(
            *("cartpole-dqn", game, 50_000, "dqn", CARTPOLE_DQN, 450),
            lanes=1,
            peer=sb3_off_policy("DQN", CARTPOLE_DQN, lanes=1),
        ),
        single("cartpole-dqn-prioritised", game, 50_000, "dqn", ranked, 450, lanes=1),
        single("positions-ppo-recurrent", unseen, 100_000, "ppo", remembering, 400),
        single("positions-ppo-feedforward", unseen, 100_000, "ppo", POSITIONS, 200, at_most=True),
        Row("two-cartpoles", "learning_games:TwoCartPoles", 300_000, two, ["ppo", "dqn"], goals),
    ]


def other_single_games() -> list[Row]:
    """One policy alone."""
    acrobot, pendulum, lander = "gymnasium:Acrobot-v1", "gymnasium:Pendulum-v1", "gymnasium:LunarLander-v3"
    mountain = "gymnasium:MountainCarContinuous-v0"
    hundred = {"lanes": 1, "episodes": 100}
    box2d = {"needs": ("Box2D",)}
    return [
        single(
            *("acrobot-ppo", acrobot, 300_000, "ppo", ACROBOT_PPO, -95),
            lanes=16,
            peer=sb3_on_policy("PPO", ACROBOT_PPO),
        ),
        single(
            *("acrobot-dqn", acrobot, 100_000, "dqn", ACROBOT_DQN, -95),
            lanes=1,
            peer=sb3_off_policy("DQN", ACROBOT_DQN, lanes=1),
        ),
        single(
            *("pendulum-ppo", pendulum, 200_000, "ppo", PENDULUM_PPO, -300),
            lanes=4,
            episodes=100,
            peer=sb3_on_policy("PPO", PENDULUM_PPO),
        ),
        single(
            *("pendulum-sac", pendulum, 20_000, "sac", PENDULUM, -180),
            **hundred,
            peer=sb3_off_policy("SAC", PENDULUM, lanes=1),
        ),
        single(
            *("pendulum-td3", pendulum, 20_000, "td3", PENDULUM_NOISE, -180),
            **hundred,
            peer=sb3_off_policy("TD3", PENDULUM_NOISE, lanes=1),
        ),
        single(
            *("pendulum-ddpg", pendulum, 20_000, "ddpg", PENDULUM_NOISE, -180),
            **hundred,
            peer=sb3_off_policy("DDPG", PENDULUM_NOISE, lanes=1),
        ),
        single(
            *("mountaincar-td3", mountain, 100_000, "td3", MOUNTAIN_CAR, 88),
            lanes=1,
            peer=sb3_off_policy("TD3", MOUNTAIN_CAR, lanes=1),
        ),
        single(
            *("lunarlander-ppo", lander, 500_000, "ppo", LANDER_PPO, 180),
            **box2d,
            lanes=16,
            peer=sb3_on_policy("PPO", LANDER_PPO),
        ),
        single(
            *("lunarlander-dqn", lander, 100_000, "dqn", LANDER_DQN, 100),
            **box2d,
            lanes=1,
            peer=sb3_off_policy("DQN", LANDER_DQN, lanes=1),
        ),
    ]


def teams() -> list[Row]:
    """Several entities of one policy."""
    spread = {"p": {"algorithm": "ppo", "options": SPREAD_PPO}}
    tag = {"chaser": {"algorithm": "ppo", "options": TAG_PPO}, "prey": {"algorithm": "random"}}
    return [
        Row(
            *("spread-ppo", "pettingzoo:mpe2.simple_spread_v3", 500_000, spread, [["p", "p", "p"]]),
            goals=[Goal("team sum", -50, team_sum("p"))],
            kwargs={"N": 3, "max_cycles": 25},
            lanes=16,
            needs=("mpe2",),
        ),
        Row(
            *("tag-ppo", "pettingzoo:mpe2.simple_tag_v3", 250_000, tag, [["chaser", "chaser", "chaser"], "prey"]),
            goals=[Goal("return of each adversary", 30, returns("chaser"))],
            lanes=16,
            needs=("mpe2",),
        ),
    ]


def duels() -> list[Row]:
    """Two who play against each other."""
    four = {"p": {"algorithm": "ppo", "options": FOUR_PPO}, "random": {"algorithm": "random"}}
    return [
        Row(
            *("four-ppo", "pettingzoo:classic.connect_four_v3", 100_000, four, ["p", "p"]),
            goals=[
                Goal("wins against random, moving first", 0.9, wins("p", seat=0)),
                Goal("wins against random, moving second", 0.9, wins("p", seat=1)),
            ],
            lanes=16,
            evaluation=[["p", "random"], ["random", "p"]],
            episodes=100,
            needs=("pygame",),
        ),
        rock("rock-ppo", "always the same", 6.5, ROCK_PPO, "learning_games:hold"),
        rock(
            *("rock-ppo-recurrent", "what beats the last choice", 8.5),
            {**ROCK_PPO, "recurrent": "lstm"},
            "policies.scripts:beat_last",
        ),
    ]


def rock(name: str, against: str, limit: float, options: Mapping[str, Any], function: str) -> Row:
    """Ten rounds of rock-paper-scissors against a script."""
    scripted = {"algorithm": "scripted", "options": {"function": function}}
    return Row(
        *(name, "matrix", 200_000, {"p": {"algorithm": "ppo", "options": options}, "script": scripted}),
        seats=["p", "script"],
        goals=[Goal(f"points of 10 against {against}", limit, returns("p"))],
        kwargs={"game": "rock_paper_scissors"},
    )


ROWS: Mapping[str, Row] = {row.name: row for row in (*cartpoles(), *other_single_games(), *teams(), *duels())}
