"""What a configuration may say about an algorithm of Stable-Baselines3: the parameters of the library's own class.

They have the library's names and defaults. Left out is what the arena knows or does itself (`env`, `seed`, displays),
and what only a program can give. Parameters that are objects in Python are written in another way, see `_DESCRIPTIONS`;
`log_every` and `check_every` are the arena's own.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from msgspec import Meta
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.utils import LinearSchedule

from arena.errors import ConfigError, located, nearest
from arena.registry import load_object
from policies.common.options import (
    SCHEDULED,
    AlgorithmOptions,
    Count,
    Curve,
    Device,
    Fraction,
    Natural,
    Points,
    Positive,
    PositiveFraction,
    Scheduled,
    check_falls,
    check_schedules,
    check_unused,
    is_number,
    is_schedule,
    value_at,
    wrong,
)
from policies.sb3.vec_env import GlobalStreams, Rows, UnplayedVectorEnv

_NOT_TAKEN = {
    *("env", "seed", "verbose", "tensorboard_log", "stats_window_size", "_init_setup_model"),
    *("replay_buffer_class", "rollout_buffer_class", "rollout_buffer_kwargs"),
}
_OF_ARENA = {"log_every", "check_every"}
_NOISES = ("normal", "ornstein_uhlenbeck")
_CLASSES = ("activation_fn", "optimizer_class", "features_extractor_class")  # of policy_kwargs

_UNUSED: tuple[tuple[str, str, object], ...] = (  # without effect where the second has this value
    ("sde_sample_freq", "use_sde", False),
    ("use_sde_at_warmup", "use_sde", False),
    ("rms_prop_eps", "use_rms_prop", False),
    ("target_noise_clip", "target_policy_noise", 0),
    ("target_entropy", "ent_coef", is_number),
)

_DESCRIPTIONS = {  # of parameters that are written in another way than in Python, or are the arena's own
    "policy": "MlpPolicy, CnnPolicy or MultiInputPolicy; null: as the observations ask for",
    "learning_rate": "step size: a number or a schedule",
    "clip_range": "of the policy's ratio: a number or a schedule",
    "clip_range_vf": "of the value function: a number or a schedule; null: none",
    "train_freq": "ticks between two updates",
    "action_noise": "{kind: normal, sigma: 0.1}, or {kind: ornstein_uhlenbeck, sigma: 0.2, theta: 0.15}; null: none",
    "target_kl": "an update ends early where the KL divergence is larger; null: never. For a worker alone",
    "policy_kwargs": "of the library's policy, classes as text, as {net_arch: [64, 64]}",
    "device": "cpu, cuda, cuda:1, or auto: cuda if there is one",
    "log_every": "ticks, at least, from one line of metrics to the next",
    "check_every": "lines of metrics between checks that all workers hold equal weights; 0: never",
}

_PARAMETER = re.compile(r"^ *:param (\w+): (.*(?:\n +[^:A-Z( ].*)*)", re.MULTILINE)  # up to a line that begins anew

_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("n_steps", "batch_size", "n_epochs", "buffer_size", "train_freq"), Count),
    **dict.fromkeys(("target_update_interval", "policy_delay", "log_every"), Count),
    **dict.fromkeys(("gamma", "gae_lambda"), Fraction),
    **dict.fromkeys(("exploration_fraction", "exploration_initial_eps", "exploration_final_eps"), Fraction),
    **dict.fromkeys(("learning_rate", "clip_range"), Scheduled),
    "clip_range_vf": Scheduled | None,
    "tau": PositiveFraction,
    "max_grad_norm": Positive,
    "target_kl": Positive | None,
    "learning_starts": Natural,
    "gradient_steps": Annotated[int, Meta(ge=-1)],
    "check_every": Natural,
    "device": Device,
}
"""Types of options whose range the library itself would check late, or never; it checks all others."""


def options_class(library: type[BaseAlgorithm]) -> type[Any]:
    """A struct of what a configuration may say; its `__post_init__` refuses contradictions."""
    parameters = inspect.signature(library).parameters.values()
    defaults = {item.name: item.default for item in parameters if item.name not in _NOT_TAKEN}
    defaults = {**defaults, "policy": None, "device": "cpu"}
    defaults["log_every"] = 1 if issubclass(library, OnPolicyAlgorithm) else 100
    defaults["check_every"] = 100
    # What the library's own documentation says of each parameter, in one line.
    documented = {
        name: " ".join(text.replace("`", "").split()).rstrip(".,")
        for name, text in _PARAMETER.findall(inspect.getdoc(library) or "")
    }
    descriptions = {**documented, **_DESCRIPTIONS}
    fields = [
        (name, Annotated[_TYPES.get(name, Any), Meta(description=descriptions.get(name, ""))], default)
        for name, default in defaults.items()
    ]

    def check(options: Any) -> None:
        """Refuses what the library itself would find wrong late, or never."""
        if "gradient_steps" in defaults and options.gradient_steps == 0:
            raise wrong("gradient_steps", 0, "at least 1, or -1: as many as there were ticks since the last update")
        check_schedules(options)
        if "action_noise" in defaults and options.action_noise is not None:
            _noise(options.action_noise, 1)
        if "exploration_final_eps" in defaults:
            check_falls(options, "exploration_initial_eps", "exploration_final_eps")
        for name, other, idle in _UNUSED:
            if name in defaults:
                check_unused(options, name, **{other: idle})

    made = msgspec.defstruct(
        "Options", fields, bases=(AlgorithmOptions,), namespace={"__post_init__": check}, frozen=True, kw_only=True
    )
    made.__doc__ = f"What a configuration may say about Stable-Baselines3's {library.__name__}: its own parameters."
    return made


def check_spaces(library: type[BaseAlgorithm], observation_space: Space[Any], action_space: Space[Any]) -> None:
    """Makes the algorithm with default options and lets it act once; `ConfigError`: it cannot take these spaces."""
    try:
        model = from_spaces(library, options_class(library)(), observation_space, action_space)
        space = spaces.Dict(a=observation_space)
        space.seed(0)
        samples = [space.sample()["a"] for _ in range(2)]
        with GlobalStreams(0):
            for observation in samples:
                action, _ = model.predict(observation)
                if np.shape(action) != action_space.shape:
                    raise ValueError(f"its actions have the shape {np.shape(action)}")
    except Exception as error:
        raise ConfigError(
            f"Stable-Baselines3's {library.__name__} cannot play with the observation space {observation_space} and "
            f"the action space {action_space}: {_message(error)}"
        ) from error


def from_spaces(
    library: type[BaseAlgorithm], options: Any, observation_space: Space[Any], action_space: Space[Any]
) -> BaseAlgorithm:
    """An algorithm without a game and almost without a replay; global random streams stay as they are."""
    streams = GlobalStreams(0)
    rows = Rows(UnplayedVectorEnv(observation_space, action_space), streams)
    if hasattr(options, "buffer_size"):
        options = msgspec.structs.replace(options, buffer_size=8)
    with streams, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are shown when the instance that is kept is made
        return made(library, options, rows, seed=0)


def made(library: type[BaseAlgorithm], options: Any, rows: Rows, *, seed: int) -> BaseAlgorithm:
    """The library's algorithm, for the rows of a seat.

    Raises:
        ConfigError: the library does not take the options, or not with the rows' spaces.
    """
    arguments = {name: value for name, value in msgspec.structs.asdict(options).items() if name not in _OF_ARENA}
    for name in SCHEDULED:
        value: Any = arguments.get(name)
        if is_schedule(value):
            straight = isinstance(value, Curve) and value.shape == "linear"
            arguments[name] = (
                LinearSchedule(value.start, value.end, value.until) if straight else LibrarySchedule(value)
            )
    if arguments.get("action_noise") is not None:
        arguments["action_noise"] = _noise(arguments["action_noise"], math.prod(rows.action_space.shape or ()))
    if not arguments["policy"]:
        image = is_image_space(rows.observation_space)
        several = isinstance(rows.observation_space, spaces.Dict)
        arguments["policy"] = "MultiInputPolicy" if several else "CnnPolicy" if image else "MlpPolicy"
    if (kwargs := arguments["policy_kwargs"]) is not None:
        if not isinstance(kwargs, Mapping):
            raise wrong("policy_kwargs", kwargs, "null or a mapping, as {net_arch: [64, 64]}")
        with located(path="options.policy_kwargs"):
            arguments["policy_kwargs"] = {
                key: load_object(value) if key in _CLASSES else value for key, value in kwargs.items()
            }
    if arguments.get("replay_buffer_kwargs") is not None:
        arguments["replay_buffer_kwargs"] = dict(arguments["replay_buffer_kwargs"])  # the library adds to it
    try:
        return library(env=rows, seed=seed, **arguments)
    except Exception as error:
        raise ConfigError(
            f"Stable-Baselines3's {library.__name__} cannot be made with these options: {_message(error)}",
            path="options",
        ) from error


def _message(error: Exception) -> str:
    return error.message if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"


class LibrarySchedule:
    """A schedule as the library calls it; its pickle is always the same, which that of a `partial` is not."""

    def __init__(self, value: Curve | Points) -> None:
        self.value = value

    def __call__(self, progress_remaining: float) -> float:
        return value_at(self.value, 1 - progress_remaining)


def _not_negative(value: object) -> bool:
    return is_number(value) and value >= 0  # type: ignore[operator]


def _noise(value: Any, size: int) -> ActionNoise:
    """Exploration noise for actions of `size` numbers."""
    known = {"kind", "sigma", "theta"} if isinstance(value, Mapping) else set()
    if not isinstance(value, Mapping) or not {"kind", "sigma"} <= {*value} <= known:
        raise wrong("action_noise", value, "null or a mapping, as {kind: normal, sigma: 0.1}")
    if value["kind"] not in _NOISES:
        message = f"unknown kind {value['kind']!r}; {nearest(str(value['kind']), _NOISES)}"
        raise ConfigError(message, path="options.action_noise")
    theta = value.get("theta", 0.15)
    if not _not_negative(value["sigma"]) or not _not_negative(theta):
        raise wrong("action_noise", value, "numbers of at least 0 as sigma and theta")
    mean, sigma = np.zeros(size), np.full(size, float(value["sigma"]))
    if value["kind"] == "normal":
        return NormalActionNoise(mean, sigma)
    return OrnsteinUhlenbeckActionNoise(mean, sigma, theta=theta)
