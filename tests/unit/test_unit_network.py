"""The network of units: packing, attention among packed rows, hidden units, places, and choices."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from arena import Choice, Select, UnitSpace
from arena.errors import ConfigError
from policies.common.columns import RaggedTensor, to_leaves
from policies.networks.heads import UnitHead
from policies.networks.units.network import UnitActorCritic
from policies.networks.units.options import Center, Relative, Transformer
from policies.networks.units.packing import Layout
from policies.networks.units.relative import RelativePlaces
from policies.networks.units.tokens import Tokens, UnitInputs, parts_of
from unit_games import EVERYTHING, observed, random_observations, without_actors

torch.set_num_threads(1)  # as in every worker

MINES = UnitSpace(
    {"Mine": ["x", "y"], "Robot": ["x", "y"], "Orbital Cannon": ["cooldown"]},
    actions={"Move": Choice(["+x", "-x", "+y", "-y", "Defuse Mines"]), "Fire Orbital Cannon": Select()},
)
LINES = UnitSpace({"Point": ["x"]}, actions={"Go": Choice(["left", "right"], masked=False)})
GRID = Relative(position=("x", "y"), extent=(2, 1))
POLAR = Relative(
    position=("x", "y"), kind="polar", extent=(4, 3), angle="facing", interpolate=True, scale=0.5, by_type=False
)
CENTER = Center(on="Soldier", position=("x", "y"), angle="facing", distance=True)
OPTIONS = {
    "defaults": Transformer(d_model=16),
    "separate": Transformer(d_model=16, critic="separate", layers=1),
    "no layers": Transformer(d_model=16, layers=0),
    "grid": Transformer(d_model=16, relative=GRID),
    "polar and center": Transformer(d_model=16, relative=POLAR, center=CENTER),
}


def network(space: UnitSpace, options: Transformer | None = None, *, moved: bool = True) -> UnitActorCritic:
    """A network; `moved`: with weights that are no longer the first ones, so that values are not all 0."""
    made = UnitActorCritic(
        space, UnitHead(space.action_space), options or Transformer(), torch.Generator().manual_seed(1)
    )
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weights in made.parameters() if moved else ():
            weights.add_(0.2 * torch.randn(weights.shape, generator=draw))
    return made


def leaves(space: UnitSpace, samples: Sequence[Mapping[str, Any]], options: Transformer | None = None) -> list[Any]:
    """Samples as input of the network."""
    return UnitInputs(space, options or Transformer())(to_leaves(space, observed(space, samples)))


def asked(made: UnitActorCritic, given: list[Any]) -> tuple[list[Tensor], Tensor]:
    """Probabilities of all choices of each action, one row per decision, and the values."""
    with torch.no_grad():
        decisions, values = made.policy_and_value(given)
    found = {
        action: torch.softmax(one.logits, -1) for action, one in zip(decisions._actions, decisions.offered, strict=True)
    }
    none = torch.zeros(0, 1)
    return [found.get(action, none) for action in range(len(made.actors))], values


def learned(made: UnitActorCritic, given: list[Any]) -> Tensor:
    """All gradients of a loss of all outputs."""
    made.zero_grad()
    decisions, values = made.policy_and_value(given)
    chosen = decisions.sample(torch.arange(len(values)))
    loss = decisions.log_prob(chosen).sum() + decisions.entropy().sum() + values.square().sum() + values.sum()
    loss.backward()
    assert loss.isfinite()
    return torch.cat([weights.grad.flatten() for weights in made.parameters() if weights.grad is not None])


# ----------------------------------------------------------------------------------------------------------- network


def test_the_default_network_of_minesweeper_has_103334_weights() -> None:
    assert sum(weights.numel() for weights in network(MINES).parameters()) == 103_334


@pytest.mark.parametrize("name", OPTIONS)
def test_first_values_are_exactly_zero_and_policies_almost_even(name: str) -> None:
    samples = random_observations(EVERYTHING, 20)
    (moves, *_), values = asked(
        network(EVERYTHING, OPTIONS[name], moved=False), leaves(EVERYTHING, samples, OPTIONS[name])
    )
    assert (values == 0.0).all()
    allowed = np.concatenate([one["actions"]["Move"]["mask"] for one in samples]) != 0
    even = allowed / allowed.sum(1, keepdims=True)
    assert np.abs(moves.numpy() - even).max() < 0.05


@pytest.mark.parametrize("name", OPTIONS)
def test_batch_equals_its_rows_one_by_one(name: str) -> None:
    options, samples = OPTIONS[name], random_observations(EVERYTHING, 25)
    made = network(EVERYTHING, options)
    together, values = asked(made, leaves(EVERYTHING, samples, options))
    alone = [asked(made, leaves(EVERYTHING, [one], options)) for one in samples]
    torch.testing.assert_close(values, torch.cat([value for _, value in alone]), atol=1e-5, rtol=0)
    for action, found in enumerate(together):
        rows = [
            torch.nn.functional.pad(parts[action], (0, found.shape[1] - parts[action].shape[1])) for parts, _ in alone
        ]
        torch.testing.assert_close(found, torch.cat(rows), atol=1e-5, rtol=0)


def test_attention_equals_the_formula() -> None:
    samples = random_observations(LINES, 7, seed=3)
    made = network(LINES, Transformer(d_model=8, layers=1, heads=2))
    block, embedding = made.encoder.blocks[0], made.encoder.embeddings[0]
    _, values = asked(made, leaves(LINES, samples))
    for sample, value in zip(samples, values, strict=True):
        with torch.no_grad():
            x = embedding(torch.from_numpy(sample["units"]["Point"]))
            q, k, v = block.queries_keys_values(block.attention_norm(x)).chunk(3, -1)
            heads = [slice(0, 4), slice(4, 8)]
            mixed = [torch.softmax(q[:, h] @ k[:, h].T / 2.0, -1) @ v[:, h] for h in heads]
            x = x + block.out(torch.cat(mixed, -1))
            hidden = block.hidden(block.hidden_norm(x))
            x = x + block.down(0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2))))
            mean = x.mean(0) if len(x) else torch.zeros(8)
            torch.testing.assert_close(value, made.critic(mean)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", OPTIONS)
def test_units_in_another_order_give_the_same_results(name: str) -> None:
    options, samples = OPTIONS[name], random_observations(EVERYTHING, 25, seed=4)
    rng = np.random.default_rng(0)
    reordered = []
    for sample in samples:
        other, begin, moved_to = copy.deepcopy(sample), 0, []
        for type_ in EVERYTHING.types:
            order = rng.permutation(len(sample["units"][type_]))
            if type_ == "Soldier" and options.center is not None:
                order = np.arange(len(order))  # which soldier is the first one does matter
            other["units"][type_] = sample["units"][type_][order]
            if type_ in EVERYTHING.hidden:
                other["visible"][type_] = sample["visible"][type_][order]
            moved_to += (begin + np.argsort(order)).tolist()
            begin += len(order)
        moved_to.append(begin)  # the row's token
        for shown in other["actions"].values():
            for part in ("actors", "actees"):
                if part in shown:
                    shown[part] = np.array([moved_to[index] for index in shown[part]], np.int64)
        assert EVERYTHING.contains(other)
        reordered.append(other)
    made = network(EVERYTHING, options)
    for before, after in zip(
        *(asked(made, leaves(EVERYTHING, given, options)) for given in (samples, reordered)), strict=True
    ):
        torch.testing.assert_close(before, after, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", OPTIONS)
def test_hidden_units_change_the_value_and_no_probability(name: str) -> None:
    options, samples = OPTIONS[name], random_observations(EVERYTHING, 40, seed=5)
    others = copy.deepcopy(samples)
    hiding = np.zeros(len(samples), np.bool_)
    for row, sample in enumerate(others):
        for type_ in EVERYTHING.hidden:
            hidden = sample["visible"][type_] == 0
            sample["units"][type_][hidden] *= -5.0
            hiding[row] |= hidden.any()
    assert 10 < hiding.sum() < 40
    made = network(EVERYTHING, options)
    (before, old), (after, new) = (asked(made, leaves(EVERYTHING, given, options)) for given in (samples, others))
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    assert (old != new).tolist() == hiding.tolist()


def test_forbidden_choices_have_probability_exactly_zero() -> None:
    samples = random_observations(EVERYTHING, 30)
    probabilities, _ = asked(network(EVERYTHING, moved=False), leaves(EVERYTHING, samples))
    masks = np.concatenate([one["actions"]["Move"]["mask"] for one in samples])
    assert ((probabilities[0].numpy() == 0.0) == (masks == 0)).all()
    decision = 0
    for sample in samples:
        shown = sample["actions"]["Attack"]
        for mask in shown["mask"].reshape(len(shown["actors"]), len(shown["actees"])):
            chances = probabilities[1][decision]
            assert ((chances[: len(mask)] == 0.0).numpy() == (mask == 0)).all()
            assert (chances[len(mask) :] == 0.0).all()
            decision += 1
    assert decision > 20


def nothing(sample: dict[str, Any], *, units: bool) -> dict[str, Any]:
    """A sample without actors, or without units as well."""
    empty = without_actors(copy.deepcopy(sample))
    for kind in ("units", "visible") if units else ():
        empty[kind] = {name: part[:0] for name, part in empty[kind].items()}
    assert EVERYTHING.contains(empty)
    return empty


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("units", [True, False], ids=["no units", "no actors"])
def test_rows_without_units_or_actors_have_finite_gradients(name: str, units: bool) -> None:
    options = OPTIONS[name]
    samples = random_observations(EVERYTHING, 9, seed=6)
    none = nothing(samples[0], units=units)
    for given in ([none, *samples], [*samples, none], [*samples[:4], none, none, *samples[4:]], [none, none]):
        gradients = learned(network(EVERYTHING, options), leaves(EVERYTHING, given, options))
        assert gradients.isfinite().all()
        assert gradients.abs().max() > 0


def test_gradient_equals_finite_differences() -> None:
    samples = random_observations(EVERYTHING, 9, seed=8)
    made = network(EVERYTHING, Transformer(d_model=4, relative=GRID)).double()
    given = [
        leaf.with_values(leaf.values.double())
        if isinstance(leaf, RaggedTensor) and leaf.values.is_floating_point()
        else leaf.double()
        if isinstance(leaf, Tensor)
        else leaf
        for leaf in leaves(EVERYTHING, samples, Transformer(d_model=4, relative=GRID))
    ]
    decisions, _ = made.policy_and_value(given)
    chosen = decisions.sample(torch.arange(9))

    def loss() -> Tensor:
        decisions, values = made.policy_and_value(given)
        return decisions.log_prob(chosen).sum() + values.sum()

    loss().backward()
    draw = torch.Generator().manual_seed(0)
    for weights in made.parameters():
        place = int(torch.randint(weights.numel(), (1,), generator=draw))
        flat, step = weights.data.view(-1), 1e-6
        flat[place] += step
        with torch.no_grad():
            above = float(loss())
            flat[place] -= 2 * step
            below = float(loss())
        flat[place] += step
        assert float(weights.grad.view(-1)[place]) == pytest.approx((above - below) / (2 * step), abs=1e-4)


# --------------------------------------------------------------------------------------------------------- decisions


def test_a_rows_draw_depends_on_its_own_number_alone() -> None:
    samples = random_observations(EVERYTHING, 30, seed=9)
    made = network(EVERYTHING)
    numbers = torch.randint(2**62, (30,), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        drawn = made.policy(leaves(EVERYTHING, samples)).sample(numbers)
        for rows in ([3], [7, 2], list(range(29, -1, -1))):
            again = made.policy(leaves(EVERYTHING, [samples[row] for row in rows])).sample(numbers[rows])
            assert all(np.array_equal(again.numpy()[place], drawn.numpy()[row]) for place, row in enumerate(rows))


def test_draws_follow_their_probabilities() -> None:
    sample = random_observations(MINES, 60, seed=1)
    sample = [one for one in sample if len(one["actions"]["Move"]["actors"]) == 2][:1] * 4000
    made = network(MINES)
    (expected, _), _ = asked(made, leaves(MINES, sample[:1]))
    numbers = torch.randint(2**62, (len(sample),), generator=torch.Generator().manual_seed(5))
    drawn = made.policy(leaves(MINES, sample)).sample(numbers).numpy()
    moves = drawn.values[drawn.values[:, 0] == 0, 1].reshape(-1, 2)
    for actor in range(2):
        found = np.bincount(moves[:, actor], minlength=5) / len(moves)
        assert np.abs(found - expected[actor].numpy()).max() < 0.03
    assert abs(np.corrcoef(moves.T)[0, 1]) < 0.06  # two actors of a row draw for themselves


# ------------------------------------------------------------------------------------------------------------ places


def test_center_moves_and_turns_as_specified() -> None:
    space = UnitSpace(
        {"Robot": ["x", "y", "angle"], "Mine": ["x", "y"], "Rock": ["size"]},
        actions={"Go": Choice(["on"], masked=False)},
    )
    options = Transformer(center=Center(on="Robot", position=("x", "y"), angle="angle", distance=True))
    sample = random_observations(space, 1)[0]
    sample["units"] = {
        "Robot": np.array([[1, 2, math.pi / 2], [4, 2, 0]], np.float32),
        "Mine": np.array([[4, 2], [1, 6]], np.float32),
        "Rock": np.array([[7]], np.float32),
    }
    without = copy.deepcopy(sample)
    without["units"]["Robot"] = without["units"]["Robot"][:0]
    for one in (sample, without):
        one["actions"]["Go"]["actors"] = np.zeros(0, np.int64)
    robots, mines, rocks, _ = leaves(space, [sample, without], options)
    np.testing.assert_allclose(robots.values[0], [1, 2, math.pi / 2], atol=1e-6)
    np.testing.assert_allclose(robots.values[1], [0, -3, 0], atol=1e-6)
    np.testing.assert_allclose(mines.values, [[0, -3, 3], [4, 0, 4], [4, 2, 0], [1, 6, 0]], atol=1e-6)
    assert rocks.values.tolist() == [[7], [7]]
    assert UnitInputs(space, options).features == {"Robot": 3, "Mine": 3, "Rock": 1}


def bucket_shares(
    options: Relative, from_: Sequence[float], to: Sequence[float], angle: float = 0.0
) -> dict[int, float]:
    """By which shares a unit that sees another one falls into buckets."""
    names = [*options.position, "t"]
    space = UnitSpace({"Unit": names}, actions={"Go": Choice(["on"], masked=False)})
    places = RelativePlaces(options, space, 4, torch.Generator().manual_seed(0))
    units = np.array([[*from_, angle], [*to, 0.0]], np.float32)
    sample = {"units": {"Unit": units}, "actions": {"Go": {"actors": np.zeros(0, np.int64)}}}
    seen = parts_of(space, leaves(space, [sample], Transformer(relative=options)))
    tokens = Tokens(seen, space, torch.device("cpu"))
    found = places.buckets_of(seen, tokens, Layout(tokens.lengths, None, torch.device("cpu")))
    shares: dict[int, float] = {}
    for number, bucket in enumerate(found.of_keys[:, 0, 0, 0, 1].tolist()):
        share = 1.0 if found.weights is None else float(found.weights[number, 0, 0, 0, 1])
        shares[bucket] = shares.get(bucket, 0.0) + share
    return {bucket: pytest.approx(share, abs=1e-5) for bucket, share in shares.items() if share > 1e-6}


XY = ("x", "y")
RADIAL = Relative(position=XY, kind="radial", extent=4, angle="t")


@pytest.mark.parametrize(
    ("options", "from_", "to", "angle", "expected"),
    [
        (Relative(position=XY, extent=(2, 1)), (0, 0), (0, 0), 0, {2 + 5 * 1: 1}),
        (Relative(position=XY, extent=(2, 1)), (1, 1), (2, 9), 0, {3 + 5 * 2: 1}),  # clipped on the second axis
        (Relative(position=XY, extent=(2, 1), scale=10), (0, 0), (-14, 0), 0, {1 + 5 * 1: 1}),
        (Relative(position=("x",), extent=(3,)), (0,), (-9,), 0, {0: 1}),
        (Relative(position=("x", "y", "z"), extent=(1, 1, 1)), (0, 0, 0), (1, 0, -1), 0, {2 + 3 * 1 + 9 * 0: 1}),
        (Relative(position=XY, extent=(2, 1), angle="t"), (0, 0), (0, 2), math.pi / 2, {4 + 5 * 1: 1}),
        (RADIAL, (0, 0), (1, 0.1), 0, {0: 1}),
        (RADIAL, (0, 0), (-1, -0.1), 0, {2: 1}),
        (RADIAL, (0, 0), (1, -0.1), 0, {3: 1}),
        (RADIAL, (0, 0), (0.1, 1), math.pi / 2, {3: 1}),
        (replace(RADIAL, interpolate=True), (0, 0), (1, -1), 0, {3: 0.5, 0: 0.5}),
        (Relative(position=("x",), kind="distance", extent=3), (0,), (-1.7,), 0, {1: 1}),
        (Relative(position=("x",), kind="distance", extent=3), (0,), (99,), 0, {2: 1}),
        (Relative(position=("x",), kind="distance", extent=3, interpolate=True), (0,), (1.25,), 0, {1: 0.75, 2: 0.25}),
        (Relative(position=("x",), kind="distance", extent=3, interpolate=True), (0,), (7,), 0, {2: 1}),
        (Relative(position=XY, kind="polar", extent=(4, 3), angle="t"), (0, 0), (-0.1, 1.5), 0, {1 + 4 * 1: 1}),
        (
            Relative(position=XY, kind="polar", extent=(4, 3), angle="t", interpolate=True),
            (0, 0),
            (0, 1.5),
            0,
            {1 + 4 * 1: 0.5, 1 + 4 * 2: 0.5},
        ),
    ],
)  # fmt: skip
def test_buckets_equal_the_table(options: Any, from_: Any, to: Any, angle: Any, expected: Any) -> None:
    assert bucket_shares(options, from_, to, angle) == expected


@pytest.mark.parametrize("options", [GRID, POLAR], ids=["grid", "polar"])
def test_relative_attention_equals_the_formula(options: Relative) -> None:
    samples = random_observations(EVERYTHING, 6, seed=7)
    transformer = Transformer(d_model=8, heads=1, relative=options)
    places = RelativePlaces(options, EVERYTHING, 8, torch.Generator().manual_seed(0))
    seen = parts_of(EVERYTHING, leaves(EVERYTHING, samples, transformer))
    tokens = Tokens(seen, EVERYTHING, torch.device("cpu"))
    layout = Layout(tokens.lengths, tokens.hidden, torch.device("cpu"))
    buckets = places.buckets_of(seen, tokens, layout)
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(layout.shape[0], 1, layout.shape[1], 8, generator=draw) for _ in range(3))
    found = places.attend(q, k, v, layout.mask, buckets)
    shares = torch.ones_like(buckets.of_keys, dtype=torch.float32) if buckets.weights is None else buckets.weights
    rows, width = layout.shape
    for r in range(rows):
        for i in range(width):
            keys = torch.stack(
                [
                    k[r, 0, j]
                    + sum(
                        shares[c, r, 0, i, j] * places.keys[buckets.of_keys[c, r, 0, i, j]] for c in range(len(shares))
                    )
                    for j in range(width)
                ]
            )
            values = torch.stack(
                [
                    v[r, 0, j]
                    + sum(
                        shares[c, r, 0, i, j] * places.values[buckets.of_values[c, r, 0, i, j]]
                        for c in range(len(shares))
                    )
                    for j in range(width)
                ]
            )
            logits = keys @ q[r, 0, i] / math.sqrt(8)
            logits = logits if layout.mask is None else logits + layout.mask[r, 0, i]
            torch.testing.assert_close(found[r, 0, i], torch.softmax(logits, -1) @ values, atol=1e-5, rtol=1e-5)


# ----------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d_model": 10, "heads": 3}, r"transformer.d_model: found 10; expected a multiple of heads, 3"),
        (
            {"center": Center(on="Soldir", position=("x", "y"))},
            r"center.on: the game has no type 'Soldir'; .*'Soldier'",
        ),
        ({"center": Center(on="Flag", position=("x", "why"))}, r"center.position: 'Flag' has no feature 'why'"),
        ({"relative": Relative(position=("x", "z"))}, r"relative.position: no type of the game has a feature 'z'"),
        ({"layers": 0, "relative": GRID}, r"transformer.relative: .*there is no attention"),
    ],
)
def test_options_that_the_game_cannot_fill_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Transformer(**given).check(EVERYTHING)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"position": ("x", "y"), "extent": (1,)}, "relative.extent"),
        ({"position": ("x", "y"), "extent": (2**40, 2**40)}, "relative.extent: .*fewer than"),
        ({"position": ("x", "y"), "kind": "radial", "extent": 3}, "relative.kind"),
        ({"position": ("x",), "kind": "radial", "extent": 3, "angle": "t"}, "relative.position"),
        ({"position": ("x", "y"), "interpolate": True}, "relative.interpolate"),
        ({"position": ("x", "y"), "angle": "t", "direction": ("a", "b")}, "relative.direction"),
        ({"position": ("a", "b", "c", "d"), "extent": (1, 1, 1, 1)}, "relative.position"),
    ],
)
def test_places_that_contradict_each_other_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"options.transformer.{message}"):
        Relative(**given)
