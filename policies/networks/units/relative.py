"""Attention with relative positions, as seen from the token that attends.

With d the place of the other token minus that of the attending one, divided by `scale` and turned by minus the angle of
the attending one, every pair of tokens has a bucket, and every bucket a learned key and value:

    weight of j for i    softmax over j of  q_i . (k_j + key[bucket of i, j]) / sqrt(width of a head)
    what i gets          sum over j of      weight * (v_j + value[bucket of i, j, type of j])

Nothing as large as tokens^2 x width is made: q . key is computed per bucket and then looked up, and weights are added
up per bucket before they meet the values. Shaw, Uszkoreit and Vaswani 2018 (arXiv 1803.02155), in several dimensions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from arena.game.units import UnitSpace
from policies.networks.units.options import Relative, types_with
from policies.networks.units.packing import Layout
from policies.networks.units.tokens import Tokens, UnitParts, facing, has_row_token

_FULL_TURN = 2 * math.pi


class Buckets(NamedTuple):
    """The buckets of all pairs of tokens: of each pair C buckets, which share it by their weights."""

    of_keys: Tensor  # int64 [C, R, 1, W, W]
    of_values: Tensor  # int64 [C, R, 1, W, W]
    weights: Tensor | None  # float32 [C, R, 1, W, W]; None: C is 1


class RelativePlaces(nn.Module):
    """The keys and values of all buckets, shared by heads and layers; a head has the width `d_head`."""

    def __init__(self, options: Relative, space: UnitSpace, d_head: int, generator: torch.Generator) -> None:
        super().__init__()
        self._options = options
        angle = options.direction or (() if options.angle is None else (options.angle,))
        self._positions = types_with(space, options.position)
        self._angles = types_with(space, angle) if angle else {}
        self._types, self._has_row_token = list(space.types), has_row_token(space)
        self.buckets = options.buckets
        kinds = len(self._types) + self._has_row_token if options.by_type else 1
        self.keys = nn.Parameter(torch.empty(self.buckets + 1, d_head).normal_(0.0, 0.05, generator=generator))
        self.values = nn.Parameter(
            torch.empty((self.buckets + 1) * kinds, d_head).normal_(0.0, 0.2, generator=generator)
        )

    @torch.no_grad()
    def buckets_of(self, parts: UnitParts, tokens: Tokens, layout: Layout) -> Buckets:
        """The buckets of all pairs of tokens of a batch, whose extra leaves are the units as the game gives them."""
        axes = len(self._options.position)
        columns, kinds = [], []  # of each token: position, whether it has one, cosine and sine of its angle; its type
        for kind, (name, units) in enumerate(zip(self._types, parts.extra, strict=True)):
            features = units.values
            column = features.new_zeros(len(features), axes + 3)
            column[:, axes + 1] = 1.0
            if name in self._positions:
                column[:, :axes] = features[:, self._positions[name]]
                column[:, axes] = 1.0
            if name in self._angles:
                column[:, axes + 1 :] = facing(features[:, self._angles[name]])
            columns.append(column)
            kinds.append(column.new_full((len(features),), kind))
        if self._has_row_token:
            columns.append(tokens.rows.new_zeros((len(tokens.lengths), axes + 3)).float())
            kinds.append(columns[-1].new_full((len(tokens.lengths),), len(self._types)))
        described = torch.cat([torch.cat(columns), torch.cat(kinds).unsqueeze(1)], 1)
        described = layout.pack(tokens.in_rows(described))
        place, known, turn, kind = described.split([axes, 1, 2, 1], -1)  # type: ignore[no-untyped-call]
        offset = (place.unsqueeze(1) - place.unsqueeze(2)) / self._options.scale  # [R, W, W, axes]: attending, other
        if self._angles:
            cosine, sine = turn.unsqueeze(2).unbind(-1)
            x, y = offset.unbind(-1)
            offset = torch.stack([x * cosine + y * sine, y * cosine - x * sine], -1)
        found, weights = _buckets(self._options, offset)
        both = (known.unsqueeze(1) * known.unsqueeze(2)).squeeze(-1) > 0
        found = torch.where(both, found, self.buckets)
        of_values = found
        if self._options.by_type:
            kinds_in_all = len(self._types) + self._has_row_token
            of_values = found * kinds_in_all + kind.squeeze(-1).long().unsqueeze(1)
        shares = None if weights is None else weights.unsqueeze(2)
        return Buckets(found.unsqueeze(2), of_values.unsqueeze(2), shares)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, buckets: Buckets) -> Tensor:
        """Outputs of attention for queries, keys and values, all [R, heads, W, d_head]; `mask` as of `Layout`."""
        shape = (*queries.shape[:3], queries.shape[2])
        by_bucket = queries @ self.keys.t()  # [R, heads, W, buckets]
        found = [by_bucket.gather(-1, one.expand(shape)) for one in buckets.of_keys]
        if buckets.weights is not None:
            found = [torch.stack([part * share for part, share in zip(found, buckets.weights, strict=True)]).sum(0)]
        logits = queries @ keys.transpose(-1, -2) + found[0]
        logits = logits / math.sqrt(queries.shape[-1])
        attention = (logits if mask is None else logits + mask).softmax(-1)
        mass = attention.new_zeros(*shape[:3], len(self.values))
        for number, one in enumerate(buckets.of_values):
            share = attention if buckets.weights is None else attention * buckets.weights[number]
            mass = mass.scatter_add(-1, one.expand(shape), share)
        return attention @ values + mass @ self.values


def _buckets(options: Relative, offset: Tensor) -> tuple[Tensor, Tensor | None]:
    """Buckets int64 [C, R, W, W] of differences [R, W, W, axes], and their weights; None: C is 1."""
    extents = options.extents
    if options.kind == "grid":
        bounds = offset.new_tensor(extents)
        cells = (offset.clamp(-bounds, bounds).round() + bounds).long()
        strides = torch.tensor([math.prod(2 * extent + 1 for extent in extents[:axis]) for axis in range(len(extents))])
        return (cells * strides.to(cells.device)).sum(-1).unsqueeze(0), None
    parts: list[tuple[Tensor, Tensor]] = []  # of angle, of distance: two buckets and the share of the second
    if options.kind != "distance":
        turn = torch.atan2(offset[..., 1], offset[..., 0]).remainder(_FULL_TURN) * (extents[0] / _FULL_TURN)
        lower = turn.floor()
        parts.append((torch.stack([lower, lower + 1]).long().remainder(extents[0]), turn - lower))
    if options.kind != "radial":
        count = extents[-1]
        length = torch.linalg.vector_norm(offset, dim=-1)
        lower = length.floor().clamp_max(count - 1)
        parts.append((torch.stack([lower, lower + 1]).clamp_max(count - 1).long(), (length - lower).clamp(0.0, 1.0)))
    if not options.interpolate:
        chosen = [found[0] for found, _ in parts]
        return (chosen[0] if len(chosen) == 1 else chosen[0] + extents[0] * chosen[1]).unsqueeze(0), None
    found, share = parts[0]
    weights = torch.stack([1 - share, share])
    if len(parts) == 2:
        farther, beyond = parts[1]
        found = torch.cat([found + extents[0] * one for one in farther])
        weights = torch.cat([weights * (1 - beyond), weights * beyond])
    return found, weights
