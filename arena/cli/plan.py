"""`arena plan`: which rank does what, without starting anything; as a table, or as a drawing for Graphviz."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from arena import registry
from arena.cli.arguments import add_config, add_ranks
from arena.config import load_with_origin
from arena.config.schema import Evaluation
from arena.errors import ConfigError, listed, pluralize
from arena.plan.build import on_hosts
from arena.plan.deadlock import waiting_text
from arena.plan.hosts import Share, allocated, parse_hosts, shares
from arena.plan.plan import MatchPlan, Plan, Role, RoleKind
from arena.plan.process_count import process_count
from arena.preflight.examine import Preflight, wrapped_text
from arena.preflight.external import EXTERNAL_GAMES_TEXT, external_kinds
from arena.preflight.outcomes import outcome_rule
from arena.records.formats import document_text, plan_file
from arena.run.api import preflight, role_rows
from arena.run.planning import checked_plan
from arena.terminal.display import crossing_text, processes_text
from arena.terminal.output import say
from arena.terminal.rounds import rounds_lines

_HEADINGS = ("rank", "role", "match", "policy", "entities")
_UNCOLORED = "#999999"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_ranks(parser)
    parser.add_argument(
        "--hosts", metavar="A:4,B:4", help="hosts, which are not asked, and their slots (default: the allocation's)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--dot", action="store_true", help="as a drawing for Graphviz")
    form.add_argument(
        "--probe", action="store_true", help="play the first match for two seconds, and predict memory and ticks/s"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan; returns the exit status."""
    config, origin = load_with_origin(arguments.config, arguments.overrides)
    hosts = () if arguments.hosts is None else parse_hosts(arguments.hosts)
    count = process_count(config, arguments.ranks, os.environ, hosts=hosts)
    with origin.located():
        plan = checked_plan(config, ranks=count.number)
        findings = preflight(plan, config)
    rounds = rounds_lines(config)
    host_lines = []  # for each host that the user names or SLURM has allocated
    if known := hosts or allocated(os.environ):
        try:
            found = shares(known, plan.processes)
            plan = on_hosts(plan, [share.host for share in found for _ in share.ranks])
            host_lines = [*(_host_line(plan, share) for share in found), crossing_text(plan)]
        except ConfigError as error:
            if hosts:
                raise
            host_lines = [f"this allocation: {error.message}"]
    if arguments.json:
        rules = {match.match: outcome_rule(match, findings.interfaces[match.match]) for match in plan.matches}
        say(document_text(plan_file(plan, external_kinds(plan.matches), rules)))
    elif arguments.dot:
        say(_dot(plan, rounds))
    else:
        sets = [part for text in arguments.overrides for part in ("--set", text)]
        sets += ["--hosts", arguments.hosts] if hosts else []
        command = shlex.join(["arena", "train", arguments.config, *sets, "--ranks", str(plan.processes)])
        evaluation = config.evaluation
        say(_text(plan, findings, command, count.text, hosts=host_lines, rounds=rounds, evaluation=evaluation))
    if arguments.probe:
        from arena.cli.probe import probe, probe_text

        say(f"\n{probe_text(plan, probe(plan))}")
    return 0


def _text(
    plan: Plan,
    examination: Preflight,
    command: str,
    ranks: str,
    *,
    hosts: Sequence[str],
    rounds: Sequence[str],
    evaluation: Evaluation | None,
) -> str:
    """The table and all lines below it; `ranks` says why the plan has as many processes as it has."""
    waiting, refused = waiting_text(plan, examination.schedules)
    rows: list[Sequence[str]] = [_HEADINGS]
    for row in role_rows(plan, examination):
        match = "" if row["match"] is None else str(row["match"])
        rows.append((str(row["rank"]), row["role"], match, row["policy"] or "", ", ".join(row["entities"])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    environments = pluralize(len(plan.matches), "environment")
    workers = pluralize(len(plan.roles(RoleKind.WORKER)), "worker")
    idle = len(plan.idle_ranks)
    hosted = f"1 root + {environments} + {workers}" + f" + {idle} idle" * bool(idle)
    if plan.packed:
        processes = f"{processes_text(plan.processes, len(plan.roles()))}: {hosted}"
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
                *(_rank_line(plan, rank) for rank in range(plan.processes) if plan.packed),
            ]
        ),
        *(["\n".join(hosts)] if hosts else []),
        "\n".join(_policy_line(name, plan, examination) for name in plan.policies),
        *([_evaluation_line(evaluation, plan)] if evaluation is not None else []),
        f"schedule: {waiting}",
        f"start it: {command}" + "\n  `arena train` refuses it, as it can deadlock" * refused,
    ]
    return "\n\n".join(sections)


def _evaluation_line(evaluation: Evaluation, plan: Plan) -> str:
    """When frozen copies play, how much, and who."""
    who, changed = "who trains, in the same matches", ""
    if evaluation.env_kwargs:
        changed = f", with {', '.join(f'{key}: {value}' for key, value in evaluation.env_kwargs.items())}"
    if evaluation.seats is not None:
        who = " ".join(seat if isinstance(seat, str) else f"[{' '.join(seat)}]" for seat in evaluation.seats)
    times = pluralize(-(-plan.horizon // evaluation.every), "time")
    actions = "the most likely actions" if evaluation.greedy else "sampled actions"
    episodes = pluralize(evaluation.episodes, "episode")
    return (
        f"evaluation: every {pluralize(evaluation.every, 'tick')} and at the end, {times} in all; at least {episodes} "
        f"of each policy, {actions}: {who}{changed}"
    )


def _rank_line(plan: Plan, rank: int) -> str:
    """What a rank hosts, and of which matches."""
    roles = plan.ranks[rank]
    if not roles:
        return f"rank {rank} is idle"
    kinds = Counter(role.kind for role in roles)
    environments, workers = kinds[RoleKind.ENVIRONMENT], kinds[RoleKind.WORKER]
    counts = Counter(plan.seat(role).policy for role in roles if role.kind is RoleKind.WORKER)
    policies = listed([f"{counts[name]} {name}" for name in plan.policies if counts[name]])
    parts = ["root"] * kinds[RoleKind.ROOT]
    parts += [pluralize(environments, "environment")] * bool(environments)
    parts += [f"{pluralize(workers, 'worker')} ({policies})"] * bool(workers)
    numbers = sorted({role.match for role in roles if role.match is not None})
    of = f" of {'match' if len(numbers) == 1 else 'matches'} {_ranges(numbers)}" if numbers else ""
    return f"rank {rank} hosts {', '.join(parts)}{of}"


def _host_line(plan: Plan, share: Share) -> str:
    """How many ranks a host has, which, and what they host."""
    roles = Counter(role.kind.value for rank in share.ranks for role in plan.ranks[rank])
    hosted = ", ".join(pluralize(roles[kind.value], kind.value) for kind in RoleKind if roles[kind.value])
    count = pluralize(len(share.ranks), "rank")
    return f"host {share.host}: {count}, {_ranges(share.ranks)}: {hosted or 'nothing'}"


def _ranges(numbers: Sequence[int]) -> str:
    """`0 to 9, 12`: rising numbers, neighbors joined."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _matches_lines(plan: Plan, hints: Mapping[str, str]) -> Iterator[str]:
    """One line for each description; its copies are named together."""
    by_entry: dict[int, list[MatchPlan]] = {}
    for match in plan.matches:
        by_entry.setdefault(match.entry, []).append(match)
    for copies in by_entry.values():
        first = copies[0]
        numbers = listed([str(match.match) for match in copies])
        players = " ".join(seat.policy for seat in first.seats)
        what = "match" if len(copies) == 1 else "matches"
        kind = registry.external_kind(first.game.make)
        extent = f"{pluralize(first.lanes, 'slot' if kind else 'lane')}, {pluralize(plan.ticks, 'tick')}"
        of = f" ({kind})" if kind else ""
        kwargs = f" {json.dumps(first.game.kwargs, default=repr)}" if first.game.kwargs else ""
        if kind == "shared_memory":  # its arguments take many lines
            of, kwargs = f" ({kind}, {pluralize(first.game.kwargs.get('simulators', 1), 'simulator')})", ""
        yield f"{what} {numbers}: {first.env}{of}{kwargs}{wrapped_text(first)}, {extent}: {players}"
        if kind:
            yield f"games of {what} {numbers} {EXTERNAL_GAMES_TEXT}"
        for match in copies if kind == "http" else ():
            host, port = first.game.kwargs.get("host", "127.0.0.1"), first.game.kwargs.get("port", 8000)
            rank = plan.place(plan.rank_of(Role(RoleKind.ENVIRONMENT, match.match)))
            at = f"port {port + match.copy}" if port else "any free port"
            yield f"match {match.match} listens in {rank}: {host}, {at}"
        if first.env in hints:
            yield hints[first.env]


def _policy_line(name: str, plan: Plan, examination: Preflight) -> str:
    policy, findings = plan.policies[name], examination.policies[name]
    parts = [f"{policy.config.algorithm}, {pluralize(len(policy.workers), 'worker')}"]
    if findings.faces:
        parts.append(f"face {' and '.join(findings.faces)}")
    parts += ["frozen"] * policy.config.frozen
    waits = any(  # rows without a turn, or whose game does not ask, are no samples
        examination.interfaces[match].in_turns or registry.external_kind(plan.matches[match].game.make)
        for match, _ in policy.workers
    )
    titles = ((title.replace("_", " "), size) for title, size in findings.sizes.items())
    sizes = [f"{size} {title.replace('s ', ' ', 1) if size == 1 else title}" for title, size in titles]
    if findings.rows and not sizes:
        sizes.append(f"{pluralize(sum(findings.rows), 'sample')} per tick")
    parts += [f"at most {size}" if waits and "sample" in size else size for size in sizes]
    return f"policy {name}: {', '.join(parts)}"


def _dot(plan: Plan, rounds: Sequence[str]) -> str:
    """The plan for Graphviz: a cluster for each match, workers in their policy's color, groups as dashed lines.

    `rounds`, the lines of `rounds_lines`, are written below.
    """

    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'

    def hosted(role: Role) -> str:
        return f"\nrank {plan.rank_of(role)}"

    lines = [
        f"digraph {quoted(plan.config.name)} {{",
        "  rankdir=TB; compound=true; fontname=sans;",
        '  node [fontname=sans, style=filled, fillcolor="#eeeeee"];',
        f"  root [label={quoted(f'root{hosted(Role(RoleKind.ROOT))}')}, shape=doubleoctagon];",
    ]
    for match in plan.matches:
        number = match.match
        environment = f"{match.env}{hosted(Role(RoleKind.ENVIRONMENT, number))}"
        lines += [
            f"  subgraph cluster_{number} {{",
            f"    label={quoted(f'match {number}')}; color={quoted('#bbbbbb')};",
            f"    env_{number} [label={quoted(environment)}, shape=box];",
        ]
        for seat in match.seats:
            color = plan.policies[seat.policy].config.color or _UNCOLORED
            # Black or white, whichever is read better on a color (relative luminance of ITU-R BT.601).
            red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
            ink = "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
            entities = ", ".join(str(entity) for entity in seat.entities)
            label = quoted(f"{seat.policy}{hosted(Role(RoleKind.WORKER, number, seat.index))}\nplays {entities}")
            node = f"worker_{number}_{seat.index}"
            style = f"shape=ellipse, fillcolor={quoted(color)}, fontcolor={quoted(ink)}"
            lines += [f"    {node} [label={label}, {style}];", f"    env_{number} -> {node} [dir=both];"]
        lines.append("  }")
    lines += [f"  root -> env_{match.match} [style=dotted, arrowhead=none];" for match in plan.matches]
    for policy in plan.policies.values():
        style = f"style=dashed, dir=none, constraint=false, color={quoted(policy.config.color or _UNCOLORED)}"
        workers = [f"worker_{match}_{seat}" for match, seat in policy.workers]
        lines += [f"  {one} -> {other} [{style}];" for one, other in pairwise(workers)]
    if rounds:  # at the end, or the clusters' labels would be placed likewise
        below = "\n".join(rounds)
        lines.append(f"  labelloc=b; labeljust=l; label={quoted(below)};")
    return "\n".join([*lines, "}"])
