"""Wrapped games in whole runs: observations of workers, and wrappers in the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arena.config import load_config, parse_config, resolved_yaml
from arena.plan.build import make_plan
from in_process import one_match, play


def watched(**env: Any) -> dict[str, Any]:
    game = {"make": "games:Countdown", "kwargs": {"length": 4}, **env}
    return one_match(game, {"blue": {"algorithm": "wrappers:Frames"}}, ticks=9, match={"lanes": 2})


def test_frame_stacks_do_not_cross_episodes(tmp_path: Path) -> None:
    data = watched(wrappers=[{"frame_stack": 3}])
    data["matches"][0]["pipeline"] = 2
    notes = play(data, tmp_path).notes
    first = [4.0, 4.0, 4.0]
    going = [[4.0, 4.0, 3.0], [4.0, 3.0, 2.0], [3.0, 2.0, 1.0]]
    assert [seen for seen, _ in notes] == [[row, row] for row in [first, *going, first, *going, first, first]]
    ends = [end for _, end in notes if end is not None]
    over = ([[2.0, 1.0, 0.0]] * 2, [False, False])
    assert ends == [over, over, ([going[0]] * 2, [True, True])], "the end of the leg cuts the third episode"


def test_wrappers_are_played_in_the_order_of_the_configuration(tmp_path: Path) -> None:
    shifted = {"wrappers:Shifted": {"by": 10}}
    inner = play(watched(wrappers=[shifted, {"frame_stack": 2}]), tmp_path).notes[0][0]
    outer = play(watched(wrappers=[{"frame_stack": 2}, shifted]), tmp_path).notes[0][0]
    assert inner == outer == [[14.0, 14.0]] * 2
    bonus = {"wrappers:Shifted": {"by": 0, "bonus": 5}}
    returns = [
        play(watched(wrappers=wrappers), tmp_path).episodes[0]["seats"][0]["return"]
        for wrappers in ([bonus, {"clip_reward": 1}], [{"clip_reward": 1}, bonus])
    ]
    assert returns == [4.0, 20.0]


def test_wrappers_survive_the_yaml_and_enter_the_plan(tmp_path: Path) -> None:
    written = ["grayscale", {"frame_stack": 4}, {"resize": [84, 84]}, {"my.module:Own": {"size": 3}}]
    config = parse_config({**watched(wrappers=written), "name": "x"}, source="x")
    (tmp_path / "again.yaml").write_text(resolved_yaml(config))
    assert load_config(tmp_path / "again.yaml") == config
    (match,) = make_plan(config).matches
    assert match.game.wrapped_in == (
        ("grayscale", None),
        ("frame_stack", 4),
        ("resize", [84, 84]),
        ("my.module:Own", {"size": 3}),
    )
