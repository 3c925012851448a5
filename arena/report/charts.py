"""Figures for Plotly, as the plain JSON that its JavaScript draws. Text and rules take their colors from the page.

A trace names its policy in `meta`, by which the page shows and hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from arena.league.metagame.measures import Measures
from arena.league.round_text import gate_words
from arena.report.colors import Colors, faded
from arena.report.curves import Curve
from arena.report.learning import Evaluation, Learning, Logged, Rewards
from arena.report.lineage import Fork, Gate, Lineage, Reset
from arena.report.sections import PageData
from arena.report.standings import StrengthCurve
from arena.report.timing import Spent, Timing

Figure = dict[str, Any]
Trace = dict[str, Any]
Mark = tuple[int, float, str, str, str]
"""Tick, row, color, symbol and hover text."""

_BAND, _BANDS = 0.16, 0.6  # opacity of a band, and of all bands of a figure together
_CLOSE = 40  # ranks: more stand without gaps
_PLAIN = "#7a8594"
_FEWEST = 3  # points of a chart
_SHARE = {"tickformat": ".0%", "rangemode": "tozero"}
_ABOVE = 0.3  # rows: forks, resets and gates are drawn beside the snapshot of their tick
_VERDICTS = {"better": "triangle-up", "not_better": "triangle-down", "open": "square-open"}
_FEW_BARS = 6  # more bars fill the picture
# What a role does for the game has a color; waiting is gray, the darker the further away the cause.
_ACTIVITY_COLORS = {
    "environment": "#2f9e8f",
    "inference": "#4c78c8",
    "learning": "#8a63c9",
    "communication": "#e0a13a",
    "recording": "#b8643c",
    "starting": "#d9c7a3",
    "waiting for actions": "#c3c9d0",
    "waiting for the match": "#a4acb6",
    "waiting for the group": "#848d99",
    "waiting for news": "#dde1e6",
}


def figures(data: PageData, colors: Colors) -> dict[str, Figure]:
    """Every figure of the page by the name under which the page asks for it."""
    found: dict[str, Figure] = {**_learning(data.learning, colors), **_evaluations(data.evaluations, colors)}
    if data.rewards is not None:
        found |= _rewards(data.rewards, colors)
    for number, by_policy in enumerate(data.logged.values()):
        found[f"logged-{number}"] = _logged(by_policy, colors)
    for number, row in enumerate(data.lengths):
        width = row.edges[1] - row.edges[0]
        last = [edge - 1 for edge in row.edges[1:]]
        trace = {
            "type": "bar",
            "x": [edge + (width - 1) / 2 for edge in row.edges[:-1]],
            "y": row.counts,
            "width": width,
            "marker": {"color": _PLAIN, "line": {"width": 0}},
            "customdata": [list(ends) for ends in zip(row.edges[:-1], last, strict=True)],
            "hovertemplate": "%{customdata[0]} to %{customdata[1]} ticks: %{y} episodes<extra></extra>",
        }
        low, high = row.edges[0], row.edges[-1]
        each = {"dtick": 1, "range": [max(0, low - 3), high + 2]} if len(row.counts) <= _FEW_BARS else {}
        found[f"lengths-{number}"] = _figure(
            [trace], x="length, ticks", y="episodes", xaxis=each, bargap=0.04, hovermode="closest"
        )
        if row.over_time is not None:
            found[f"lengths-{number}-time"] = _figure(list(_line(row.over_time, _PLAIN)))
    if data.standings is not None:
        for scale, curves in data.standings.charted.items():
            found[f"strengths-{scale}"] = _strengths(curves, data.lineage, colors)
    if data.standings is not None and data.standings.meta:
        found["meta-nash"] = _meta(data.standings.meta, "nash", colors)
        found["meta-alpha-rank"] = _meta(data.standings.meta, "alpha_rank", colors)
    if data.lineage.eventful:
        # A line per policy over ticks: its snapshots on it, forks as lines from one to another.
        policies = list(colors.policies)
        rows = {policy: len(policies) - 1 - place for place, policy in enumerate(policies)}
        traces = [
            {
                "type": "scatter",
                "mode": "lines",
                "x": [0, data.summary.ticks],
                "y": [row, row],
                "line": {"color": faded(colors[policy], 0.55), "width": 2},
                "hoverinfo": "skip",
            }
            for policy, row in rows.items()
        ]
        for fork in data.lineage.forks:
            traces.append(_fork_line(fork.tick, rows[fork.source], rows[fork.policy] + _ABOVE, colors[fork.source]))
        forks = [
            (f.tick, rows[f.policy] + _ABOVE, colors[f.source], "diamond", _fork_words(f)) for f in data.lineage.forks
        ]
        resets = [
            (r.tick, rows[r.policy] + _ABOVE, colors[r.policy], "x", _reset_words(r)) for r in data.lineage.resets
        ]
        gates = [
            (g.tick, rows[g.policy] - _ABOVE, _PLAIN, _VERDICTS.get(g.verdict, "x"), _gate_words(g))
            for g in data.lineage.gates
        ]
        traces += [
            _marks(found)
            for found in (
                [
                    (
                        shot.tick,
                        rows[shot.policy],
                        colors[shot.policy],
                        "circle" if shot.dropped is None else "circle-open",
                        f"{shot.name}, {shot.matches} matches"
                        + (f", dropped at {shot.dropped}" if shot.dropped is not None else ""),
                    )
                    for shot in data.lineage.snapshots
                ],
                forks,
                resets,
                gates,
            )
            if found
        ]
        axis = {"tickvals": list(rows.values()), "ticktext": list(rows), "range": [-0.7, len(rows) - 0.3]}
        axis |= {"automargin": True, "showgrid": False}
        found["lineage"] = _figure(traces, yaxis=axis, height=90 + 38 * len(rows), hovermode="closest")
    if data.time is not None:
        found["time-kinds"] = _time_bars(data.time, data.time.kinds)
        found["time-ranks"] = _rank_bars(data.time)
    return found


def without_few(figures: Mapping[str, Figure]) -> tuple[dict[str, Figure], dict[str, str]]:
    """The figures that are drawn, and in place of each with fewer than three points in all of its traces its words."""
    few = {name for name, figure in figures.items() if max(map(_points_in, figure["data"]), default=0) < _FEWEST}
    return (
        {name: figure for name, figure in figures.items() if name not in few},
        {name: _few_words(figures[name]) for name in sorted(few)},
    )


def _points_in(trace: Trace) -> int:
    return sum(x is not None and y is not None for x, y in zip(trace["x"], trace["y"], strict=True))


def _few_words(figure: Figure) -> str:
    points = [
        f"{trace['name']} {y:.4g} at {x:g}"
        for trace in figure["data"]
        if trace["type"] == "scatter" and "name" in trace and trace.get("hoverinfo") != "skip"
        for x, y in zip(trace["x"], trace["y"], strict=True)
        if isinstance(x, (int, float)) and y is not None
    ]
    return "No chart of fewer than three points" + (f": {'; '.join(points)}" if points else "")


def _figure(traces: Sequence[Trace], *, x: str = "ticks", y: str = "", **layout: Any) -> Figure:
    axes = {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}
    for axis, changes in {name: layout.pop(name, {}) for name in axes}.items():
        axes[axis].update(changes)
    return {"data": list(traces), "layout": {**axes, **layout}}


def _scale(values: Iterable[float | None]) -> Figure:
    """An axis for numbers of any size; Plotly would show a constant c on an axis from c - 1 to c + 1."""
    found = {value for value in values if value is not None}
    level = found.pop() if len(found) == 1 else 0.0
    whole = {"range": [level - abs(level) / 2, level + abs(level) / 2]} if level else {}
    return {"exponentformat": "power", **whole}


def _line(curve: Curve, color: str, policy: str | None = None, *, among: int = 1) -> Iterator[Trace]:
    """A curve and its band, fainter with more curves; there is no band if no part has several matches."""
    common: Trace = {"type": "scatter", "x": curve.ticks, "meta": {"policy": policy}}
    if curve.low != curve.high:
        edge = {**common, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        yield {**edge, "name": f"{policy or 'all'}, low", "y": curve.low}
        yield {
            **edge,
            "name": f"{policy or 'all'}, high",
            "y": curve.high,
            "fill": "tonexty",
            "fillcolor": faded(color, min(_BAND, _BANDS / among)),
        }
    mode = "lines" if len(curve.ticks) > 1 else "markers"
    hover = "%{y:.4g}" if policy is None else f"{policy} %{{y:.4g}}"
    yield {
        **common,
        "name": policy or "all",
        "y": curve.mean,
        "mode": mode,
        "line": {"color": color, "width": 2},
        "marker": {"color": color},
        "hovertemplate": f"{hover}<extra></extra>",
    }


def _learning(learning: Learning, colors: Colors) -> dict[str, Figure]:
    found = {}
    for name, curves in (("returns", learning.returns), ("won", learning.won)):
        traces = [
            trace for policy, one in curves.items() for trace in _line(one, colors[policy], policy, among=len(curves))
        ]
        if traces:
            means = (value for curve in curves.values() for value in (*curve.low, *curve.high))
            found[f"learning-{name}"] = _figure(traces, yaxis=_SHARE if name == "won" else _scale(means))
    return found


def _rewards(rewards: Rewards, colors: Colors) -> dict[str, Figure]:
    def line(values: Sequence[float | None], color: str, policy: str | None) -> Trace:
        return {
            "type": "scatter",
            "mode": "lines+markers" if len(values) < 60 else "lines",
            "x": rewards.ticks,
            "y": list(values),
            "line": {"color": color, "width": 2},
            "marker": {"size": 5},
            "meta": {"policy": policy},
            "name": policy or "episode",
            "hovertemplate": f"{policy or 'episode'} %{{y:.4g}}<extra></extra>",
        }

    by_policy = [line(values, colors[name], name) for name, values in rewards.policies.items()]
    every = [value for values in rewards.policies.values() for value in values]
    return {
        "rewards-episodes": _figure([line(rewards.episodes, _PLAIN, None)], yaxis=_scale(rewards.episodes)),
        "rewards-policies": _figure(by_policy, yaxis=_scale(every)),
    }


def _logged(by_policy: Mapping[str, Logged], colors: Colors) -> Figure:
    traces = [
        {
            "type": "scatter",
            "mode": "lines" if len(one.ticks) > 1 else "markers",
            "x": one.ticks,
            "y": one.values,
            "line": {"color": colors[policy], "width": 1.6},
            "meta": {"policy": policy},
            "name": policy,
            "hovertemplate": f"{policy} %{{y:.4g}}<extra></extra>",
        }
        for policy, one in by_policy.items()
    ]
    scale = _scale(value for one in by_policy.values() for value in one.values)
    return _figure(traces, x="", yaxis={"nticks": 5, **scale}, xaxis={"nticks": 5})


def _evaluations(rows: Sequence[Evaluation], colors: Colors) -> dict[str, Figure]:
    by_policy: dict[str, list[Evaluation]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, []).append(row)
    returns = [_evaluated(mine, colors[policy]) for policy, mine in by_policy.items()]
    found = {"evaluation-returns": _figure(returns, yaxis={"exponentformat": "power"})} if returns else {}
    games = {policy: [row for row in mine if row.wins is not None] for policy, mine in by_policy.items()}
    wins = [_share_won(mine, colors[policy]) for policy, mine in games.items() if mine]
    if wins:
        found["evaluation-wins"] = _figure(wins, yaxis=_SHARE)
    return found


def _evaluated(rows: Sequence[Evaluation], color: str) -> Trace:
    margins = [row.margin for row in rows]
    bars = {"type": "data", "array": margins, "thickness": 1.2, "width": 3, "color": color}
    return {**_points(rows, color), "y": [row.mean for row in rows], "error_y": bars}


def _share_won(rows: Sequence[Evaluation], color: str) -> Trace:
    above = [row.won[1] - row.wins if row.won and row.wins is not None else None for row in rows]
    below = [row.wins - row.won[0] if row.won and row.wins is not None else None for row in rows]
    bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2, "width": 3}
    return {**_points(rows, color), "y": [row.wins for row in rows], "error_y": {**bars, "color": color}}


def _points(rows: Sequence[Evaluation], color: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.ticks for row in rows],
        "line": {"color": color, "width": 2},
        "marker": {"size": 6},
        "meta": {"policy": rows[0].policy},
        "name": rows[0].policy,
        "hovertemplate": f"{rows[0].policy} %{{y:.4g}}<extra></extra>",
    }


def _meta(rows: Sequence[Measures], measure: Literal["nash", "alpha_rank"], colors: Colors) -> Figure:
    """A measure of the meta-game, a player a line, the best on top."""
    upwards = rows[::-1]
    estimates = [row.nash if measure == "nash" else row.alpha_rank for row in upwards]
    errors = {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, _, high in estimates],
        "arrayminus": [value - low for value, low, _ in estimates],
        "thickness": 1.2,
        "width": 3,
        "color": _PLAIN,
    }
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [value for value, _, _ in estimates],
        "y": [row.player for row in upwards],
        "marker": {"color": [colors[row.player] for row in upwards]},
        "error_x": errors,
        "hovertemplate": "%{y} %{x:.3f}<extra></extra>",
    }
    return _figure(
        [bars],
        x="",
        xaxis={"rangemode": "tozero", "tickformat": ".0%", "nticks": 5},
        yaxis={"showgrid": False, "dtick": 1},
        height=50 + 24 * len(rows),
        hovermode="closest",
        bargap=0.35,
    )


def _strengths(curves: Mapping[str, StrengthCurve], lineage: Lineage, colors: Colors) -> Figure:
    """Strength over ticks with its band; snapshots on it, and marks where a policy begins anew."""
    traces: list[Trace] = []
    for policy, one in curves.items():
        for number in sorted({point.curve for point in one.points}):
            points = [point for point in one.points if point.curve == number]
            ticks, elo, low, high = ([*column] for column in zip(*(point[:4] for point in points), strict=True))
            line = Curve(ticks=ticks, mean=elo, low=low, high=high, count=[])
            traces += _line(line, colors[policy], policy, among=len(curves))
    for policy, one in curves.items():
        marks = [
            (point.tick, point.elo, colors[policy], "circle", f"{name} {point.elo:+.0f}")
            for name, point in one.snapshots.items()
        ]
        begun = {
            **{fork.tick: ("diamond", _fork_words(fork)) for fork in lineage.forks if fork.policy == policy},
            **{reset.tick: ("x", _reset_words(reset)) for reset in lineage.resets if reset.policy == policy},
        }
        for before, after in zip(one.points, one.points[1:], strict=False):
            if before.curve != after.curve and after.tick in begun:
                marks.append((after.tick, after.elo, colors[policy], *begun[after.tick]))
        if marks:
            traces.append({**_marks(marks), "meta": {"policy": policy}})
    return _figure(traces, yaxis={"title": {"text": "Elo"}}, hovermode="closest")


def _reset_words(reset: Reset) -> str:
    return f"{reset.policy} began anew"


def _fork_words(fork: Fork) -> str:
    changes = ", ".join(f"{name} {value}" for name, value in fork.options.items())
    return f"{fork.policy} is a copy of {fork.source}" + (f"<br>{changes}" if changes else "")


def _gate_words(gate: Gate) -> str:
    found = f"{gate.policy} against {gate.against}: {gate_words(gate.verdict)}"
    return f"{found}<br>{gate.games:g} games, log-likelihood ratio {gate.llr:.2f}"


def _fork_line(tick: int, source: float, target: float, color: str) -> Trace:
    line = {"color": color, "width": 1.4, "dash": "dot"}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [tick, tick],
        "y": [source, target],
        "line": line,
        "hoverinfo": "skip",
    }


def _marks(marks: Sequence[Mark]) -> Trace:
    x, y, color, symbol, words = (list(column) for column in zip(*marks, strict=True))
    marker = {"size": 9, "color": color, "symbol": symbol, "line": {"color": color, "width": 1.5}}
    hover = {"text": words, "hovertemplate": "%{text}<br>tick %{x}<extra></extra>"}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker, **hover}


def _time_bars(timing: Timing, rows: Sequence[Spent]) -> Figure:
    names = [row.name for row in rows][::-1]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": names,
            "name": activity,
            "x": [row.seconds.get(activity, 0.0) / row.wall for row in rows][::-1],
            "marker": {"color": _ACTIVITY_COLORS.get(activity, "#c3c9d0")},
            "hovertemplate": f"%{{y}}: {activity} %{{x:.1%}}<extra></extra>",
        }
        for activity in timing.activities
    ]
    return _stacked(traces, height=60 + 30 * len(rows), xaxis={"title": {"text": ""}, **_SHARES}, yaxis={"dtick": 1})


def _rank_bars(timing: Timing) -> Figure:
    traces = [
        {
            "type": "bar",
            "x": [int(row.name) for row in timing.ranks],
            "name": activity,
            "y": [row.seconds.get(activity, 0.0) / row.wall for row in timing.ranks],
            "marker": {"color": _ACTIVITY_COLORS.get(activity, "#c3c9d0"), "line": {"width": 0}},
            "hovertemplate": f"rank %{{x}}: {activity} %{{y:.1%}}<extra></extra>",
        }
        for activity in timing.activities
    ]
    whole = {"dtick": 1} if len(timing.ranks) <= 12 else {}
    gap = 0.25 if len(timing.ranks) <= _CLOSE else 0.0
    return _stacked(traces, height=230, xaxis={"title": {"text": "rank"}, **whole}, yaxis=_SHARES, gap=gap)


_SHARES = {"range": [0, 1], "tickformat": ".0%", "nticks": 5}


def _stacked(traces: Sequence[Trace], *, height: int, xaxis: Figure, yaxis: Figure, gap: float = 0.25) -> Figure:
    rows = {"showgrid": False, **yaxis}
    return _figure(traces, xaxis=xaxis, yaxis=rows, barmode="stack", bargap=gap, height=height, hovermode="closest")


def activity_colors(timing: Timing) -> dict[str, str]:
    """The legend of the two charts of time."""
    return {activity: _ACTIVITY_COLORS.get(activity, "#c3c9d0") for activity in timing.activities}
