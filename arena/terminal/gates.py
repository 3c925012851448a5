"""How a gate's verdict is told: the screen says it in a sentence, the report in tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class VerdictWords(NamedTuple):
    """A verdict in words."""

    gate: str  # what has become of the gate
    claim: str  # a sentence about the policy and its snapshot


VERDICTS: Mapping[str, VerdictWords] = {
    "better": VerdictWords("gate passed", "{policy} is better than {against}"),
    "not_better": VerdictWords("gate not passed", "{policy} is no better than {against}"),
    "open": VerdictWords("gate undecided", "gate undecided: {policy} against {against}"),
}


def gate_words(verdict: str) -> str:
    """What has become of a gate; a verdict that only another version of the arena knows is told as it is."""
    return VERDICTS[verdict].gate if verdict in VERDICTS else f"gate {verdict}"


def claim_words(verdict: str, *, policy: str, against: str) -> str:
    """What a gate has found out of a policy and its newest snapshot."""
    if verdict not in VERDICTS:
        return f"{gate_words(verdict)}: {policy} against {against}"
    return VERDICTS[verdict].claim.format(policy=policy, against=against)
