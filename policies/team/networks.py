"""Networks of a team: an encoder of what all entities see, actors that see their own, critics that see everything.

    leaves of all entities --encoder--> joint features --by_entity--> features of one --actor--> outputs for its action
                                            |
                     actions of all --------+--critics--> a value for each entity

The encoder has weights where observations are images; they belong to the critics, as in `policies.networks.critics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from torch import Tensor, nn
from torch.nn import functional

from arena.game.spaces import leaves_of
from arena.game.units import UnitSpace
from policies.common.columns import Column, cat
from policies.common.options import wrong
from policies.networks.actor_critic import Encoder, linear, mlp
from policies.networks.critics import Critics, Temperature
from policies.networks.heads import Decisions, UnitHead
from policies.networks.units.network import UnitActorCritic
from policies.networks.units.options import Transformer
from policies.networks.units.packing import Layout
from policies.networks.units.tokens import Tokens, UnitParts


def masked(seen: Tensor, acts: Tensor) -> Tensor:
    """Joint features [N, E * (F + 1)] of what each entity sees, [N, E, F], and whether it acts, [N, E]."""
    flags = acts.float().unsqueeze(-1)  # [N, E, 1]
    return torch.cat([seen * flags, flags], -1).flatten(1)


class JointEncoder(Encoder):
    """Joint leaves to features [N, E * (of_one + 1)]: what each entity sees, masked, and whether it acts.

    `space` is that of one entity's observations, of which there are `of_one` features; `own` encodes them, None: the
    built-in one. Where `own` has a memory, each entity remembers for itself, and goes on with that where it acts: the
    last of the joint leaves is what all remember, [N, E * memory_size].
    """

    def __init__(
        self, space: Space[Any], entities: int, generator: torch.Generator, own: Encoder | None = None
    ) -> None:
        if own is None:
            super().__init__(space, generator)
        else:
            nn.Module.__init__(self)
            self.features, self.learns, self.memory_size = own.features, own.learns, own.memory_size
        self.own: Any = own
        self.entities, self.of_one = entities, self.features
        self.features = self.state_features = entities * (self.of_one + 1)
        self._of_row = len(leaves_of(space)) + (self.memory_size > 0)  # leaves

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        *seen, acts = leaves
        return self.joined(self.rows([leaf.flatten(0, 1) for leaf in seen]), seen, acts)

    def ticked(self, leaves: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        *seen, acts, memory = leaves
        before = memory.view(acts.numel(), -1)
        features, after = self.own.ticked(self.observed([*(leaf.flatten(0, 1) for leaf in seen), before]))
        after = torch.where(acts.reshape(-1, 1) > 0, after, before).view_as(memory)
        return self.joined(features.view(*acts.shape, -1), seen, acts), after

    def unrolled(self, leaves: Sequence[Tensor], lengths: Tensor | None) -> Tensor:
        if lengths is None or not self.memory_size:
            return self(leaves)  # type: ignore[no-any-return]
        *seen, acts, memory = leaves
        # The points of a sequence at which an entity acts are a sequence of that entity, if there are any.
        sequences = torch.arange(len(lengths), device=acts.device).repeat_interleave(lengths)
        entities = torch.arange(self.entities, device=acts.device)
        numbers = (sequences[:, None] * self.entities + entities).flatten()  # [P * E]
        rows = acts.flatten().nonzero().squeeze(1)
        rows = rows[numbers[rows].argsort(stable=True)]
        counts = numbers[rows].bincount()
        columns = [leaf.flatten(0, 1).index_select(0, rows) for leaf in seen]
        columns.append(memory.view(acts.numel(), -1).index_select(0, rows))
        found = self.own.unrolled(self.observed(columns), counts[counts > 0])
        features = found.new_zeros(acts.numel(), self.of_one).index_copy(0, rows, found)
        return self.joined(features.view(*acts.shape, -1), seen, acts)

    def rows(self, leaves: Sequence[Tensor], entities: int | None = None) -> Tensor:
        """Features [N, e, of_one] of leaves of rows, [N * e, ...], of so many entities; None: of all."""
        leaves = self.observed(leaves)
        found: Tensor = super().forward(leaves) if self.own is None else self.own(leaves)
        return found.view(-1, entities or self.entities, self.of_one)

    def of_rows(self, leaves: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor | None]:
        """The leaves of rows, and whose rows they are, int64 [N], if there is such a leaf after them."""
        return leaves[: self._of_row], leaves[-1] if len(leaves) > self._of_row else None

    def remember(self, leaves: Sequence[Tensor]) -> Tensor:
        """The memory [N, ...] of rows after a tick, of leaves [N, ...] of which the last is that before it."""
        return self.own.ticked(self.observed(leaves))[1]  # type: ignore[no-any-return]

    def observed(self, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
        """Those leaves of rows that entities see, and their memory if they have one: here all."""
        return leaves

    def joined(self, features: Tensor, seen: Sequence[Tensor], acts: Tensor) -> Tensor:
        """Joint features of those of entities [N, E, of_one]; of joint leaves, and flags that say which act [N, E]."""
        return masked(features, acts)

    def by_entity(self, joint: Tensor) -> Tensor:
        """What each entity sees, [N, E, of_one], in joint features."""
        return self._split(joint)[..., :-1]

    def acts(self, joint: Tensor) -> Tensor:
        """Which entities act, float32 [N, E], in joint features."""
        return self._split(joint)[..., -1].detach()

    def state_of(self, joint: Tensor) -> Tensor:
        """What describes the whole game, [N, state_features], in joint features: here all of them."""
        return joint

    def _split(self, joint: Tensor) -> Tensor:
        size = self.of_one + 1
        return joint[:, : self.entities * size].view(-1, self.entities, size)


class StateEncoder(JointEncoder):
    """The same where one part of what entities observe, under the key `state`, is the state of the whole game.

    Entities do not see it: its features follow the joint ones, and `state_of` has them. `make_row_encoder(space)` makes
    the encoder of what they see, the Dict without the state, or its only other part; None: the built-in one.

    Raises:
        ConfigError: observations are no Dict with this key and others.
    """

    def __init__(
        self,
        space: Space[Any],
        entities: int,
        generator: torch.Generator,
        make_row_encoder: Callable[[Space[Any]], Encoder | None],
        *,
        state: str,
    ) -> None:
        if not isinstance(space, spaces.Dict) or state not in space.spaces or len(space.spaces) < 2:
            raise wrong(
                "state",
                state,
                f"a key of what entities observe, which is {space}; put the game into the wrapper `state`, or leave "
                "the option out, and the observations of all entities are the state",
            )
        others = {key: part for key, part in space.items() if key != state}
        seen = spaces.Dict(list(others.items())) if len(others) > 1 else next(iter(others.values()))
        super().__init__(seen, entities, generator, make_row_encoder(seen))
        keys = [leaf.path[0] for leaf in leaves_of(space)]
        self._of_row = len(keys) + (self.memory_size > 0)
        self._state = [place for place, key in enumerate(keys) if key == state]
        self.encoder = Encoder(space[state], generator)
        self.state_features = self.encoder.features + entities
        self.learns = self.learns or self.encoder.learns

    def observed(self, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
        return [leaf for place, leaf in enumerate(leaves) if place not in self._state]

    def joined(self, features: Tensor, seen: Sequence[Tensor], acts: Tensor) -> Tensor:
        """With the state as the first entity that acts has observed it."""
        rows, first = torch.arange(len(acts), device=acts.device), acts.argmax(1)
        state = self.encoder([seen[place][rows, first] for place in self._state])
        return torch.cat([super().joined(features, seen, acts), state], 1)

    def state_of(self, joint: Tensor) -> Tensor:
        """The features of the state, and which entities act."""
        return torch.cat([joint[:, self.entities * (self.of_one + 1) :], self.acts(joint)], 1)


class Actors(nn.Module):
    """One actor for all entities (`shared`), which gets their numbers as one-hot vectors, or an actor for each.

    Each makes `outputs` of the `features` of what one entity sees; where entities have a memory, `encoder` finds them.
    """

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        entities: int,
        shared: bool,
        encoder: Encoder | None = None,
        **layers: Any,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self._names = torch.eye(entities) if shared else torch.zeros(entities, 0)
        inputs, count = features + self._names.shape[1], 1 if shared else entities
        self._each = [mlp(inputs, outputs, gain=0.01, **layers) for _ in range(count)]
        self.members = nn.ModuleList(self._each)

    def forward(self, features: Tensor, first: int = 0) -> Tensor:
        """The outputs [N, e, outputs] for what `e` entities see, [N, e, features], from this one on."""
        names = self._names[first : first + features.shape[1]].to(features.device).expand(len(features), -1, -1)
        inputs = torch.cat([features, names], -1)
        if len(self._each) == 1:
            return self._each[0](inputs.flatten(0, 1)).view(*features.shape[:2], -1)  # type: ignore[no-any-return]
        actors = self._each[first : first + features.shape[1]]
        return torch.stack([actor(part) for actor, part in zip(actors, inputs.unbind(1), strict=True)], 1)

    def of_entities(self, features: Tensor, entities: Tensor) -> Tensor:
        """The outputs [N, outputs] for what rows see, [N, features], which are of these entities, int64 [N]."""
        inputs = torch.cat([features, self._names.to(features.device)[entities]], -1)
        if len(self._each) == 1:
            return self._each[0](inputs)  # type: ignore[no-any-return]
        outputs = torch.stack([actor(inputs) for actor in self._each], 1)  # [N, E, outputs]
        return outputs.gather(1, entities[:, None, None].expand(-1, -1, outputs.shape[2])).squeeze(1)


class ActorsAndCritics(nn.Module):
    """The actors, of the features that the critics' encoder or their own finds for one entity, and the critics.

    `temperature`: of soft actors, if they have one.
    """

    def __init__(self, critics: Critics, actors: Actors, temperature: Temperature | None = None) -> None:
        super().__init__()
        self.critics, self.actors, self.temperature = critics, actors, temperature
        self.memory_size = self.encoder.memory_size + (0 if actors.encoder is None else actors.encoder.memory_size)

    @property
    def encoder(self) -> JointEncoder:
        """The critics' encoder."""
        return cast("JointEncoder", self.critics.encoder)

    @property
    def actors_encoder(self) -> JointEncoder:
        """The encoder of what the actors see."""
        return cast("JointEncoder", self.critics.encoder if self.actors.encoder is None else self.actors.encoder)

    def forward(self, leaves: Sequence[Tensor], places: range | None = None) -> Tensor:
        """The actors' outputs [N * e, outputs] for leaves of rows, [N * e, ...]; each of its own row alone.

        The rows are those of `e` entities, in the `places`; None: of all; or of any, see `JointEncoder.of_rows`.
        """
        leaves, entities = self.encoder.of_rows(leaves)
        if entities is not None:
            return self.actors.of_entities(self.actors_encoder.rows(leaves, 1).squeeze(1), entities)
        places = range(self.encoder.entities) if places is None else places
        features = self.actors_encoder.rows(leaves, len(places))
        return self.actors(features, places.start).flatten(0, 1)  # type: ignore[no-any-return]

    def remember(self, leaves: Sequence[Tensor]) -> Tensor:
        """The memory [N, memory_size] of rows after a tick, of leaves of which the last is the memory before it."""
        leaves, _ = self.encoder.of_rows(leaves)
        *others, _ = leaves
        return self.actors_encoder.remember([*others, self.encoder.remember(leaves)])


class TeamUnitActorCritic(UnitActorCritic):
    """Actor and critic of a team that sees units: the value is made of the mean tokens of all entities of a lane.

    The leaves are those of the row, [N]. If a value is asked for, they are followed by those of all entities of its
    lane, one entity after the other, [N] each, which of them act, [N, E], and the row's place among them, [N].
    """

    def __init__(
        self, space: UnitSpace, head: UnitHead, options: Transformer, generator: torch.Generator, *, entities: int
    ) -> None:
        super().__init__(space, head, options, generator)
        inputs, d_model = entities * (options.d_model + 2), options.d_model
        self.encoder.critic_features = inputs
        layers = linear(inputs, d_model, math.sqrt(2), generator), nn.ReLU(), linear(d_model, 1, 1.0, generator)
        self.critic = nn.Sequential(*layers)  # type: ignore[assignment]
        self._entities = entities
        self._count = len(leaves_of(space, ragged=True)) + (len(space.types) if options.relative else 0)

    def value(self, leaves: Sequence[Column]) -> Tensor:
        """V(s_1, ..., s_E, i), [N]."""
        *joint, acts, places = cast("Sequence[Tensor]", leaves[self._count :])
        parts, tokens, layout = self._read([cat(joint[number :: self._count]) for number in range(self._count)])
        seen = tokens.means((self.critic_encoder or self.encoder)(parts, tokens, layout))  # [E * N, d_model]
        features = masked(seen.view(self._entities, len(acts), -1).transpose(0, 1), acts)
        values = self.critic(torch.cat([features, functional.one_hot(places, self._entities)], 1))
        return values.squeeze(-1).float()  # type: ignore[no-any-return]

    def policy_and_value(
        self, leaves: Sequence[Column], mask: None = None, lengths: None = None
    ) -> tuple[Decisions, Tensor]:
        return self(leaves), self.value(leaves)

    def _read(self, leaves: Sequence[Column]) -> tuple[UnitParts, Tokens, Layout]:
        return super()._read(leaves[: self._count])
