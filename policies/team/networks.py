"""Networks of a team: an encoder of what all entities see, actors that see their own, critics that see everything.

    leaves of all entities --encoder--> joint features --by_entity--> features of one --actor--> outputs for its action
                                            |
                     actions of all --------+--critics--> a value for each entity

The encoder has weights where observations are images; they belong to the critics, as in `policies.networks.critics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from torch import Tensor, nn

from arena.game.spaces import leaves_of
from policies.common.options import wrong
from policies.networks.actor_critic import Encoder, mlp
from policies.networks.critics import Critics, Temperature


class JointEncoder(Encoder):
    """Joint leaves to features [N, E * (of_one + 1)]: what each entity sees, masked, and whether it acts.

    `space` is that of one entity's observations, of which there are `of_one` features; `own` encodes them, None: the
    built-in one.
    """

    def __init__(
        self, space: Space[Any], entities: int, generator: torch.Generator, own: Encoder | None = None
    ) -> None:
        if own is None:
            super().__init__(space, generator)
        else:
            nn.Module.__init__(self)
            self.features, self.learns = own.features, own.learns
        self.own = own
        self.entities, self.of_one = entities, self.features
        self.features = self.state_features = entities * (self.of_one + 1)

    def forward(self, leaves: Sequence[Tensor]) -> Tensor:
        acts = leaves[-1].float().unsqueeze(-1)  # [N, E, 1]
        features = self.rows([leaf.flatten(0, 1) for leaf in leaves[:-1]])
        return torch.cat([features * acts, acts], -1).flatten(1)

    def rows(self, leaves: Sequence[Tensor], entities: int | None = None) -> Tensor:
        """Features [N, e, of_one] of leaves of rows, [N * e, ...], of so many entities; None: of all."""
        found: Tensor = super().forward(leaves) if self.own is None else self.own(leaves)
        return found.view(-1, entities or self.entities, self.of_one)

    def by_entity(self, joint: Tensor) -> Tensor:
        """What each entity sees, [N, E, of_one], in joint features."""
        return joint.view(-1, self.entities, self.of_one + 1)[..., :-1]

    def state_of(self, leaves: Sequence[Tensor], joint: Tensor) -> Tensor:
        """What describes the whole game [N, state_features], from joint leaves and their features: here the latter."""
        return joint


class StateEncoder(JointEncoder):
    """The same where one part of what entities observe, under the key `state`, is the state of the whole game.

    Entities do not see it: `state_of` has its features, `state_features` of them.

    Raises:
        ConfigError: observations are no Dict with this key and others.
    """

    def __init__(self, space: Space[Any], entities: int, generator: torch.Generator, *, state: str) -> None:
        if not isinstance(space, spaces.Dict) or state not in space.spaces or len(space.spaces) < 2:
            raise wrong(
                "state",
                state,
                f"a key of what entities observe, which is {space}; put the game into the wrapper `state`, or leave "
                "the option out, and the observations of all entities are the state",
            )
        super().__init__(spaces.Tuple([part for key, part in space.items() if key != state]), entities, generator)
        keys = [leaf.path[0] for leaf in leaves_of(space)]
        self._seen = [place for place, key in enumerate(keys) if key != state]
        self._state = [place for place, key in enumerate(keys) if key == state]
        self.encoder = Encoder(space[state], generator)
        self.state_features = self.encoder.features + entities
        self.learns = self.learns or self.encoder.learns

    def rows(self, leaves: Sequence[Tensor], entities: int | None = None) -> Tensor:
        return super().rows([leaves[place] for place in self._seen], entities)

    def state_of(self, leaves: Sequence[Tensor], joint: Tensor) -> Tensor:
        """The state as the first entity that acts has observed it, and which of them act."""
        acts, rows = leaves[-1], torch.arange(len(joint), device=joint.device)
        first = acts.argmax(1)
        return torch.cat([self.encoder([leaves[place][rows, first] for place in self._state]), acts.float()], 1)


class Actors(nn.Module):
    """One actor for all entities (`shared`), which gets their numbers as one-hot vectors, or an actor for each.

    Each makes `outputs` of the `features` of what one entity sees.
    """

    def __init__(self, features: int, outputs: int, *, entities: int, shared: bool, **layers: Any) -> None:
        super().__init__()
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
    """The actors, of the features that the critics' encoder finds for one entity, and the critics.

    `temperature`: of soft actors, if they have one.
    """

    def __init__(self, critics: Critics, actors: Actors, temperature: Temperature | None = None) -> None:
        super().__init__()
        self.critics, self.actors, self.temperature = critics, actors, temperature

    @property
    def encoder(self) -> JointEncoder:
        """The critics' encoder."""
        return cast("JointEncoder", self.critics.encoder)

    def forward(self, leaves: Sequence[Tensor], places: range | None = None) -> Tensor:
        """The actors' outputs [N * e, outputs] for leaves of rows, [N * e, ...]; each of its own row alone.

        The rows are those of `e` entities, in the `places`; None: of all.
        """
        places = range(self.encoder.entities) if places is None else places
        features = self.encoder.rows(leaves, len(places))
        return self.actors(features, places.start).flatten(0, 1)  # type: ignore[no-any-return]

    def of_entities(self, leaves: Sequence[Tensor], entities: Tensor) -> Tensor:
        """The actors' outputs [N, outputs] for leaves of rows [N, ...], which are of these entities, int64 [N]."""
        return self.actors.of_entities(self.encoder.rows(leaves, 1).squeeze(1), entities)
