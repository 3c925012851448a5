"""A plan as text: the table of `arena plan`, and a Graphviz drawing."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from arena import registry
from arena.config.schema import EvaluationConfig
from arena.errors import pluralize
from arena.plan.deadlock import waiting_words
from arena.plan.hosts import Share
from arena.plan.plan import MatchPlan, Plan, Role, RoleKind
from arena.preflight.examine import Preflight, wrapped_words
from arena.preflight.external import FROM_OUTSIDE
from arena.terminal.text import processes_words

_HEADINGS = ("rank", "role", "match", "policy", "entities")
_UNCOLORED = "#999999"


def plan_text(
    plan: Plan,
    examination: Preflight,
    *,
    config: str,
    arguments: Sequence[str] = (),
    hosts: Sequence[str] = (),
    rounds: Sequence[str] = (),
    evaluation: EvaluationConfig | None = None,
    ranks: str = "",
) -> str:
    """Everything that `arena plan` prints.

    Args:
        plan: of the configuration.
        examination: of the plan.
        config: the configuration's file, for the command line.
        arguments: further arguments of `arena train` that led to this plan.
        hosts: a line for each, as `host_line` makes them, where hosts are known.
        rounds: what comes after this one, as `rounds_lines` says it, where there are several.
        evaluation: of the policies while they learn, if there is one.
        ranks: why the plan has as many processes as it has.
    """
    waiting, refused = waiting_words(plan, examination.schedules)
    command = command_line(plan, config=config, arguments=arguments)
    rows = [_HEADINGS, *_rows(plan, examination)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    environments = pluralize(len(plan.matches), "environment")
    workers = pluralize(len(plan.roles(RoleKind.WORKER)), "worker")
    hosted = f"1 root + {environments} + {workers}"
    idle = len(plan.idle_ranks)
    hosted += f" + {idle} idle" * bool(idle)
    if plan.packed:
        processes = f"{processes_words(plan.processes, len(plan.roles()))}: {hosted}"
    else:
        processes = f"{plan.processes} = {hosted}"
    sections = [
        "\n".join(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ),
        "\n".join(_matches_lines(plan, examination.hints)),
        *(["\n".join(rounds)] if rounds else []),
        "\n".join(
            [
                f"processes: {processes}",
                *([ranks] if ranks else []),
                *(_packing_lines(plan) if plan.packed else ()),
            ]
        ),
        *(["\n".join(hosts)] if hosts else []),
        "\n".join(_policy_lines(plan, examination)),
        *([_evaluation_text(evaluation, plan)] if evaluation is not None else []),
        f"schedule: {waiting}",
        f"start it: {command}" + "\n  `arena train` refuses it, as it can deadlock" * refused,
    ]
    return "\n\n".join(sections)


def _evaluation_text(evaluation: EvaluationConfig, plan: Plan) -> str:
    """When frozen copies play, how much, and who."""
    who = "who trains, in the same matches"
    if evaluation.seats is not None:
        who = " ".join(seat if isinstance(seat, str) else f"[{' '.join(seat)}]" for seat in evaluation.seats)
    times = pluralize(-(-plan.horizon // evaluation.every), "time")
    actions = "the most likely actions" if evaluation.greedy else "sampled actions"
    episodes = pluralize(evaluation.episodes, "episode")
    return (
        f"evaluation: every {pluralize(evaluation.every, 'tick')} and at the end, {times} in all; at least {episodes} "
        f"of each policy, {actions}: {who}"
    )


def command_line(plan: Plan, *, config: str, arguments: Sequence[str] = ()) -> str:
    """The command that runs the plan."""
    return shlex.join(["arena", "train", config, *arguments, "--ranks", str(plan.processes)])


def _packing_lines(plan: Plan) -> Iterator[str]:
    """One line for each rank: what it hosts, and of which matches."""
    for rank, roles in enumerate(plan.ranks):
        kinds = Counter(role.kind for role in roles)
        environments, workers = kinds[RoleKind.ENVIRONMENT], kinds[RoleKind.WORKER]
        parts = ["root"] * kinds[RoleKind.ROOT]
        parts += [pluralize(environments, "environment")] * bool(environments)
        parts += [f"{pluralize(workers, 'worker')} ({_policies(plan, roles)})"] * bool(workers)
        numbers = sorted({role.match for role in roles if role.match is not None})
        of = f" of {'match' if len(numbers) == 1 else 'matches'} {_ranges(numbers)}" if numbers else ""
        yield f"rank {rank} hosts {', '.join(parts)}{of}" if roles else f"rank {rank} is idle"


def host_line(plan: Plan, share: Share) -> str:
    """How many ranks a host has, which, and what they host."""
    roles = Counter(role.kind.value for rank in share.ranks for role in plan.ranks[rank])
    hosted = ", ".join(pluralize(roles[kind.value], kind.value) for kind in RoleKind if roles[kind.value])
    count = pluralize(len(share.ranks), "rank")
    return f"host {share.host}: {count}, {_ranges(share.ranks)}: {hosted or 'nothing'}"


def _policies(plan: Plan, roles: Sequence[Role]) -> str:
    counts = Counter(plan.seat(role).policy for role in roles if role.kind is RoleKind.WORKER)
    return ", ".join(f"{counts[name]} {name}" for name in plan.policies if counts[name])


def _ranges(numbers: Sequence[int]) -> str:
    """`0 to 9, 12`: rising numbers, neighbors joined."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _rows(plan: Plan, examination: Preflight) -> Iterator[tuple[str, ...]]:
    for rank, roles in enumerate(plan.ranks):
        if not roles:
            yield (str(rank), "idle", "", "", "")
        for role in roles:
            yield (str(rank), *_cells(plan, examination, role))


def _cells(plan: Plan, examination: Preflight, role: Role) -> tuple[str, str, str, str]:
    match = "" if role.match is None else str(role.match)
    if role.kind is not RoleKind.WORKER or role.match is None or role.seat is None:
        return (role.kind.value, match, "", "")
    names = examination.entity_names(role.match, role.seat)
    return (role.kind.value, match, plan.seat(role).policy, ", ".join(names))


def _matches_lines(plan: Plan, hints: Mapping[str, str]) -> Iterator[str]:
    """One line for each description; its copies are named together."""
    by_entry: dict[int, list[MatchPlan]] = {}
    for match in plan.matches:
        by_entry.setdefault(match.entry, []).append(match)
    for copies in by_entry.values():
        first = copies[0]
        numbers = ", ".join(str(match.match) for match in copies)
        players = " ".join(seat.policy for seat in first.seats)
        what = "match" if len(copies) == 1 else "matches"
        kind = registry.external_kind(first.game.make)
        extent = f"{pluralize(first.lanes, 'slot' if kind else 'lane')}, {pluralize(plan.ticks, 'tick')}"
        of = f" ({kind})" if kind else ""
        kwargs = f" {json.dumps(first.game.kwargs, default=repr)}" if first.game.kwargs else ""
        if kind == "shared_memory":  # its arguments take many lines
            of, kwargs = f" ({kind}, {pluralize(first.game.kwargs.get('simulators', 1), 'simulator')})", ""
        yield f"{what} {numbers}: {first.env}{of}{kwargs}{wrapped_words(first)}, {extent}: {players}"
        if kind:
            yield f"games of {what} {numbers} {FROM_OUTSIDE}"
        if first.env in hints:
            yield hints[first.env]


def _policy_lines(plan: Plan, examination: Preflight) -> Iterator[str]:
    for name, policy in plan.policies.items():
        findings = examination.policies[name]
        parts = [f"{policy.config.algorithm}, {pluralize(len(policy.workers), 'worker')}"]
        if findings.faces:
            parts.append(f"face {' and '.join(findings.faces)}")
        parts += ["frozen"] * policy.config.frozen
        parts += [f"{size} {title.replace('_', ' ')}" for title, size in findings.sizes.items()]
        if findings.rows and not findings.sizes:
            parts.append(f"{pluralize(sum(findings.rows), 'sample')} per tick")
        yield f"policy {name}: {', '.join(parts)}"


def dot(plan: Plan, *, rounds: Sequence[str] = ()) -> str:
    """The plan for Graphviz: a cluster for each match, workers in their policy's color, groups as dashed lines.

    Args:
        plan: of the configuration.
        rounds: what comes after this one, as `rounds_lines` says it; written below.
    """
    lines = [
        f"digraph {_quote(plan.config.name)} {{",
        "  rankdir=TB; compound=true; fontname=sans;",
        '  node [fontname=sans, style=filled, fillcolor="#eeeeee"];',
        f"  root [label={_quote(f'root{_hosted(plan, Role(RoleKind.ROOT))}')}, shape=doubleoctagon];",
    ]
    for match in plan.matches:
        lines += [f"  {line}" for line in _cluster(plan, match)]
    lines += [f"  root -> env_{match.match} [style=dotted, arrowhead=none];" for match in plan.matches]
    for policy in plan.policies.values():
        lines += [f"  {line}" for line in _group_edges(policy.workers, policy.config.color or _UNCOLORED)]
    if rounds:  # at the end, or the clusters' labels would be placed likewise
        below = "\n".join(rounds)
        lines.append(f"  labelloc=b; labeljust=l; label={_quote(below)};")
    return "\n".join([*lines, "}"])


def _cluster(plan: Plan, match: MatchPlan) -> Iterator[str]:
    number = match.match
    hosted = _hosted(plan, Role(RoleKind.ENVIRONMENT, number))
    yield f"subgraph cluster_{number} {{"
    yield f"  label={_quote(f'match {number}')}; color={_quote('#bbbbbb')};"
    yield f"  env_{number} [label={_quote(f'{match.env}{hosted}')}, shape=box];"
    for seat in match.seats:
        color = plan.policies[seat.policy].config.color or _UNCOLORED
        hosted = _hosted(plan, Role(RoleKind.WORKER, number, seat.index))
        entities = ", ".join(str(entity) for entity in seat.entities)
        label = _quote(f"{seat.policy}{hosted}\nplays {entities}")
        node = f"worker_{number}_{seat.index}"
        yield f"  {node} [label={label}, shape=ellipse, fillcolor={_quote(color)}, fontcolor={_quote(_ink(color))}];"
        yield f"  env_{number} -> {node} [dir=both];"
    yield "}"


def _group_edges(workers: Sequence[tuple[int, int]], color: str) -> Iterator[str]:
    names = [f"worker_{match}_{seat}" for match, seat in workers]
    for one, other in pairwise(names):
        yield f"{one} -> {other} [style=dashed, dir=none, constraint=false, color={_quote(color)}];"


def _hosted(plan: Plan, role: Role) -> str:
    return f"\nrank {plan.rank_of(role)}"


def _ink(color: str) -> str:
    """Black or white, whichever is read better on a color (relative luminance of ITU-R BT.601)."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
