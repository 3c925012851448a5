"""Classes of a user's own that options name: how they are written in a configuration, and loaded.

encoder: "my_module:Net"
encoder: {class: "my_module:Net", options: {width: 32}}

A further loss (`extra_loss`), beside that of an algorithm, is a class as this one:

    class Imitate:
        measured = ("distance",)                                    # optional: names of what it measures

        def __init__(self, observation_space, action_space, *, seed, **options): ...
        def __call__(self, network, batch): ...                     # -> Tensor, or (Tensor, {"distance": Tensor})

It is made once per worker and called for every minibatch, with torch recording; `arena check` calls it once, with a
made-up one. Its gradient is added to that of the algorithm before the group's mean. Its value is logged as
`extra_loss`, what it measures as `extra_<name>`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Space
from msgspec import Meta
from torch import Tensor, nn

from arena.errors import ConfigError, located, nearest, shorten
from arena.game.spaces import leaves_of
from arena.registry import check_kinds, load_object, option_parameters, where_defined, where_raised
from policies.common.tensors import to_tensors
from policies.networks.actor_critic import Encoder
from policies.networks.recurrent import RecurrentEncoder

Extension = Annotated[str, Meta(min_length=1)] | dict[str, Any]
"""`package.module:Class`, or `{class: ..., options: {...}}`."""


_CALLS = {
    "encoder": ("space", "generator"),
    "extra_loss": ("observation_space", "action_space", "seed=..."),
}


class LoadedClass(NamedTuple):
    """A class of the user's own and its options."""

    kind: Any
    options: Mapping[str, Any]
    name: str

    def made(self, *arguments: Any, option: str, **more: Any) -> Any:
        """An instance; `option` names the class in the ConfigError that other arguments, or any error, raise."""
        with located(inside=f"options.{option}"):
            check_kinds(self.kind, self.options)
        try:
            return self.kind(*arguments, **more, **self.options)
        except Exception as error:
            taken = option_parameters(self.kind, len(arguments))
            known = [name for name in taken.names if name not in more]
            for name in self.options if isinstance(error, TypeError) and not taken.open else ():
                if name not in known:
                    text = f"{self.name!r} has no option {name!r}; {nearest(name, known)}"
                    raise ConfigError(text, path=f"options.{option}.options") from error
            call = ", ".join([*_CALLS[option], "**options"])
            what = f"cannot be made as {self.name.rpartition(':')[2]}({call})"
            raise self.failure(what, error, option) from error

    def failure(self, what: str, error: Exception, option: str) -> ConfigError:
        """An error in this class as a mistake of the user's, with the line that raised it."""
        if isinstance(error, ConfigError):
            return error
        message = f"{self.name!r} {what}: {type(error).__name__}: {error}{where_raised(error)}"
        return ConfigError(message, path=f"options.{option}")


def load_extension(spec: str | Mapping[str, Any], option: str) -> LoadedClass:
    """The class that an option of this name names."""
    entry: Mapping[str, Any] = {"class": spec} if isinstance(spec, str) else spec
    options = entry.get("options") or {}
    has_form = isinstance(entry.get("class"), str) and {*entry} <= {"class", "options"}
    if not has_form or not isinstance(options, Mapping):
        raise ConfigError(
            f'found {spec!r}; expected "package.module:Class", or {{class: "package.module:Class", options: {{...}}}}',
            path=f"options.{option}",
        )
    with located(path=f"options.{option}"):
        kind = load_object(entry["class"])
        if not callable(kind):
            raise ConfigError(f"{entry['class']!r} is no class")
    return LoadedClass(kind, options, entry["class"])


OPTION = "extra_loss"


class ExtraLoss:
    """A loss of the user; `names` are those of its metrics, `spec` is the option.

    Raises:
        ConfigError: there is no such class, it cannot be called, or `measured` is no list of names.
    """

    def __init__(
        self, spec: str | Mapping[str, Any], observation_space: Space[Any], action_space: Space[Any], *, seed: int
    ) -> None:
        self._loaded = loaded = load_extension(spec, OPTION)
        self._loss = loaded.made(observation_space, action_space, option=OPTION, seed=seed)
        self._measured = getattr(self._loss, "measured", ())
        if not callable(self._loss) or not all(isinstance(name, str) for name in self._measured):
            raise ConfigError(
                f"{loaded.name!r} needs a method __call__(network, batch), and may have `measured`, a tuple of names",
                path=f"options.{OPTION}",
            )
        self.names = ("extra_loss", *(f"extra_{name}" for name in self._measured))

    def backward(self, network: nn.Module, batch: Any) -> list[float]:
        """Adds its gradient to `grad` of the weights; returns the values of `names`."""
        loss, measured = self._called(network, batch)
        torch.autograd.backward([loss])
        return self._values(loss, measured)

    def fault(self, values: Sequence[float]) -> str:
        """What is wrong with these values of `names`; empty: all are finite."""
        wrong = [f"{name} {one}" for name, one in zip(self.names, values, strict=True) if not math.isfinite(one)]
        if not wrong:
            return ""
        where = where_defined(self._loaded.kind, "__call__")
        return f"{self._loaded.name!r} returned {shorten(wrong)}{where}; expected finite numbers"

    def try_out(self, network: nn.Module, batch: Any) -> str:
        """Calls it once; changes no `grad` of the weights. Errors become ConfigErrors; returns a warning, or ''."""
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        try:
            loss, measured = self._called(network, batch)
            if all(one is None for one in torch.autograd.grad([loss], weights, allow_unused=True)):
                raise ValueError("its value depends on no weight of the network")
            # No error: it may be NaN where no made-up row is one that the loss selects.
            return self.fault(self._values(loss, measured))
        except Exception as error:
            raise self._loaded.failure("fails on a made-up batch", error, OPTION) from error

    def _called(self, network: nn.Module, batch: Any) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        with torch.enable_grad():
            found = self._loss(network, batch)
        loss, measured = found if isinstance(found, tuple) else (found, {})
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            many = isinstance(loss, Tensor) and loss.numel() != 1
            raise ValueError(
                (f"found a tensor of shape {[*loss.shape]}" if many else f"found {loss!r:.80}")
                + "; expected a tensor of one number that depends on the weights"
                + (", such as its `.mean()`" if many else "")
            )
        return loss, measured

    def _values(self, loss: Tensor, measured: Mapping[str, Tensor | float]) -> list[float]:
        if {*measured} != {*self._measured}:
            raise ValueError(
                f"{type(self._loss).__name__} has measured {sorted(measured)}; its `measured` says {[*self._measured]}"
            )
        values = (loss, *(measured[name] for name in self._measured))
        return [float(value.detach() if isinstance(value, Tensor) else value) for value in values]


_TRIED_ROWS = 2


def _form(found: Any) -> str:
    """`float32 [2, 3]`; of what is no tensor, its type."""
    return (
        f"{found.dtype} {[*found.shape]}".removeprefix("torch.") if isinstance(found, Tensor) else type(found).__name__
    )


class UserEncoder(Encoder):
    """A module of the user: `Net(space, generator, **options)`, with `features` and `forward(leaves)`.

    Torch differentiates it. Actor and critic share it; in algorithms with critics of actions it belongs to the critics.

    Raises:
        ConfigError: it is no module, has no `features`, or returns something else than [N, features].
    """

    def __init__(self, space: Space[Any], spec: str | Mapping[str, Any], generator: torch.Generator) -> None:
        nn.Module.__init__(self)
        loaded = load_extension(spec, "encoder")
        module = loaded.made(space, generator, option="encoder")
        features = getattr(module, "features", None)
        if not isinstance(module, nn.Module) or not isinstance(features, int) or features < 1:
            raise ConfigError(
                f"{loaded.name!r} is no torch module with an attribute `features`, a whole number of at least 1",
                path="options.encoder",
            )
        self.own, self.features, self.learns = module, features, True
        leaves = leaves_of(space)
        tried = [to_tensors(np.zeros((_TRIED_ROWS, *leaf.shape), leaf.dtype)) for leaf in leaves]
        try:
            with torch.no_grad():
                found = self.own(tried)
        except Exception as error:
            given = ", ".join(
                " ".join(filter(None, (leaf.place, _form(one)))) for leaf, one in zip(leaves, tried, strict=True)
            )
            raise loaded.failure(f"fails on two rows of zeros, leaves = [{given}]", error, "encoder") from error
        expected = f"float32 {[_TRIED_ROWS, features]}"
        if _form(found) != expected:
            raise ConfigError(
                f"{loaded.name!r} gives {_form(found)} for {_TRIED_ROWS} rows; expected {expected}: [N, features]",
                path="options.encoder",
            )

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        return self.own(leaves)  # type: ignore[no-any-return]


def unseeded(space: Space[Any], spec: str | Mapping[str, Any]) -> list[str]:
    """The weights of a user's encoder that are drawn from torch's global random stream instead of its generator."""
    made = []
    for seed in range(2):
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            made.append(UserEncoder(space, spec, torch.Generator().manual_seed(0)).own.named_parameters())
    return [name for (name, one), (_, other) in zip(*made, strict=True) if not torch.equal(one, other)]


def user_encoder(network: nn.Module) -> Any:
    """The module of the user that the option `encoder` has named, in a network or a part of it, whichever is around it.

    Where several parts have one, that of the first part: `user_encoder(network.critics)` is that of the critics.

    Raises:
        ConfigError: there is none.
    """
    for module in network.modules():
        if isinstance(module, UserEncoder):
            return module.own
    raise ConfigError("the network has no encoder of your own; name one", path="options.encoder")


def encoder_of(
    options: Any,
    space: Space[Any],
    generator: torch.Generator,
    *,
    around: Callable[[Encoder], Encoder] | None = None,
    **memory: Any,
) -> Encoder:
    """The encoder that the options `encoder`, `recurrent` and `hidden_size` say.

    `around` makes what the memory comes after of the encoder of observations; `memory`: see `RecurrentEncoder`.
    """
    inner = None
    if options.recurrent is None or options.encoder is not None or around is not None:  # else the memory's makes it
        inner = make_encoder(space, generator, options.encoder)
        inner = inner if around is None else around(inner)
    if options.recurrent is None:
        return inner  # type: ignore[return-value]  # it was made
    size = {"kind": options.recurrent, "hidden_size": options.hidden_size}
    return RecurrentEncoder(space, **size, generator=generator, inner=inner, **memory)


def make_encoder(space: Space[Any], generator: torch.Generator, spec: str | Mapping[str, Any] | None) -> Encoder:
    """The encoder that an algorithm's option `encoder` says; None: the built-in one."""
    return Encoder(space, generator) if spec is None else UserEncoder(space, spec, generator)
