"""The colours of a run's policies: those of the configuration, and quiet ones for policies that have none of their own.

In a tournament of several runs policies of the same name bring the same colour along: the first of them keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping

from arena.config.schema import Config

# Paul Tol's "muted" set: told apart also by those who see fewer colours, legible on white and on black.
_SPARE = ("#4477aa", "#cc6677", "#ddaa33", "#228833", "#aa3377", "#66ccee", "#88ccee", "#999933", "#882255", "#117733")
_PLAIN = "#8a9099"


class Colors:
    """A colour for every player, a snapshot's that of its policy; policies share one only where there are no others."""

    def __init__(self, config: Config) -> None:
        given: dict[str, str] = {}
        for name, policy in config.policies.items():
            if policy.color and policy.color.lower() not in {color.lower() for color in given.values()}:
                given[name] = policy.color
        taken = {color.lower() for color in given.values()}
        spare = [color for color in _SPARE if color not in taken] or list(_SPARE)
        bare = [name for name in config.policies if name not in given]
        given |= {name: spare[number % len(spare)] for number, name in enumerate(bare)}
        self.policies: Mapping[str, str] = {name: given[name] for name in config.policies}

    def __getitem__(self, player: str) -> str:
        return self.policies.get(player.partition("@")[0], _PLAIN)


def faded(color: str, opacity: float) -> str:
    """The colour as `rgba(...)`."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def ink_on(color: str) -> str:
    """Black or white, whichever is read better on a colour (relative luminance of ITU-R BT.601)."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
