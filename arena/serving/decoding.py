"""From the outputs of an exported network to actions: best or sampled, allowed, within bounds. NumPy alone.

    kind               first output             action
    categorical        logits [n]               argmax; sampled: argmax(logits + Gumbel noise)
    values             values [n]               argmax; sampled: with probability epsilon a uniform allowed one
    multi_categorical  logits [sum of nvec]     each part as `categorical`
    bernoulli          logits [k]               logits > 0; sampled: logits + logistic noise > 0
    gaussian           mean [k]                 mean; sampled: + exp(log_std) normal noise; middle + half_width times
                                                it; clipped to low, high
    squashed_gaussian  mean [k], log_std [k]    tanh(mean); sampled: + exp(log_std) normal noise before tanh; scaled
    deterministic      action [k] in [-1, 1]    scaled to low, high

A choice counts from `start`. Forbidden choices (mask 0) have their logit or value replaced by -1e9 before all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.records.formats import (
    Bernoulli,
    Categorical,
    Decoding,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
    Values,
)

Array = NDArray[Any]
Random = Sequence[np.random.Generator]
"""A generator per row."""

FORBIDDEN = -1e9
_DTYPES = ("float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))


class Decoder:
    """Turns outputs [K, ...] into actions [K, *shape] as the environment takes them.

    Attributes:
        outputs: the shapes of the outputs that it reads, without the batch axis.

    Raises:
        ValueError: the parts of the decoding contradict each other.
    """

    def __init__(self, decoding: Decoding) -> None:
        if decoding.dtype not in _DTYPES:
            raise ValueError(f"actions of the unknown dtype {decoding.dtype!r}")
        self._decoding, self._dtype, self._shape = decoding, np.dtype(decoding.dtype), decoding.shape
        self.mask_size, size = 0, int(np.prod(decoding.shape))
        sized: tuple[tuple[Any, ...], ...] = ()  # what has a number for each number of an action
        if isinstance(decoding, (Categorical, Values)):
            self.mask_size, width, sized = decoding.n, decoding.n, ((decoding.start,),)
            self._start: Any = decoding.start
        elif isinstance(decoding, MultiCategorical):
            self.mask_size = width = sum(decoding.nvec)
            sized = decoding.nvec, decoding.start
            self._cuts, self._start = np.cumsum(decoding.nvec)[:-1], np.array(decoding.start)
        elif isinstance(decoding, Bernoulli):
            width = size
        else:
            width, sized = size, (decoding.low, decoding.high)
            if isinstance(decoding, Gaussian):
                scale = decoding.middle or (0.0,) * size, decoding.half_width or (1.0,) * size
                sized = *sized, decoding.log_std, *scale
                self._std = np.exp(np.array(decoding.log_std, np.float64))
            self._low, self._high = (np.array(bound, np.float64) for bound in (decoding.low, decoding.high))
            if isinstance(decoding, Gaussian):
                self._middle, self._reach = (np.array(part, np.float64) for part in scale)
            else:
                with np.errstate(invalid="ignore"):  # a model with infinite bounds is refused when it is described
                    self._middle, self._reach = self._low / 2 + self._high / 2, self._high / 2 - self._low / 2
        if any(len(numbers) != size for numbers in sized):
            raise ValueError(f"actions of the shape {decoding.shape} do not have {max(map(len, sized))} numbers")
        self.outputs = ((width,), (width,)) if isinstance(decoding, SquashedGaussian) else ((width,),)

    def __call__(self, outputs: Sequence[Array], masks: Array | None = None, random: Random | None = None) -> Array:
        """The actions of rows.

        Args:
            outputs: arrays [K, ...] as `outputs` says; further ones are ignored.
            masks: [K, mask_size] which choices are allowed; None: all.
            random: a generator per row, from which actions are sampled; None: the best actions.
        """
        decoding, first = self._decoding, outputs[0]
        actions: Array

        def noisy(values: Array, kind: str, scale: Any = 1) -> Array:
            """With noise of a standard distribution [K, n], each row of its own generator, if there are generators."""
            if random is None:
                return values
            noise = np.stack([getattr(generator, kind)(size=values.shape[1]) for generator in random])
            disturbed: Array = values + scale * noise
            return disturbed

        if masks is not None and self.mask_size:
            first = np.where(np.asarray(masks, np.bool_), first, np.float32(FORBIDDEN))
        if isinstance(decoding, Categorical):
            actions = noisy(first, "gumbel").argmax(-1) + self._start
        elif isinstance(decoding, Values):
            actions = first.argmax(-1) + self._start
            if random is not None:
                explores = np.array([generator.random() < decoding.epsilon for generator in random])
                allowed = np.where(first > FORBIDDEN, 0.0, FORBIDDEN)
                actions = np.where(explores, noisy(allowed, "gumbel").argmax(-1) + self._start, actions)
        elif isinstance(decoding, MultiCategorical):
            parts = np.split(noisy(first, "gumbel"), self._cuts, -1)
            actions = np.stack([part.argmax(-1) for part in parts], -1) + self._start
        elif isinstance(decoding, Bernoulli):
            actions = noisy(first, "logistic") > 0
        else:
            free = first
            if isinstance(decoding, Gaussian):
                free = noisy(first, "normal", self._std)
            elif isinstance(decoding, SquashedGaussian):
                free = np.tanh(noisy(first, "normal", np.exp(outputs[1])))
            # As the environment takes them: between two bounds, -1 low and 1 high; rounding may have passed them.
            low, high = (bound.astype(self._dtype) for bound in (self._low, self._high))
            actions = np.clip((self._middle + self._reach * free).astype(self._dtype), low, high)
        return actions.reshape(len(actions), *self._shape).astype(self._dtype, copy=False)
