"""Figures for Plotly, as the plain JSON that its JavaScript draws. Text and rules take their colors from the page.

A trace names its policy in `meta`, by which the page shows and hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from arena.league.metagame.measures import Measures
from arena.league.ratings.ratings import Interval
from arena.league.round_text import gate_text
from arena.report.colors import Colors, faded
from arena.report.episodes import Curve
from arena.report.learning import Evaluation, Rewards
from arena.report.lineage import Fork, Lineage, Reset
from arena.report.sections import PageData
from arena.report.standings import StrengthCurve
from arena.report.summary import Timing

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
    found: dict[str, Figure] = {}
    for name, learned in (("returns", data.learning.returns), ("won", data.learning.won)):
        traces = [
            trace for policy, one in learned.items() for trace in _line(one, colors[policy], policy, among=len(learned))
        ]
        if traces:
            means = (value for one in learned.values() for value in (*one.low, *one.high))
            found[f"learning-{name}"] = _figure(traces, yaxis=_SHARE if name == "won" else _scale(means))
    found |= _evaluations(data.evaluations, colors)
    if data.rewards is not None:
        found |= _rewards(data.rewards, colors)
    for number, by_policy in enumerate(data.logged.values()):
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
        found[f"logged-{number}"] = _figure(traces, x="", yaxis={"nticks": 5, **scale}, xaxis={"nticks": 5})
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
        for number, curves in data.standings.charted.items():
            found[f"strengths-{number}"] = _strengths(curves, data.lineage, colors)
    if data.standings is not None and (rows := data.standings.meta):
        found["meta-nash"] = _meta(rows, [row.nash for row in rows], colors)
        found["meta-alpha-rank"] = _meta(rows, [row.alpha_rank for row in rows], colors)
    if data.lineage.eventful:
        found["lineage"] = _lineage(data.lineage, data.summary.ticks, colors)
    if data.time is not None:
        kinds, ranks = data.time.kinds[::-1], data.time.ranks
        bars = {"type": "bar", "orientation": "h", "y": [row.name for row in kinds]}
        traces = [
            {
                **bars,
                "name": activity,
                "x": [row.seconds.get(activity, 0.0) / row.wall for row in kinds],
                "marker": {"color": color},
                "hovertemplate": f"%{{y}}: {activity} %{{x:.1%}}<extra></extra>",
            }
            for activity, color in activity_colors(data.time).items()
        ]
        stacked = {"barmode": "stack", "hovermode": "closest"}
        shares = {"range": [0, 1], "tickformat": ".0%", "nticks": 5}
        found["time-kinds"] = _figure(
            traces,
            xaxis={"title": {"text": ""}, **shares},
            yaxis={"showgrid": False, "dtick": 1},
            bargap=0.25,
            height=60 + 30 * len(kinds),
            **stacked,
        )
        traces = [
            {
                "type": "bar",
                "x": [int(row.name) for row in ranks],
                "name": activity,
                "y": [row.seconds.get(activity, 0.0) / row.wall for row in ranks],
                "marker": {"color": color, "line": {"width": 0}},
                "hovertemplate": f"rank %{{x}}: {activity} %{{y:.1%}}<extra></extra>",
            }
            for activity, color in activity_colors(data.time).items()
        ]
        found["time-ranks"] = _figure(
            traces,
            xaxis={"title": {"text": "rank"}, **({"dtick": 1} if len(ranks) <= 12 else {})},
            yaxis={"showgrid": False, **shares},
            bargap=0.25 if len(ranks) <= _CLOSE else 0.0,
            height=230,
            **stacked,
        )
    return found


def _lineage(lineage: Lineage, ticks: int, colors: Colors) -> Figure:
    """A line per policy over ticks: its snapshots on it, forks as lines from one to another."""
    rows = {policy: place for place, policy in enumerate(reversed([*colors.policies]))}
    line: Trace = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    traces: list[Trace] = [
        {**line, "x": [0, ticks], "y": [rows[policy]] * 2, "line": {"color": faded(colors[policy], 0.55), "width": 2}}
        for policy in colors.policies
    ]
    for fork in lineage.forks:
        style = {"color": colors[fork.source], "width": 1.4, "dash": "dot"}
        ends = [rows[fork.source], rows[fork.policy] + _ABOVE]
        traces.append({**line, "x": [fork.tick, fork.tick], "y": ends, "line": style})
    snapshots, gates = [], []
    for shot in lineage.snapshots:
        left = "" if shot.dropped is None else f", dropped at {shot.dropped}"
        text = f"{shot.name}, {shot.matches} matches{left}"
        symbol = "circle-open" if left else "circle"
        snapshots.append((shot.tick, rows[shot.policy], colors[shot.policy], symbol, text))
    forks = [(f.tick, rows[f.policy] + _ABOVE, colors[f.source], "diamond", _fork_text(f)) for f in lineage.forks]
    resets = [(r.tick, rows[r.policy] + _ABOVE, colors[r.policy], "x", _reset_text(r)) for r in lineage.resets]
    for gate in lineage.gates:
        text = f"{gate.policy} against {gate.against}: {gate_text(gate.verdict)}"
        text += f"<br>{gate.games:g} games, log-likelihood ratio {gate.llr:.2f}"
        gates.append((gate.tick, rows[gate.policy] - _ABOVE, _PLAIN, _VERDICTS.get(gate.verdict, "x"), text))
    traces += [_marks(marks) for marks in (snapshots, forks, resets, gates) if marks]
    axis = {"tickvals": [*rows.values()][::-1], "ticktext": [*rows][::-1], "range": [-0.7, len(rows) - 0.3]}
    axis |= {"automargin": True, "showgrid": False}
    return _figure(traces, yaxis=axis, height=90 + 38 * len(rows), hovermode="closest")


def without_few(figures: Mapping[str, Figure]) -> tuple[dict[str, Figure], dict[str, str]]:
    """The figures that are drawn, and in place of each with fewer than three points in all of its traces its words."""
    drawn, few = {}, {}
    for name, figure in sorted(figures.items()):
        traces = [(trace, [*zip(trace["x"], trace["y"], strict=True)]) for trace in figure["data"]]
        counts = [sum(x is not None and y is not None for x, y in points) for _, points in traces]
        if max(counts, default=0) >= _FEWEST:
            drawn[name] = figure
            continue
        words = [
            f"{trace['name']} {y:.4g} at {x:g}"
            for trace, points in traces
            if trace["type"] == "scatter" and "name" in trace and trace.get("hoverinfo") != "skip"
            for x, y in points
            if isinstance(x, (int, float)) and y is not None
        ]
        few[name] = "No chart of fewer than three points" + (f": {'; '.join(words)}" if words else "")
    return {name: drawn[name] for name in figures if name in drawn}, few


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


def _evaluations(rows: Sequence[Evaluation], colors: Colors) -> dict[str, Figure]:
    def trace(mine: Sequence[Evaluation], values: Sequence[float | None], errors: Mapping[str, Any]) -> Trace:
        policy = mine[0].policy
        bars = {"type": "data", **errors, "thickness": 1.2, "width": 3, "color": colors[policy]}
        return {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [row.ticks for row in mine],
            "line": {"color": colors[policy], "width": 2},
            "marker": {"size": 6},
            "meta": {"policy": policy},
            "name": policy,
            "hovertemplate": f"{policy} %{{y:.4g}}<extra></extra>",
            "y": values,
            "error_y": bars,
        }

    by_policy: dict[str, list[Evaluation]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, []).append(row)
    returns, wins = [], []
    for mine in by_policy.values():
        returns.append(trace(mine, [row.mean for row in mine], {"array": [row.margin for row in mine]}))
        games = [(row, row.wins) for row in mine if row.wins is not None]
        if games:
            above = [row.won[1] - won if row.won else None for row, won in games]
            below = [won - row.won[0] if row.won else None for row, won in games]
            errors = {"symmetric": False, "array": above, "arrayminus": below}
            wins.append(trace([row for row, _ in games], [won for _, won in games], errors))
    found = {"evaluation-returns": _figure(returns, yaxis={"exponentformat": "power"})} if returns else {}
    return found | ({"evaluation-wins": _figure(wins, yaxis=_SHARE)} if wins else {})


def _meta(rows: Sequence[Measures], estimates: Sequence[Interval], colors: Colors) -> Figure:
    """A measure of the meta-game, a player a line, the best on top."""
    upwards, values = rows[::-1], estimates[::-1]
    errors = {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, _, high in values],
        "arrayminus": [value - low for value, low, _ in values],
        "thickness": 1.2,
        "width": 3,
        "color": _PLAIN,
    }
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [value for value, _, _ in values],
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
    """Strength over ticks with its band; snapshots on it, and marks where a policy starts over."""
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
            **{fork.tick: ("diamond", _fork_text(fork)) for fork in lineage.forks if fork.policy == policy},
            **{reset.tick: ("x", _reset_text(reset)) for reset in lineage.resets if reset.policy == policy},
        }
        for before, after in zip(one.points, one.points[1:], strict=False):
            if before.curve != after.curve and after.tick in begun:
                marks.append((after.tick, after.elo, colors[policy], *begun[after.tick]))
        if marks:
            traces.append({**_marks(marks), "meta": {"policy": policy}})
    return _figure(traces, yaxis={"title": {"text": "Elo"}}, hovermode="closest")


def _reset_text(reset: Reset) -> str:
    return f"{reset.policy} started over"


def _fork_text(fork: Fork) -> str:
    changes = ", ".join(f"{name} {value}" for name, value in fork.options.items())
    return f"{fork.policy} is a copy of {fork.source}" + (f"<br>{changes}" if changes else "")


def _marks(marks: Sequence[Mark]) -> Trace:
    x, y, color, symbol, words = (list(column) for column in zip(*marks, strict=True))
    marker = {"size": 9, "color": color, "symbol": symbol, "line": {"color": color, "width": 1.5}}
    hover = {"text": words, "hovertemplate": "%{text}<br>tick %{x}<extra></extra>"}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker, **hover}


def activity_colors(timing: Timing) -> dict[str, str]:
    """The legend of the two charts of time."""
    return {activity: _ACTIVITY_COLORS.get(activity, "#c3c9d0") for activity in timing.activities}
