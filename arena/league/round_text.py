"""A round of a league in words: who meets whom, what has changed, how gates were decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from arena.errors import listed, pluralize
from arena.plan.plan import Plan
from arena.records.formats import Round

_SHOWN = 6  # pairings of a round


def round_text(plan: Plan) -> str:
    """A round of a league: its number, from 0, and who meets whom in it."""
    games = Counter[str]()
    for match in plan.matches:  # a policy that plays against itself is named on both sides, on each of them once
        names = [seat.policy for seat in match.seats]
        sides = [" + ".join(dict.fromkeys(names[seat] for seat in side)) for side in match.sides]
        games[" - ".join(sides or dict.fromkeys(names))] += 1
    shown = [f"{who} x{count}" if count > 1 else who for who, count in games.most_common(_SHOWN)]
    more = [f"and {len(games) - _SHOWN} more"] if len(games) > _SHOWN else []
    return f"round {plan.round} of 0 to {plan.config.round_count - 1}: {', '.join([*shown, *more])}"


def change_text(line: Round) -> list[str]:
    """The changes at the beginning of a round, from its line of `rounds.jsonl`: a phrase for each kind of change."""
    joined, dropped, resets = map(listed, (line.snapshots, line.dropped, line.resets))
    parts = [
        f"{joined} joined" if joined else "",
        f"{dropped} left" if dropped else "",
        f"{resets} started over" if resets else "",
    ]
    for policy, fork in line.forks.items():
        options = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in fork.options.items()
        )
        parts.append(f"{policy} is a copy of {fork.source}" + (f" with {options}" if options else ""))
    for gate in line.gates:
        claim = claim_text(gate.verdict, policy=gate.policy, against=gate.against)
        parts.append(f"{claim} ({pluralize(gate.games, 'game')})")
    return [part for part in parts if part]


class VerdictText(NamedTuple):
    """A verdict in words."""

    gate: str  # the decision of the gate
    claim: str  # a sentence about the policy and its snapshot


VERDICTS: Mapping[str, VerdictText] = {
    "better": VerdictText("gate passed", "{policy} is better than {against}"),
    "not_better": VerdictText("gate not passed", "{policy} is no better than {against}"),
    "open": VerdictText("gate undecided", "gate undecided: {policy} against {against}"),
}


def gate_text(verdict: str) -> str:
    """The decision of a gate; an unknown verdict, of another version of the arena, is shown unchanged."""
    return VERDICTS[verdict].gate if verdict in VERDICTS else f"gate {verdict}"


def claim_text(verdict: str, *, policy: str, against: str) -> str:
    """What a gate has found out about a policy and its newest snapshot."""
    if verdict not in VERDICTS:
        return f"{gate_text(verdict)}: {policy} against {against}"
    return VERDICTS[verdict].claim.format(policy=policy, against=against)
