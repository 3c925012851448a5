"""Exact best responses by a walk of the tree of a small game, see `arena.game.tree`.

    strategy    float64 [I, A] of an entity: the chance of each choice in each of its information sets
    profile     the strategies of all entities
    best response of an entity: the largest return that it can have against the others' strategies
    NashConv    the sum over all entities of what a best response gains; 0 in an equilibrium (Lanctot et al. 2017)
    exploitability   NashConv divided by the number of entities, as OpenSpiel has it

In an information set the best choice maximizes the sum, over its nodes, of the chance that the others and chance lead
there times what follows; with perfect recall an entity's own choices lead to all its nodes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.tree import Chance, Decision, End, Node

Strategy: TypeAlias = NDArray[np.float64]


class InformationSet:
    """The nodes of a decision that an entity cannot distinguish.

    Attributes:
        observation: of the entity.
        mask: which choices are allowed, int8 [A].
        before: its information set and choice that come before, by their numbers; None: there are none.
        nodes: the numbers of its nodes.
    """

    def __init__(self, node: Decision, before: tuple[int, int] | None, choices: int) -> None:
        self.observation, self.before, self.nodes = node.observation, before, list[int]()
        self.mask = np.array([choice in node.moves for choice in range(choices)], np.int8)


class GameTree:
    """The nodes and information sets of a game.

    Args:
        root: where the game begins.
        choices: per entity the choices of its Discrete space, A.

    Raises:
        ConfigError: observations lack something that an entity knew before.
    """

    def __init__(self, root: Node, choices: Sequence[int]) -> None:
        self.entities = len(choices)
        self.sets: list[list[InformationSet]] = [[] for _ in choices]  # per entity
        self._nodes: list[Node] = []
        self._set: list[int] = []  # per node of a decision the number of its information set
        self._children: list[dict[int, int]] = []  # per node what follows each choice or event
        known: list[dict[bytes, int]] = [{} for _ in choices]

        def add(node: Node, before: tuple[tuple[int, int] | None, ...]) -> int:
            number = len(self._nodes)
            self._nodes.append(node)
            self._set.append(-1)
            self._children.append({})
            if isinstance(node, Chance):
                self._children[number] = {at: add(one, before) for at, (_, one) in enumerate(node.outcomes)}
            elif isinstance(node, Decision):
                me, made = node.entity, InformationSet(node, before[node.entity], choices[node.entity])
                key = np.asarray(node.observation).tobytes() + made.mask.tobytes()
                place = known[me].setdefault(key, len(known[me]))
                if place == len(self.sets[me]):
                    self.sets[me].append(made)
                found = self.sets[me][place]
                if found.before != made.before:
                    raise ConfigError(
                        f"entity {me} has the observation {node.observation} after different moves or observations of "
                        "its own: an exact best response needs observations that hold all that an entity has seen and "
                        "done"
                    )
                found.nodes.append(number)
                self._set[number] = place
                self._children[number] = {
                    move: add(one, (*before[:me], (place, move), *before[me + 1 :])) for move, one in node.moves.items()
                }
            return number

        add(root, (None,) * self.entities)

    def uniform(self, entity: int) -> Strategy:
        """All allowed choices with equal chances."""
        masks = np.array([one.mask for one in self.sets[entity]], np.float64)
        return masks / masks.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]

    def mean(self, entity: int, weighted: Sequence[tuple[float, Strategy]]) -> Strategy:
        """The strategy that plays as a mixture does: one of several strategies, drawn once for a whole game.

        Their weights in an information set are multiplied by the chance that their own choices lead there.
        """
        total = np.zeros_like(weighted[0][1])
        for weight, strategy in weighted:
            reach = np.full(len(strategy), weight)
            for place, one in enumerate(self.sets[entity]):  # each after the one before it
                if one.before is not None:
                    reach[place] = reach[one.before[0]] * strategy[one.before]
            total += reach[:, None] * strategy
        sums = total.sum(axis=1, keepdims=True)
        return np.where(sums > 0, total / np.where(sums > 0, sums, 1.0), self.uniform(entity))  # 0: never comes there

    def returns(self, profile: Sequence[Strategy]) -> tuple[float, ...]:
        """The expected return of each entity."""
        return tuple(self._walked(profile, entity, respond=False) for entity in range(self.entities))

    def best_response(self, profile: Sequence[Strategy], entity: int) -> float:
        """The return of an entity's best response to the others; its own strategy in the profile does not matter."""
        return self._walked(profile, entity, respond=True)

    def nash_conv(self, profile: Sequence[Strategy]) -> float:
        """What best responses gain, summed over all entities."""
        gains = (self.best_response(profile, one) - value for one, value in enumerate(self.returns(profile)))
        return sum(gains)

    def _walked(self, profile: Sequence[Strategy], entity: int, *, respond: bool) -> float:
        reach = np.ones(len(self._nodes))  # by chance and the others
        for number, node in enumerate(self._nodes):  # parents come first
            for choice, child in self._children[number].items():
                reach[child] = reach[number] * self._chance(profile, entity, number, node, choice)
        values: dict[int, float] = {}
        best: dict[int, int] = {}

        def value(number: int) -> float:
            if number not in values:
                node, children = self._nodes[number], self._children[number]
                if isinstance(node, End):
                    values[number] = node.returns[entity]
                elif isinstance(node, Decision) and node.entity == entity and respond:
                    values[number] = value(children[best_choice(self._set[number])])
                elif isinstance(node, Decision) and node.entity == entity:
                    chances = profile[entity][self._set[number]]
                    values[number] = sum(float(chances[move]) * value(child) for move, child in children.items())
                else:
                    values[number] = sum(
                        self._chance(profile, entity, number, node, event) * value(child)
                        for event, child in children.items()
                    )
            return values[number]

        def best_choice(place: int) -> int:
            if place not in best:
                nodes = self.sets[entity][place].nodes
                moves = self._children[nodes[0]]
                best[place] = max(
                    moves, key=lambda move: sum(reach[one] * value(self._children[one][move]) for one in nodes)
                )
            return best[place]

        return value(0)

    def _chance(self, profile: Sequence[Strategy], entity: int, number: int, node: Node, choice: int) -> float:
        """The probability of an event, or of another entity's choice; 1 for a choice of the entity."""
        if isinstance(node, Chance):
            return node.outcomes[choice][0]
        assert isinstance(node, Decision), node
        return 1.0 if node.entity == entity else float(profile[node.entity][self._set[number], choice])
