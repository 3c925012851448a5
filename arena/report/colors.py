"""The colors of a run's policies: those of the configuration, and quiet ones for policies that have none of their own.

In a tournament of several runs policies of the same name bring the same color along: the first of them keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arena.config.schema import Config

# Paul Tol's "muted" set: distinguishable for color-blind readers, legible on white and on black.
SPARE = ("#4477aa", "#cc6677", "#ddaa33", "#228833", "#aa3377", "#66ccee", "#88ccee", "#999933", "#882255", "#117733")
_PLAIN = "#8a9099"


class Colors:
    """A color for every player; a snapshot has its policy's. Policies share one only where there are no others.

    In a tournament checkpoints are the policies: each has a color of its own.
    """

    def __init__(self, config: Config) -> None:
        chosen: dict[str, str] = {}
        for name, policy in config.policies.items():
            if policy.color and policy.color.lower() not in {color.lower() for color in chosen.values()}:
                chosen[name] = policy.color
        bare = [name for name in config.policies if name not in chosen]
        chosen |= dict(zip(bare, _unlike(chosen.values(), len(bare)), strict=True))
        self.policies: Mapping[str, str] = {name: chosen[name] for name in config.policies}

    def __getitem__(self, player: str) -> str:
        return self.policies.get(player) or self.policies.get(player.partition("@")[0], _PLAIN)


def _unlike(taken: Iterable[str], count: int) -> list[str]:
    """`count` spare colors, each the furthest from all that are taken; if they do not suffice, they repeat."""

    def distance(color: str) -> float:
        """Between the channels, weighted as eyes do (Riemersma, "Colour metric"), to the nearest one."""
        r, g, b = _channels(color)
        found = []
        for red, green, blue in map(_channels, (*others, *chosen)):
            warm = (r + red) / 512
            found.append((2 + warm) * (r - red) ** 2 + 4 * (g - green) ** 2 + (3 - warm) * (b - blue) ** 2)
        return min(found, default=0.0)

    others, spare = list(taken), list(SPARE)
    chosen: list[str] = []
    while spare and len(chosen) < count:
        best = max(spare, key=distance)
        spare.remove(best)
        chosen.append(best)
    return [chosen[place % len(chosen)] for place in range(count)]


def _channels(color: str) -> tuple[int, int, int]:
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return red, green, blue


def palette(count: int) -> list[str]:
    """`count` colors, as unlike as possible; they repeat if `count` is large."""
    return _unlike((), count)
