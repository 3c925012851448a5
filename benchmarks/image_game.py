"""A game of images: four seats that each see 84x84x1 bytes, 6 processes.

Touchdown two against two, drawn for every player, and the empty game with images of the same size, which measures the
transport alone. The arena and the protocol of 2022 play the same game; all players always choose action 0.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import runs
from harness import Case, Report, Settings, interleave, main, method, say
from tick_overhead import EVERY, arena, program

GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "touchdown": ("envs.touchdown:Touchdown", {"team_size": 2, "blue_obs": "image", "red_obs": "image"}),
    "empty": ("games:Empty", {"shape": [84, 84, 1], "dtype": "uint8", "episode": 1500}),
}


def config(name: str, ticks: int) -> dict[str, Any]:
    """One match of four constant players."""
    game, kwargs = GAMES[name]
    return {
        "name": "images",
        "ticks": ticks,
        "envs": {name: runs.clocked(game, kwargs, every=EVERY)},
        "policies": {"blue": {"algorithm": "workers:Constant"}, "red": {"algorithm": "workers:Constant"}},
        "matches": [{"env": name, "seats": ["blue", "blue", "red", "red"]}],
    }


def cases(name: str, settings: Settings) -> list[Case]:
    """The arena and the protocol of 2022 in one game."""
    seconds = settings.pick(4.0, 0.5)
    ticks = settings.pick(0, 1000) or runs.ticks_for(config(name, 1), seconds, probe=1000)
    game, kwargs = GAMES[name]
    told: Mapping[str, Any] = {"matches": [["blue", "blue", "red", "red"]], "game": game, "kwargs": kwargs}
    old = partial(program, "protocol_2022.py", **told, lanes=1, random=False, seconds=seconds)
    return [Case(f"arena, {name}", partial(arena, config(name, ticks))), Case(f"2022, {name}", old)]


def benchmark(settings: Settings) -> Report:
    """Measures both games."""
    measured = interleave([case for name in GAMES for case in cases(name, settings)], settings.repeats, say=say)
    report = Report("image_game", "Images, 84x84x1, four seats", measured, method(__doc__))
    for name in GAMES:
        better = measured.ratio((f"2022, {name}", "us per tick"), (f"arena, {name}", "us per tick"))
        report.at_least(f"{name}: us per tick, protocol of 2022 / arena", better, 4)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
