"""Draws the structure pictures from real plans and layouts: `python diagrams/draw.py` writes the SVG files.

    environment_process   one match: actions in, one joint step, each seat's own part out
    workers               four copies of a match, and the group that their workers form
    proxy                 the layers between an algorithm and its game, and the bytes of one tick
    match_2v2             the processes of the smallest run of two teams
    round_robin           the processes of a large run
    legs                  legs and boundaries, a resumed run, and the death of a process
    rounds                how a league makes the matches of a round from earlier results
    external              games that run elsewhere, their slots, and the tick that is formed from those that ask
    ragged_message        what a reply about any number of units holds
    hand_over             how a simulator and the arena take turns in a file
    imports               the packages of the arena, and which of them imports which

All numbers come from the configurations in `configs/` and from the code that a run uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from imports import imports
from svg import INK, LINE, MUTED, PAPER, Sheet, tint

from arena.config import Config, load_config
from arena.external.shared_memory import GroupSpec
from arena.game.api import Interface
from arena.game.ragged import Ragged
from arena.game.spaces import Leaf, flatten, leaves_of
from arena.league import next_round
from arena.league.next_round import Round
from arena.league.timeline import Timeline
from arena.plan.build import make_plan
from arena.plan.plan import MatchPlan, Plan, PolicyPlan, Role, RoleKind
from arena.plan.rehosting import rehosted
from arena.plan.seats import resolve_entities
from arena.preflight.examine import make_game
from arena.registry import adapt_environment
from arena.seat.layout import ReplyView, RequestView, SeatLayout

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
GRAY = "#8a949e"
SHOWN_ROUNDS = 4  # of a league


class Scene(NamedTuple):
    """A plan, and the game of its first match."""

    config: str
    plan: Plan
    interface: Interface

    @classmethod
    def of(cls, config: str) -> Scene:
        plan = make_plan(load_config(CONFIGS / config))
        game = make_game(plan.matches[0], lanes=1)
        game.close()
        return cls(f"configs/{config}", plan, game.interface)

    @property
    def match(self) -> MatchPlan:
        """The first match."""
        return self.plan.matches[0]

    def color(self, seat: int) -> str:
        """The color of the policy that fills this seat of the first match."""
        return color_of(self.plan.policies[self.match.seats[seat].policy])

    def entities(self, seat: int) -> tuple[int, ...]:
        """The entities of a seat of the first match, as indices."""
        return resolve_entities(self.match.seats, self.interface.entities)[seat]

    def entity_names(self, seat: int) -> str:
        """The entities of a seat of the first match, by name."""
        return ", ".join(self.interface.entities[index] for index in self.entities(seat))

    def layout(self, seat: int) -> SeatLayout:
        """The layout of the messages of a seat of the first match."""
        entities, game = self.entities(seat), self.interface
        return SeatLayout.of(
            self.match.lanes,
            [game.observation_spaces[index] for index in entities],
            [game.action_spaces[index] for index in entities],
            [game.mask_sizes[index] for index in entities],
        )


def color_of(policy: PolicyPlan) -> str:
    """The color of a policy, gray if the configuration gives none."""
    return policy.color or GRAY


def worker_card(sheet: Sheet, x: float, y: float, color: str, title: str, note: str, *, width: float = 170) -> None:
    """A worker: 54 high, with its policy's color as a bar on its left."""
    sheet.box(x, y, width, 54, fill=tint(color, 0.9), stroke=color)
    sheet.box(x, y, 8, 54, fill=color, stroke=color, radius=4)
    sheet.text(x + 20, y + 23, title, bold=True)
    sheet.text(x + 20, y + 42, note, size=12, color=MUTED)


def lane_grid(sheet: Sheet, x: float, y: float, scene: Scene, *, size: float, columns: int = 4) -> None:
    """One small field per lane, with a dot for each entity in the color of its policy."""
    colors = {entity: scene.color(seat) for seat in range(len(scene.match.seats)) for entity in scene.entities(seat)}
    for lane in range(scene.match.lanes):
        left, top = x + lane % columns * (size + 5), y + lane // columns * (size + 5)
        sheet.box(left, top, size, size, fill=PAPER, stroke="#9aa5b1", radius=3)
        for entity, color in colors.items():
            place = 7 * lane + 5 * entity  # an arbitrary place
            across, down = 0.2 + 0.6 * (place % 11) / 10, 0.18 + 0.64 * entity / max(1, len(colors) - 1)
            sheet.disc(left + size * across, top + size * down, size * 0.085, fill=color)


# ------------------------------------------------------------------------------------------- one environment process


def environment_process() -> str:
    """Actions in, one joint step, each seat's own part out."""
    scene = Scene.of("touchdown_2v2.yaml")
    match, seats = scene.match, scene.match.seats
    lanes, entities = match.lanes, len(scene.interface.entities)
    sheet = Sheet(
        560,
        title="The environment process",
        describe=f"{len(seats)} seats send actions, {lanes} lanes step once, each seat gets its own rows",
    )
    sheet.heading("One environment process owns one match", f"{scene.config}: {lanes} lanes, {entities} entities")
    sheet.box(262, 96, 602, 388)
    sheet.text(282, 122, "environment process", bold=True)
    sheet.text(844, 122, f"rank {scene.plan.rank_of(Role(RoleKind.ENVIRONMENT, 0))}", anchor="end", color=MUTED)
    for seat, plan in enumerate(seats):
        y = 150 + 80 * seat
        worker_card(sheet, 36, y, scene.color(seat), f"worker, {plan.policy}", f"plays {scene.entity_names(seat)}")
        sheet.arrow([(208, y + 19), (280, y + 19)], color=scene.color(seat))
        sheet.arrow([(282, y + 36), (208, y + 36)], color=scene.color(seat))
        sheet.box(284, y, 128, 54, fill=PAPER)
        sheet.text(296, y + 23, f"{lanes} actions in", size=12.5)
        sheet.text(296, y + 42, f"{lanes} own rows out", size=12.5)
    sheet.box(432, 150, 10, 294, fill="#d7dde3", stroke="#d7dde3", radius=5)
    for seat in range(len(seats)):
        sheet.arrow([(414, 177 + 80 * seat), (430, 177 + 80 * seat)], head=False)
    _joint_step(sheet, scene, entities)
    _environment_steps(sheet)
    return sheet.to_text()


def _joint_step(sheet: Sheet, scene: Scene, entities: int) -> None:
    lanes = scene.match.lanes
    sheet.box(478, 150, 146, 90, fill=PAPER)
    sheet.text(551, 180, "joint action", bold=True, anchor="middle")
    sheet.text(551, 202, f"{lanes} lanes x {entities} entities", size=12.5, anchor="middle", color=MUTED)
    sheet.text(551, 222, "once all have acted", size=12.5, anchor="middle", color=MUTED)
    sheet.arrow([(444, 195), (474, 195)])
    sheet.box(664, 150, 180, 214, fill=PAPER)
    sheet.text(754, 180, "the game", bold=True, anchor="middle")
    sheet.text(754, 200, f"{lanes} lanes, one step", size=12.5, anchor="middle", color=MUTED)
    lane_grid(sheet, 686.5, 216, scene, size=30)
    sheet.arrow([(626, 195), (660, 195)])
    sheet.box(478, 274, 146, 90, fill=PAPER)
    sheet.text(551, 304, "joint step", bold=True, anchor="middle")
    sheet.text(551, 326, "observations, rewards,", size=12, anchor="middle", color=MUTED)
    sheet.text(551, 344, "terminated, truncated", size=12, anchor="middle", color=MUTED)
    sheet.arrow([(662, 319), (628, 319)])
    sheet.arrow([(476, 319), (446, 319)])
    sheet.box(478, 390, 366, 54, fill=PAPER)
    sheet.text(494, 413, "a lane whose episode is over begins the next at once;", size=12.5)
    sheet.text(494, 431, "the last observation is sent along with the first", size=12.5)
    sheet.arrow([(754, 366), (754, 386)])


def _environment_steps(sheet: Sheet) -> None:
    sheet.text(284, 468, "finished episodes go to the root", size=12.5, color=MUTED)
    words = "A tick: every seat sends its actions, all lanes step once, every seat receives its own part."
    sheet.text(36, 520, words, size=13.5)
    sheet.text(36, 540, "No seat receives a byte of another seat's observation.", size=13.5)


# ----------------------------------------------------------------------------------------- the workers of one policy


def workers() -> str:
    """Four copies of a match, and the group that their workers form."""
    scene = Scene.of("touchdown_1v1.yaml")
    learner = scene.plan.policies[scene.match.seats[0].policy]
    count = len(learner.workers)
    sheet = Sheet(
        540,
        title="The workers of one policy are its group",
        describe=f"{count} workers of the policy {learner.name} in {count} matches average their gradients",
    )
    sheet.heading(
        "All workers of one policy form its group",
        f"{scene.config}: {count} copies of a match, {scene.plan.processes} processes",
    )
    for index, text in enumerate(("match", "the other seat", "environment", f"group {learner.name!r}")):
        sheet.text((36, 96, 268, 410)[index], 112, text, size=12.5, color=MUTED)
    for row, (match, seat) in enumerate(learner.workers):
        _copy_row(sheet, scene.plan, 130 + 84 * row, match, seat, row)
    _hub(sheet, color_of(learner), 130, 84 * (count - 1) + 54)
    notes = (
        "Each worker collects its own samples in its own match; then all of them step on one mean gradient.",
        "Their weights stay equal to the last bit, and equal those that one worker would learn from all samples.",
    )
    sheet.lines(36, 496, notes, step=20)
    return sheet.to_text()


def _copy_row(sheet: Sheet, plan: Plan, y: float, match: int, seat: int, group_rank: int) -> None:
    seats = plan.matches[match].seats
    other = next(other for other in seats if other.index != seat)
    mine, theirs = (color_of(plan.policies[item.policy]) for item in (seats[seat], other))
    sheet.text(52, y + 32, str(match), bold=True, anchor="middle", size=16)
    worker_card(sheet, 84, y, theirs, other.policy, plan.policies[other.policy].algorithm, width=116)
    sheet.arrow([(204, y + 27), (240, y + 27)], color=theirs, tail=True)
    sheet.box(244, y, 116, 54)
    sheet.text(302, y + 23, plan.matches[match].env, bold=True, anchor="middle", size=13)
    rank = plan.rank_of(Role(RoleKind.ENVIRONMENT, match))
    sheet.text(302, y + 42, f"rank {rank}", size=12, color=MUTED, anchor="middle")
    sheet.arrow([(364, y + 27), (400, y + 27)], color=mine, tail=True)
    note = f"group rank {group_rank}, rank {plan.rank_of(Role(RoleKind.WORKER, match, seat))}"
    worker_card(sheet, 404, y, mine, f"{seats[seat].policy}: collect and learn", note, width=232)
    sheet.arrow([(640, y + 19), (694, y + 19)], color=mine)
    sheet.arrow([(696, y + 36), (642, y + 36)], color=mine)


def _hub(sheet: Sheet, color: str, top: float, height: float) -> None:
    sheet.box(698, top, 166, height, fill=tint(color, 0.9), stroke=color, dashed=True)
    middle = top + height / 2
    sheet.text(781, middle - 62, "average_gradients", bold=True, anchor="middle", mono=True, size=13)
    sheet.text(781, middle - 22, "g = \u03a3 w\u1d62 g\u1d62 / \u03a3 w\u1d62", anchor="middle", size=16)
    notes = ("one exchange for each", "gradient step, summed in", "the order of group ranks")
    sheet.lines(781, middle + 20, notes, anchor="middle", size=11.5, color=MUTED)


# --------------------------------------------------------------------------------- between an algorithm and its game


class Field(NamedTuple):
    """A part of a message."""

    name: str
    nbytes: int
    fill: str


def proxy() -> str:
    """The layers between an algorithm and its game, and the bytes of one tick."""
    scene = Scene.of("touchdown_2v2.yaml")
    sheet = Sheet(
        612,
        title="The proxy",
        describe="an algorithm steps an ordinary environment; one request and one reply per tick reach the game",
    )
    sheet.heading(
        "The algorithm cannot tell that its game runs elsewhere", "one seat, one request and one reply per tick"
    )
    _worker_process(sheet, scene.color(0))
    sheet.box(696, 100, 168, 190)
    sheet.text(780, 126, "environment process", bold=True, anchor="middle", size=13)
    lane_grid(sheet, 715.5, 148, scene, size=28.5)
    sheet.arrow([(620, 178), (692, 178)])
    sheet.arrow([(694, 222), (622, 222)])
    sheet.text(657, 168, "request", size=12, color=MUTED, anchor="middle")
    sheet.text(657, 240, "reply", size=12, color=MUTED, anchor="middle")
    layout = scene.layout(0)
    who = f"the seat of {scene.entity_names(0)} in {scene.config}: {layout.lanes} lanes, {layout.rows} rows"
    sheet.text(36, 330, "What is sent in one tick", bold=True, size=15)
    sheet.text(36, 351, who, size=13, color=MUTED)
    request, reply = _request_fields(layout), _reply_fields(layout)
    scale = 828 / sum(field.nbytes for field in reply)
    _message(sheet, 378, "request", request, scale)
    _message(sheet, 470, "reply", reply, scale)
    notes = (
        "Both layouts are fixed by the seat's spaces before the first tick: no pickle. On a tick on which rows end,",
        "their last observations follow; infos follow only where the game has any.",
    )
    sheet.lines(36, 568, notes, size=13, color=MUTED)
    return sheet.to_text()


def _worker_process(sheet: Sheet, color: str) -> None:
    sheet.box(36, 100, 584, 190, fill=tint(color, 0.93), stroke=tint(color, 0.4))
    sheet.text(56, 126, "worker process", bold=True)
    sheet.box(56, 146, 190, 122, fill=PAPER)
    sheet.text(72, 172, "algorithm", bold=True)
    sheet.text(72, 200, "def run(self):", mono=True, size=11.5)
    sheet.text(86, 220, "env.step(action)", mono=True, size=11.5)
    sheet.text(72, 248, "yours, or built in", size=12, color=MUTED)
    sheet.arrow([(250, 207), (280, 207)], tail=True)
    sheet.box(284, 146, 190, 122, fill=PAPER)
    sheet.text(300, 172, "proxy: one of 3 faces", bold=True, size=13)
    for row, (name, what) in enumerate((("gym", "Env"), ("vector", "VectorEnv"), ("parallel", "ParallelEnv"))):
        sheet.text(300, 199 + 22 * row, name, mono=True, size=12, color=color)
        sheet.text(372, 199 + 22 * row, what, mono=True, size=12)
    sheet.arrow([(478, 207), (508, 207)], tail=True)
    sheet.box(512, 146, 90, 122, fill=PAPER)
    sheet.text(557, 172, "seat", bold=True, anchor="middle")
    sheet.lines(557, 200, ("two buffers,", "own entities", "only"), anchor="middle", size=12, color=MUTED)


def _request_fields(layout: SeatLayout) -> list[Field]:
    request = RequestView(layout)
    return [
        Field("kind", request.header_bytes, "#d7dde3"),
        Field("actions", request.nbytes - request.header_bytes, "#aec7e8"),
    ]


def _reply_fields(layout: SeatLayout) -> list[Field]:
    reply = ReplyView(layout)
    flags = (reply.terminated, reply.truncated, reply.active, reply.fresh)
    observations = sum(leaf.nbytes for leaves in reply.rows for leaf in leaves)
    fields = [
        Field("header", reply.header.nbytes, "#d7dde3"),
        Field("4 flags", sum(flag.nbytes for flag in flags), "#c7e9c0"),
        Field("rewards", reply.rewards.nbytes, "#fdd0a2"),
        Field("masks", sum(mask.nbytes for mask in reply.mask_rows), "#dadaeb"),
        Field("observations", observations, "#aec7e8"),
    ]
    found = [field for field in fields if field.nbytes]
    assert sum(field.nbytes for field in found) == reply.message_bytes(), "the picture misses a field"
    return found


def _message(sheet: Sheet, y: float, name: str, fields: list[Field], scale: float) -> None:
    """A bar to scale, its fields named below."""
    total = sum(field.nbytes for field in fields)
    sheet.text(36, y + 12, f"{name}, {total} bytes", bold=True, size=13)
    x = label = 36.0
    for field in fields:
        width = field.nbytes * scale
        sheet.box(x, y + 22, width, 28, fill=field.fill, stroke=PAPER, radius=3)
        if width > 24:
            sheet.text(x + width / 2, y + 41, str(field.nbytes), size=11.5, anchor="middle")
        label = max(label, x + 3)  # names of narrow fields move to the right rather than onto each other
        sheet.text(label, y + 66, field.name, size=11.5)
        label += 6.2 * len(field.name) + 12
        x += width


# ------------------------------------------------------------------------------------------------------ whole plans


def match_2v2() -> str:
    """The processes of the smallest run of two teams."""
    scene = Scene.of("touchdown_2v2.yaml")
    plan, match = scene.plan, scene.match
    sheet = Sheet(
        536,
        title=f"Two against two: {plan.processes} processes",
        describe="a root, an environment, two blue and two red workers",
    )
    sheet.heading(
        f"Two against two: {plan.processes} processes", f"{scene.config}: both teams learn, against each other"
    )
    sheet.box(365, 96, 170, 64)
    sheet.text(450, 122, "root", bold=True, anchor="middle", size=15)
    sheet.text(450, 144, "plans, watches, records", anchor="middle", size=12.5, color=MUTED)
    _rank_tag(sheet, 535, 96, plan.rank_of(Role(RoleKind.ROOT)))
    sheet.arrow([(450, 162), (450, 206)], dashed=True, head=False)
    sheet.box(345, 208, 210, 246)
    sheet.text(450, 236, f"environment: {match.env}", bold=True, anchor="middle", size=13.5)
    sheet.text(450, 257, f"{match.lanes} lanes step together", anchor="middle", size=12.5, color=MUTED)
    lane_grid(sheet, 372.5, 282, scene, size=35)
    _rank_tag(sheet, 555, 208, plan.rank_of(Role(RoleKind.ENVIRONMENT, 0)))
    for side, policy in enumerate(plan.policies.values()):
        _team(sheet, scene, policy, left=36 if side == 0 else 624, inner=(264, 341) if side == 0 else (636, 559))
    sheet.text(450, 494, "solid: actions and observations on every tick", size=12.5, anchor="middle", color=MUTED)
    sheet.text(450, 513, "dotted: progress, a few times a second", size=12.5, anchor="middle", color=MUTED)
    return sheet.to_text()


def _team(sheet: Sheet, scene: Scene, policy: PolicyPlan, *, left: float, inner: tuple[float, float]) -> None:
    """The group of a policy: its workers in a frame, and their links to the environment."""
    color = color_of(policy)
    sheet.box(left, 208, 240, 246, fill=tint(color, 0.95), stroke=color, dashed=True, radius=12)
    sheet.text(left + 20, 236, f"group {policy.name}", bold=True, size=15, color=color)
    sheet.text(left + 20, 257, f"{policy.algorithm}, one set of weights", size=12.5, color=MUTED)
    for row, (_, seat) in enumerate(policy.workers):
        y = 280 + 98 * row
        worker_card(sheet, left + 16, y, color, "worker", f"plays {scene.entity_names(seat)}", width=208)
        _rank_tag(sheet, left + 224, y + 27, scene.plan.rank_of(Role(RoleKind.WORKER, 0, seat)))
        sheet.arrow([(inner[0], y + 27), (inner[1], y + 27)], color=color, tail=True)
    sheet.arrow([(left + 44, 337), (left + 44, 375)], color=color, tail=True)
    sheet.text(left + 58, 360, "mean gradients" if policy.sync == "gradients" else "samples", size=12, color=color)


def _rank_tag(sheet: Sheet, right: float, top: float, rank: int) -> None:
    """The number of a process, on the right side of its box."""
    sheet.box(right - 64, top - 11, 54, 22, fill=INK, stroke=INK, radius=11)
    sheet.text(right - 37, top + 4, f"rank {rank}", size=11.5, color=PAPER, anchor="middle")


def round_robin() -> str:
    """The processes of a large run."""
    scene = Scene.of("round_robin_4x5.yaml")
    plan = scene.plan
    pairs = sorted({match.entry for match in plan.matches})
    copies = len(plan.matches) // len(pairs)
    sheet = Sheet(
        680,
        title=f"Round robin: {len(plan.matches)} matches, {plan.processes} processes",
        describe=f"{len(plan.policies)} policies, each pair in {copies} copies of a 2 against 2 match",
    )
    sheet.heading(
        f"Round robin: {len(plan.matches)} matches, {plan.processes} processes",
        f"{scene.config}: {len(plan.policies)} policies, every pair in {copies} copies",
    )
    for match in plan.matches:
        column, row = match.copy, pairs.index(match.entry)
        _match_cell(sheet, plan, match, 164 + 94 * column, 118 + 78 * row)
        if column == 0:
            _pair_label(sheet, plan, match, 118 + 78 * row)
    for copy in range(copies):
        sheet.text(164 + 94 * copy + 42, 106, f"copy {copy}", size=12, anchor="middle", color=MUTED)
    for index, policy in enumerate(plan.policies.values()):
        _group_card(sheet, policy, 664, 118 + 117 * index)
    workers_each = len(scene.match.seats)
    sum_text = (
        f"{len(pairs)} pairs x {copies} copies = {len(plan.matches)} matches;  "
        f"{len(plan.matches)} x (1 environment + {workers_each} workers) + 1 root = {plan.processes} processes"
    )
    sheet.box(36, 606, 828, 44)
    sheet.text(450, 633, sum_text, bold=True, anchor="middle", size=14.5)
    return sheet.to_text()


def _sides(match: MatchPlan) -> tuple[str, str]:
    names = list(dict.fromkeys(seat.policy for seat in match.seats))
    return names[0], names[1]


def _pair_label(sheet: Sheet, plan: Plan, match: MatchPlan, y: float) -> None:
    for index, name in enumerate(_sides(match)):
        color = color_of(plan.policies[name])
        sheet.disc(46, y + 22 + 22 * index, 6, fill=color)
        sheet.text(62, y + 27 + 22 * index, name, bold=True, size=13.5)


def _match_cell(sheet: Sheet, plan: Plan, match: MatchPlan, x: float, y: float) -> None:
    """One match: the environment in the middle, its workers around it."""
    sheet.box(x, y, 84, 64, radius=6)
    environment = plan.rank_of(Role(RoleKind.ENVIRONMENT, match.match))
    last = plan.rank_of(Role(RoleKind.WORKER, match.match, match.seats[-1].index))
    first_side = _sides(match)[0]
    sheet.box(x + 32, y + 10, 20, 28, fill=PAPER, stroke="#9aa5b1", radius=3)
    for index, seat in enumerate(match.seats):
        left = seat.policy == first_side
        row = index % (len(match.seats) // 2)
        cx, cy = x + (15 if left else 69), y + 16 + 16 * row
        sheet.arrow([(cx, cy), (x + (32 if left else 52), cy)], color=LINE, head=False)
        sheet.disc(cx, cy, 6, fill=color_of(plan.policies[seat.policy]))
    sheet.text(x + 42, y + 55, f"ranks {environment}-{last}", size=10.5, anchor="middle", color=MUTED)


def _group_card(sheet: Sheet, policy: PolicyPlan, x: float, y: float) -> None:
    color = color_of(policy)
    sheet.box(x, y, 200, 103, fill=tint(color, 0.9), stroke=color, dashed=True, radius=10)
    sheet.text(x + 18, y + 28, f"group {policy.name}", bold=True, size=13, color=color)
    sheet.text(x + 182, y + 28, f"{len(policy.workers)} workers", size=11.5, anchor="end", color=MUTED)
    for index in range(len(policy.workers)):
        sheet.disc(x + 24 + 17 * (index % 10), y + 49 + 18 * (index // 10), 5.5, fill=color)


def legs() -> str:
    """The legs of a run, and which rank hosts which roles before and after a death."""
    scene = Scene.of("touchdown_2v2.yaml")
    plan, dead = scene.plan, 3
    sheet = Sheet(
        520,
        title="A run is a row of legs",
        describe="What is saved at their ends, where a killed run goes on, and what happens when one process dies",
    )
    sheet.heading("A run is a sequence of legs", "each begins with what the leg before it has saved")
    _leg_row(sheet, plan)
    after, order = rehosted(plan, [rank for rank in range(plan.processes) if rank != dead])
    sheet.text(36, 276, "A process dies: the others return to the newest boundary", bold=True, size=15)
    for rank in range(plan.processes):
        hosts = plan.ranks[rank]
        _rank_card(sheet, scene, 36 + 140 * rank, 298, f"rank {rank}", hosts, gone=rank == dead)
    for rank, hosts in enumerate(after.ranks):
        left = 36 + 140 * order[rank]
        sheet.arrow([(left + 64, 374), (left + 64, 408)])
        _rank_card(sheet, scene, left, 412, f"now rank {rank}", hosts)
    return sheet.to_text()


def _leg_row(sheet: Sheet, plan: Plan) -> None:
    """Three legs, a kill in the third, and the resumed run below."""
    every, left, width = plan.checkpoint_every, 56.0, 250.0
    for number in range(3):
        x = left + width * number
        sheet.box(x, 104, width if number < 2 else 0.6 * width, 44, fill=tint("#1f77b4", 0.85), radius=3)
        sheet.text(x + 14, 131, f"leg {number + 1}: {every:,} ticks", size=13)
    killed = left + 2.6 * width
    sheet.text(killed + 10, 131, "kill -9", bold=True, color="#b3261e")
    for number in range(3):
        x = left + width * number
        sheet.arrow([(x, 92), (x, 160)], color=INK, head=False, thick=2)
        sheet.text(x, 178, "start" if number == 0 else f"boundary {every * number:,}", size=12, anchor="middle")
    what = ["episodes cut", "weights, own states,", "records on the disk"]
    sheet.lines(left + width + 8, 200, what, step=15, size=11.5, color=MUTED)
    sheet.box(left + 2 * width, 206, width, 36, fill=tint("#2ca02c", 0.85), radius=3)
    sheet.text(left + 2 * width + 14, 229, "--resume: the same leg 3, to the bit", size=13)


def _rank_card(
    sheet: Sheet, scene: Scene, x: float, y: float, name: str, hosts: Sequence[Role], *, gone: bool = False
) -> None:
    """A process and its roles."""
    sheet.box(x, y, 128, 76, fill=PAPER if gone else "#f6f8fa", stroke="#b3261e" if gone else LINE, dashed=gone)
    sheet.text(x + 12, y + 20, f"{name}: died" if gone else name, size=12, color="#b3261e" if gone else MUTED)
    for index, role in enumerate(hosts):
        middle = y + 38 + 20 * index
        color = GRAY if role.seat is None else scene.color(role.seat)
        words = role.kind.value if role.seat is None else scene.entity_names(role.seat)
        sheet.disc(x + 18, middle - 4, 5, fill=color)
        sheet.text(x + 30, middle, words, size=12.5)


def rounds() -> str:
    """The first rounds of a league, as planned without any results."""
    name = "league_exploiters.yaml"
    config = load_config(CONFIGS / name)
    played = [next_round.first_round(config)]
    while len(played) < SHOWN_ROUNDS:
        played.append(next_round.next_round(config, played, Timeline((), config.ticks, config.learners), {}))
    height = 44 + 30 * len(_meetings(config, played[0]))  # of a column
    below = 98 + height
    sheet = Sheet(
        below + 150,
        title="A league is a sequence of rounds",
        describe="Who meets whom in each round, which snapshots join, and what decides the next one",
    )
    sheet.heading(
        "A league is a sequence of rounds", f"configs/{name}: each round has a plan of its own, the processes stay"
    )
    for number, found in enumerate(played):
        _round_column(sheet, config, found, 36 + 208 * number, height)
        if number:
            sheet.arrow([(36 + 208 * number - 24, 122), (36 + 208 * number - 4, 122)], color=INK)
    for index, policy in enumerate(config.policies):
        color = config.policies[policy].color or GRAY
        sheet.disc(46 + 170 * index, below + 25, 7, fill=color)
        sheet.text(60 + 170 * index, below + 30, policy, bold=True, size=13.5)
    sheet.disc(46 + 510, below + 25, 6, fill=PAPER, stroke=INK)
    sheet.text(60 + 510, below + 30, "a snapshot: frozen, named policy@tick", size=13.5)
    sheet.box(36, below + 54, 828, 66)
    what = [
        "After each round: results -> ratings and payoffs with their uncertainty -> snapshots, forks, resets -> "
        "pairings.",
        "Weights pass from round to round; each round is a line of rounds.jsonl, and a resumed league plans the same.",
    ]
    sheet.lines(52, below + 80, what, step=22, size=13)
    return sheet.to_text()


def _meetings(config: Config, found: Round) -> list[tuple[str, str]]:
    """The policies on the first and on the second side of each match."""
    plan = make_plan(next_round.round_config(config, found, Path), number=found.number)
    return [(match.seats[0].policy, match.seats[-1].policy) for match in plan.matches]


def _round_column(sheet: Sheet, config: Config, found: Round, x: float, height: float) -> None:
    sheet.box(x, 98, 178, height, radius=8)
    sheet.text(x + 14, 124, f"round {found.number}", bold=True, size=14.5)
    sheet.text(x + 164, 124, f"tick {found.start:,}", size=12, anchor="end", color=MUTED)
    for row, sides in enumerate(_meetings(config, found)):
        y = 152 + 30 * row
        for side, player in enumerate(sides):
            left = x + (22 if side == 0 else 104)
            policy, _, tick = player.partition("@")
            color = config.policies[policy].color or GRAY
            sheet.disc(left, y - 4, 6.5, fill=PAPER if tick else color, stroke=color)
            sheet.text(left + 13, y, f"@{int(tick):,}" if tick else "now", size=11.5, color=MUTED)


# ------------------------------------------------------------------------------------------------------ external games


def external() -> str:
    """Games that run elsewhere, their slots, and the tick that is formed from those that ask."""
    name = "external_cartpole.yaml"
    plan = make_plan(load_config(CONFIGS / name))
    match = plan.matches[0]
    color = color_of(plan.policies[match.seats[0].policy])
    asks = (True, False, True, None)  # of the games shown; None: a free slot
    sheet = Sheet(
        470,
        title="External games ask for actions",
        describe=f"games hold {match.lanes} slots; those that ask make the rows of a tick",
    )
    sheet.heading("External games ask for actions", f"configs/{name}: {match.make}, {match.lanes} slots")
    for x, title in ((36, "elsewhere: any language"), (262, "environment process"), (690, "worker")):
        sheet.text(x, 112, title, size=12.5, color=MUTED)
    sheet.box(262, 126, 380, 262)
    sheet.text(282, 152, "slots = lanes", bold=True)
    sheet.text(462, 152, "a tick", bold=True)
    for row, asking in enumerate(asks):
        y = 166 + 52 * row
        if asking is not None:
            sheet.box(36, y, 150, 40, fill=PAPER)
            sheet.text(50, y + 25, f"game {row}" + ("" if asking else ", thinking"), size=13)
            sheet.arrow([(188, y + 14), (278, y + 14)], color=color if asking else LINE, head=asking)
            if asking:
                sheet.arrow([(280, y + 29), (190, y + 29)], color=color)
        sheet.box(282, y, 130, 40, fill=PAPER)
        state = "free" if asking is None else "asks" if asking else "has its answer"
        sheet.text(296, y + 25, state, size=13, color=MUTED if asking is None else INK)
        sheet.arrow([(414, y + 20), (458, y + 20)], head=bool(asking), color=color if asking else LINE)
        sheet.box(462, y, 160, 40, fill=tint(color, 0.9) if asking else PAPER, stroke=color if asking else LINE)
        sheet.text(476, y + 25, "active row" if asking else "row, not active", size=13, color=INK if asking else MUTED)
    worker_card(sheet, 690, 214, color, f"worker, {match.seats[0].policy}", "learns from active rows")
    sheet.arrow([(644, 230), (686, 230)], color=color)
    sheet.arrow([(688, 252), (646, 252)], color=color)
    notes = (
        "A tick is formed when every game asks, or soon after the first one; it never waits for a game that thinks.",
        "Threads, sockets, HTTP and polled environments fill the slots; the rest of the arena sees lanes.",
    )
    sheet.lines(36, 426, notes, step=20)
    return sheet.to_text()


def ragged_message() -> str:
    """What a reply about any number of units holds."""
    boards = [
        {"mines": [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2)], "robots": [(1, 1)], "orbital_cannon": False, "cooldown": 5},
        {"mines": [(2, 1)], "robots": [(2, 0)], "orbital_cannon": True, "cooldown": 0},
        {"mines": [(1, 0), (0, 1), (2, 2)], "robots": [(0, 0), (2, 0)], "orbital_cannon": False, "cooldown": 5},
    ]
    lanes = len(boards)
    game = adapt_environment("minesweeper", {"width": 3, "height": 3}, lanes)
    space = game.interface.observation_spaces[0]
    shown = game.reset(np.ones(lanes, np.bool_), None, {"states": boards}).observations[0]
    leaves = list(zip(leaves_of(space, ragged=True), flatten(space, shown), strict=True))
    layout = SeatLayout.of(lanes, (space,), game.interface.action_spaces, (0,))
    parts = [Field("totals", 8 * len(leaves), "#aec7e8"), *(_heap_field(leaf, ragged) for leaf, ragged in leaves)]
    fixed, heap = ReplyView(layout).message_bytes(), sum(part.nbytes for part in parts)
    sheet = Sheet(
        452,
        title="A message with units",
        describe="a fixed part, and a heap with the number of items of each row and the items themselves",
    )
    sheet.heading("A reply about any number of units", "minesweeper: three lanes, of which one has an orbital cannon")
    bar = [Field("header, flags, rewards", fixed, "#d7dde3")]
    scale = 828 / max(fixed, heap)
    _message(sheet, 100, "fixed part", bar, scale)
    _message(sheet, 192, "heap", parts, scale)
    sheet.text(36, 296, "each part begins with its lengths, one number per lane", bold=True, size=13)
    for place, (leaf, ragged) in enumerate(leaves):
        x, y = 36 + 420 * (place % 2), 320 + 22 * (place // 2)
        sheet.text(x, y, f"{'.'.join(map(str, leaf.path))}: {ragged.lengths.tolist()}", mono=True, size=11.5)
    notes = ("The fixed part has a place from the beginning; the heap is backed by memory as it grows,", "and over MPI")
    sheet.text(
        36,
        320 + 22 * ((len(leaves) + 1) // 2) + 18,
        f"{notes[0]} {notes[1]} is a message of its own.",
        size=13,
        color=MUTED,
    )
    return sheet.to_text()


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


def _heap_field(leaf: Leaf, ragged: Ragged) -> Field:
    kind, *names = map(str, leaf.path)
    words = names[0] if kind == "units" else f"{names[0].split()[0]} {names[1]}"
    color = {"units": "#c7e9c0", "actions": "#fdd0a2"}[kind]
    return Field(words, ragged.lengths.nbytes + _aligned(ragged.values.nbytes), color)


def hand_over() -> str:
    """Two sides that take turns in a file, what each of them writes, and the change of the file."""
    name = "examples/shared_memory/config.yaml"
    kwargs = load_config(CONFIGS / name).envs["square"].kwargs
    groups = [group_spec(group, written) for group, written in kwargs["groups"].items()]
    arena, simulator = "#1f77b4", "#d95f02"
    sheet = Sheet(
        520,
        title="A hand-over",
        describe="the arena writes actions and gives the turn; the simulator steps, writes rows and gives it back",
    )
    sheet.heading("Two programs take turns in one file", f"configs/{name}: {len(groups)} groups")
    sheet.text(36, 142, "arena", color=arena, bold=True)
    sheet.text(36, 232, "simulator", color=simulator, bold=True)
    for turn in range(4):
        mine, x = turn % 2 == 0, 128 + 184 * turn
        y, color = (116, arena) if mine else (206, simulator)
        sheet.box(x, y, 150, 42, fill=tint(color, 0.9), stroke=color)
        sheet.text(x + 12, y + 26, "policies act" if mine else "steps its agents", size=13)
        if turn < 3:
            below = y + 21 + (90 if mine else -90)
            sheet.arrow([(x + 152, y + 21), (x + 167, y + 21), (x + 167, below), (x + 180, below)], color=color)
            sheet.text(x + 172, 186, f"turn = {1 if mine else 0}", size=12, color=MUTED)
    parts = [("header", 22, MUTED), ("messages", 0, MUTED)]
    for group in groups:
        sizes = dict(group.sizes())
        actions = sizes["action"]
        moving = sum(nbytes for _, nbytes in list(group.sizes())[list(sizes).index("n") :]) - actions
        parts += [(f"{group.name}: rows", moving, simulator), ("actions", actions, arena)]
    sheet.text(36, 296, "the file", bold=True)
    x = 128
    for field, nbytes, color in parts:
        width = 78 if nbytes < 30 else 88 if field == "actions" else 150
        sheet.box(
            x,
            274,
            width,
            56,
            fill=PAPER if color == MUTED else tint(color, 0.9),
            stroke=LINE if color == MUTED else color,
        )
        sheet.text(x + 10, 297, field, size=12.5)
        sheet.text(x + 10, 316, f"{nbytes} bytes" if nbytes else "if any", size=12, color=MUTED)
        x += width + 6
    sheet.text(36, 384, "next files", bold=True)
    sheet.box(128, 362, 190, 36, fill=PAPER)
    sheet.text(140, 385, "file, told to change", size=13)
    sheet.arrow([(320, 380), (356, 380)], color=simulator)
    sheet.box(360, 362, 190, 36, fill=tint(simulator, 0.9), stroke=simulator)
    sheet.text(372, 385, "file_, with a new group", size=13)
    sheet.arrow([(552, 380), (588, 380)], color=arena)
    sheet.box(592, 362, 220, 36, fill=tint(arena, 0.9), stroke=arena)
    sheet.text(604, 385, "file__, with larger messages", size=13)
    notes = (
        "Only the side that has the turn writes: the simulator rows, the arena actions, and the turn last of all.",
        "The side that waits looks at the turn, offers its core, and then sleeps. No socket, no serialization.",
        "Groups are registered, and large messages sent, in a new file; the other side removes the old one.",
    )
    sheet.lines(36, 438, notes, step=20)
    return sheet.to_text()


def group_spec(name: str, written: Mapping[str, Any]) -> GroupSpec:
    """A group as a configuration writes it."""
    branches = written.get("branches")
    return GroupSpec(
        name,
        written["agents"],
        tuple(map(tuple, written["observations"])),
        written.get("continuous"),
        None if branches is None else tuple(branches),
    )


PICTURES: dict[str, Callable[[], str]] = {
    picture.__name__: picture
    for picture in (
        environment_process,
        workers,
        proxy,
        match_2v2,
        round_robin,
        legs,
        rounds,
        external,
        ragged_message,
        hand_over,
        imports,
    )
}


def main() -> None:
    """Writes every picture beside this file."""
    for name, picture in PICTURES.items():
        (HERE / f"{name}.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
