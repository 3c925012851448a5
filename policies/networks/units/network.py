"""Actor and critic of games with units.

    tokens    per type Linear, ReLU, LayerNorm of its features and the global ones; without any, a learned vector
    blocks    x + Attention(LN(x)), then x + W2 GELU(W1 LN(x)); among the tokens of one row (Vaswani et al. 2017, arXiv
              1706.03762; pre-norm: Xiong et al. 2020, arXiv 2002.04745)
    Choice    Linear of the actor's token; Select: query of the actor . key of the actee / sqrt(d_qk)
    value     Linear of the mean over all tokens of the row, hidden ones included

A visible token never attends to a hidden one, so hidden units change the value alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from arena.game.units import Choice, UnitSpace
from policies.common.columns import Column
from policies.networks.actor_critic import UnsetLinear, linear
from policies.networks.heads import FORBIDDEN, Decisions, OfferedActions, UnitHead
from policies.networks.units.options import Transformer
from policies.networks.units.packing import Layout
from policies.networks.units.relative import Buckets, RelativePlaces
from policies.networks.units.tokens import ChoiceTensors, Tokens, UnitInputs, UnitParts, has_row_token, parts_of

_BLOCK_DEVIATION = 0.02  # of initial weights in blocks: they begin close to the identity
_CHOICE_GAIN = 0.01  # first policies are close to uniform


class Embedding(nn.Module):
    """Features [M, inputs] of one kind of token to [M, d_model]; without features a learned vector."""

    def __init__(self, inputs: int, d_model: int, generator: torch.Generator) -> None:
        super().__init__()
        self.linear = self.norm = None
        if inputs == 0:
            self.vector = nn.Parameter(torch.empty(d_model).normal_(generator=generator))
            return
        self.linear = UnsetLinear(inputs, d_model)
        bound = 1 / math.sqrt(inputs)  # with biases of 0, LayerNorm would forget how large a single feature is
        for weights in (self.linear.weight, self.linear.bias):
            nn.init.uniform_(weights, -bound, bound, generator)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, features: Tensor) -> Tensor:
        if self.linear is None or self.norm is None:
            return self.vector.expand(len(features), -1)
        return self.norm(functional.relu(self.linear(features)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """A pre-norm block of a transformer."""

    def __init__(self, d_model: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self._heads = heads
        self.attention_norm = nn.LayerNorm(d_model)
        self.queries_keys_values = UnsetLinear(d_model, 3 * d_model)
        self.out = UnsetLinear(d_model, d_model)
        self.hidden_norm = nn.LayerNorm(d_model)
        self.hidden = UnsetLinear(d_model, 4 * d_model)
        self.down = UnsetLinear(4 * d_model, d_model)
        for layer in (self.queries_keys_values, self.out, self.hidden, self.down):
            nn.init.normal_(layer.weight, 0.0, _BLOCK_DEVIATION, generator)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, layout: Layout, places: RelativePlaces | None, buckets: Buckets | None) -> Tensor:
        """Tokens [M, d_model] after the block."""
        packed = layout.pack(self.queries_keys_values(self.attention_norm(x)))
        split = packed.view(*layout.shape, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = split.unbind()  # [R, heads, W, d_head]
        if places is None or buckets is None:
            found = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=layout.mask)
        else:
            found = places.attend(queries, keys, values, layout.mask, buckets)
        x = x + self.out(layout.unpack(found.transpose(1, 2).flatten(2)))
        return x + self.down(functional.gelu(self.hidden(self.hidden_norm(x))))  # type: ignore[no-any-return]


class UnitEncoder(nn.Module):
    """What a row sees to one vector per token."""

    learns = True  # as of `policies.networks.actor_critic.Encoder`, and what follows
    critic_features: int | None = None

    def __init__(self, space: UnitSpace, options: Transformer, generator: torch.Generator) -> None:
        super().__init__()
        features, globals_ = UnitInputs(space, options).features, len(space.global_features)
        self._d_model = d_model = options.d_model
        self.embeddings = nn.ModuleList(Embedding(count + globals_, d_model, generator) for count in features.values())
        self.row = Embedding(globals_, d_model, generator) if has_row_token(space) else None
        self.blocks = nn.ModuleList(Block(d_model, options.heads, generator) for _ in range(options.layers))
        self.places = None
        if options.relative is not None:
            self.places = RelativePlaces(options.relative, space, d_model // options.heads, generator)

    def forward(self, parts: UnitParts, tokens: Tokens, layout: Layout) -> Tensor:
        """All tokens [M, d_model], row by row."""
        columns = []
        for embedding, units in zip(self.embeddings, parts.units, strict=True):
            if not len(units.values):
                continue  # an absent type would cost as many operations as any other
            features = units.values
            if parts.globals is not None:
                features = torch.cat([features, units.spread(parts.globals)], 1)
            columns.append(embedding(features))
        if self.row is not None:
            rows_alone = tokens.rows.new_empty(len(tokens.lengths), 0) if parts.globals is None else parts.globals
            columns.append(self.row(rows_alone))
        if not len(tokens.rows):
            return torch.zeros(0, self._d_model, device=tokens.rows.device)
        x: Tensor = columns[0] if len(columns) == 1 else tokens.in_rows(torch.cat(columns))
        buckets = None if self.places is None else self.places.buckets_of(parts, tokens, layout)
        for block in self.blocks:
            x = block(x, layout, self.places, buckets)
        return x


class ChoiceHead(nn.Module):
    """Logits of labels."""

    def __init__(self, d_model: int, labels: int, generator: torch.Generator) -> None:
        super().__init__()
        self.linear = linear(d_model, labels, _CHOICE_GAIN, generator)

    def forward(self, x: Tensor, tokens: Tokens, shown: ChoiceTensors) -> OfferedActions:
        """What the actors choose from; `x` are all tokens [M, d_model]."""
        logits = self.linear(x.index_select(0, tokens.places(shown.actors))).to(self.linear.weight.dtype)
        if shown.mask is not None:
            logits = logits.masked_fill(shown.mask.values == 0, FORBIDDEN)
        return OfferedActions(shown.actors, logits)


class SelectHead(nn.Module):
    """Logits of actees."""

    def __init__(self, d_model: int, d_qk: int, generator: torch.Generator) -> None:
        super().__init__()
        self._scale = 1 / math.sqrt(d_qk)
        self.query, self.key = (linear(d_model, d_qk, 1.0, generator) for _ in range(2))

    def forward(self, x: Tensor, tokens: Tokens, shown: ChoiceTensors) -> OfferedActions:
        assert shown.actees is not None
        if not len(shown.actors.values):
            return OfferedActions(shown.actors, x.new_zeros(0, 1))
        queries = self.query(x.index_select(0, tokens.places(shown.actors)))
        keys = self.key(x.index_select(0, tokens.places(shown.actees)))
        choices = np.repeat(shown.actees.lengths, shown.actors.lengths)  # [D]
        begins = np.repeat(shown.actees.offsets, shown.actors.lengths)
        ends = np.cumsum(choices)
        place = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - choices, choices)  # of each pair, its choice
        actor = np.repeat(np.arange(len(choices)), choices)
        actor_index, key_index, place_index = (
            torch.from_numpy(index).to(x.device) for index in (actor, np.repeat(begins, choices) + place, place)
        )
        pairs = (queries.index_select(0, actor_index) * keys.index_select(0, key_index)).sum(-1) * self._scale
        pairs = pairs.to(self.key.weight.dtype)
        if shown.mask is not None:
            pairs = pairs.masked_fill(shown.mask.values == 0, FORBIDDEN)
        logits = pairs.new_full((len(choices), int(choices.max(initial=1))), FORBIDDEN)
        return OfferedActions(shown.actors, logits.index_put((actor_index, place_index), pairs))


class UnitActor(nn.Module):
    """Observations of units to a distribution over decisions."""

    def __init__(self, space: UnitSpace, head: UnitHead, options: Transformer, generator: torch.Generator) -> None:
        super().__init__()
        options.check(space)
        self.head = head
        self._space = space
        self.encoder = UnitEncoder(space, options, generator)
        self.actors = nn.ModuleList(
            ChoiceHead(options.d_model, len(kind.labels), generator)
            if isinstance(kind, Choice)
            else SelectHead(options.d_model, options.d_qk, generator)
            for kind in space.actions.values()
        )

    def forward(self, leaves: Sequence[Column], mask: None = None) -> Decisions:
        """The distribution of the decisions of N rows, given as leaves that `UnitInputs` has made."""
        parts, tokens, layout = self._read(leaves)
        return self._decisions(self.encoder(parts, tokens, layout), tokens, parts)

    def _read(self, leaves: Sequence[Column]) -> tuple[UnitParts, Tokens, Layout]:
        parts, device = parts_of(self._space, leaves), leaves[0].device
        tokens = Tokens(parts, self._space, device)
        return parts, tokens, Layout(tokens.lengths, tokens.hidden, device)

    def _decisions(self, x: Tensor, tokens: Tokens, parts: UnitParts) -> Decisions:
        offered = [actor(x, tokens, shown) for actor, shown in zip(self.actors, parts.shown, strict=True)]
        return self.head.distribution(offered, None)


class UnitActorCritic(UnitActor):
    """What a policy-gradient algorithm learns in games with units; its methods are those of `ActorCritic`."""

    memory_size = 0

    def __init__(self, space: UnitSpace, head: UnitHead, options: Transformer, generator: torch.Generator) -> None:
        super().__init__(space, head, options, generator)
        self.critic_encoder = UnitEncoder(space, options, generator) if options.critic == "separate" else None
        self.critic = UnsetLinear(options.d_model, 1)
        nn.init.zeros_(self.critic.weight)
        nn.init.zeros_(self.critic.bias)

    def policy(self, leaves: Sequence[Column], mask: None = None, lengths: None = None) -> Decisions:
        """The distribution of decisions for leaves of N rows, masks among them; rows never come in sequences."""
        return self(leaves)  # type: ignore[no-any-return]

    def act(self, leaves: Sequence[Column], mask: None = None) -> tuple[Decisions, None]:
        return self(leaves), None

    def value(self, leaves: Sequence[Column]) -> Tensor:
        """V(s), [N]."""
        parts, tokens, layout = self._read(leaves)
        return self._values((self.critic_encoder or self.encoder)(parts, tokens, layout), tokens)

    def policy_and_value(
        self, leaves: Sequence[Column], mask: None = None, lengths: None = None
    ) -> tuple[Decisions, Tensor]:
        """`policy` and `value` from one reading of the observations."""
        parts, tokens, layout = self._read(leaves)
        x = self.encoder(parts, tokens, layout)
        of_critic = x if self.critic_encoder is None else self.critic_encoder(parts, tokens, layout)
        return self._decisions(x, tokens, parts), self._values(of_critic, tokens)

    def _values(self, x: Tensor, tokens: Tokens) -> Tensor:
        """The critic of the mean of each row's tokens; its layer is linear, so the mean is taken of its outputs."""
        shares = torch.from_numpy((1 / np.maximum(tokens.lengths, 1)).astype(np.float32)).to(x.device)
        values = (x @ self.critic.weight[0]).to(self.critic.weight.dtype)
        sums = values.new_zeros(len(tokens.lengths)).index_add(0, tokens.rows, values)
        return sums * shares + self.critic.bias


class LeafEncoder(nn.Identity):
    """An encoder of critics and actors that see the leaves themselves."""

    memory_size = 0


class UnitCritics(nn.Module):
    """Several critics of units, which share nothing; each gives V and, in place of logits, A of all choices."""

    def __init__(self, critics: Sequence[UnitActorCritic]) -> None:
        super().__init__()
        self.encoder = LeafEncoder()
        self.members = nn.ModuleList(critics)

    def forward(self, leaves: Sequence[Column], actions: None = None) -> list[tuple[Decisions, Tensor]]:
        return [critic.policy_and_value(leaves) for critic in self.members]  # type: ignore[operator]
