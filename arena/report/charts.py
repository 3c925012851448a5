"""Figures for Plotly, as the plain JSON that its JavaScript draws. Text and rules take their colors from the page.

A trace names its policy in `meta`, by which the page shows and hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from arena.league.round_text import gate_text
from arena.report.colors import Colors, faded
from arena.report.episodes import Curve
from arena.report.learning import Evaluation
from arena.report.lineage import Fork, Lineage
from arena.report.sections import PageData
from arena.report.summary import Timing

if TYPE_CHECKING:  # they import scipy
    from arena.league.metagame.measures import Measures
    from arena.league.ratings.ratings import Interval
    from arena.report.standings import StrengthCurve

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
            trace
            for policy, one in learned.items()
            for trace in _banded(policy, one, colors[policy], among=len(learned))
        ]
        if traces:
            means = (value for one in learned.values() for value in (*one.low, *one.high))
            found[f"learning-{name}"] = _figure(traces, yaxis=_SHARE if name == "won" else _scale(means))
    found |= _evaluations(data.evaluations, colors)
    for kind, series in (("results", data.results), ("logged", data.logged)):
        for number, by_policy in enumerate(series.values()):
            traces = [
                line(policy or None, one.ticks, one.values, colors[policy] if policy else _PLAIN)
                for policy, one in by_policy.items()
            ]
            scale = _scale(value for one in by_policy.values() for value in one.values)
            found[f"{kind}-{number}"] = _figure(traces, x="", yaxis={"nticks": 5, **scale}, xaxis={"nticks": 5})
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
            found[f"lengths-{number}-time"] = _figure(_banded(None, row.over_time, _PLAIN))
    if data.standings is not None:
        for number, curves in data.standings.charted.items():
            found[f"strengths-{number}"] = _strengths(curves, data.lineage, colors)
    if data.standings is not None and (rows := data.standings.meta):
        found["meta-nash"] = _meta(rows, [row.nash for row in rows], colors)
        found["meta-alpha-rank"] = _meta(rows, [row.alpha_rank for row in rows], colors)
    if curve := data.exploitability:
        values = [one.exploitability for one in curve]
        trace = line(None, [one.tick for one in curve], values, _PLAIN, mode="lines+markers")
        found["exploitability"] = _figure([trace], yaxis={"rangemode": "tozero", **_scale(values)})
    if data.lineage.eventful:
        found["lineage"] = _lineage(data.lineage, data.summary.ticks, colors)
    if data.time is not None:
        shares = {"range": [0, 1], "tickformat": ".0%", "nticks": 5}
        stacked: Figure = {"barmode": "stack", "hovermode": "closest"}
        for name, spent in (("kinds", data.time.kinds[::-1]), ("ranks", data.time.ranks)):
            flat = name == "kinds"  # bars from left to right, a kind of roles a line
            names = [row.name if flat else int(row.name) for row in spent]
            hover = "%{y}: {} %{x:.1%}" if flat else "rank %{x}: {} %{y:.1%}"
            traces = []
            for activity, color in activity_colors(data.time).items():
                parts = [row.seconds.get(activity, 0.0) / row.wall for row in spent]
                bars = {"type": "bar", "name": activity, "marker": {"color": color, "line": {"width": 0}}}
                axes = {"x": parts, "y": names, "orientation": "h"} if flat else {"x": names, "y": parts}
                traces.append({**bars, **axes, "hovertemplate": hover.replace("{}", activity) + "<extra></extra>"})
            if flat:
                height = 60 + 30 * len(spent)
                layout: Figure = {"xaxis": {"title": {"text": ""}, **shares}, "yaxis": {"showgrid": False, "dtick": 1}}
                layout |= {"height": height, "bargap": 0.25}
            else:
                axis = {"title": {"text": "rank"}, **({"dtick": 1} if len(spent) <= 12 else {})}
                gap = 0.25 if len(spent) <= _CLOSE else 0.0
                layout = {"xaxis": axis, "yaxis": {"showgrid": False, **shares}, "height": 230, "bargap": gap}
            found[f"time-{name}"] = _figure(traces, **layout, **stacked)
    return found


def _lineage(lineage: Lineage, ticks: int, colors: Colors) -> Figure:
    """A line per policy over ticks: its snapshots on it, forks as lines from one to another."""
    rows = {policy: place for place, policy in enumerate(reversed([*colors.policies]))}
    plain: Trace = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    traces: list[Trace] = [
        {**plain, "x": [0, ticks], "y": [rows[policy]] * 2, "line": {"color": faded(colors[policy], 0.55), "width": 2}}
        for policy in colors.policies
    ]
    for fork in lineage.forks:
        style = {"color": colors[fork.source], "width": 1.4, "dash": "dot"}
        ends = [rows[fork.source], rows[fork.policy] + _ABOVE]
        traces.append({**plain, "x": [fork.tick, fork.tick], "y": ends, "line": style})
    snapshots, gates = [], []
    for shot in lineage.snapshots:
        left = "" if shot.dropped is None else f", dropped at {shot.dropped}"
        text = f"{shot.name}, {shot.matches} matches{left}"
        symbol = "circle-open" if left else "circle"
        snapshots.append((shot.tick, rows[shot.policy], colors[shot.policy], symbol, text))
    forks = [(f.tick, rows[f.policy] + _ABOVE, colors[f.source], "diamond", _fork_text(f)) for f in lineage.forks]
    resets = [
        (r.tick, rows[r.policy] + _ABOVE, colors[r.policy], "x", f"{r.policy} started over") for r in lineage.resets
    ]
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
        text = [
            f"{trace['name']} {y:.4g} at {x:g}"
            for trace, points in traces
            if trace["type"] == "scatter" and "name" in trace and trace.get("hoverinfo") != "skip"
            for x, y in points
            if isinstance(x, (int, float)) and y is not None
        ]
        few[name] = "No chart of fewer than three points" + (f": {'; '.join(text)}" if text else "")
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


def line(name: str | None, x: Sequence[float], y: Sequence[float | None], color: str, **more: Any) -> Trace:
    """A line of a policy, or of all together (None); a mark where it has a single point."""
    return {
        "type": "scatter",
        "mode": "lines" if len(x) > 1 else "markers",
        "name": name or "all",
        "meta": {"policy": name},
        "x": x,
        "y": y,
        "line": {"color": color, "width": 2},
        "marker": {"color": color, "size": 6},
        "hovertemplate": f"{escape(name or '')} %{{y:.4g}}<extra></extra>".lstrip(),
        **more,
    }


def band(
    name: str | None, x: Sequence[float], low: Sequence[float], high: Sequence[float], color: str, opacity: float
) -> list[Trace]:
    """The interval around a line."""
    edge: Trace = {"type": "scatter", "mode": "lines", "meta": {"policy": name}, "x": x, "line": {"width": 0}}
    edge["hoverinfo"] = "skip"
    filled = {"fill": "tonexty", "fillcolor": faded(color, opacity)}
    return [
        {**edge, "name": f"{name or 'all'}, low", "y": low},
        {**edge, "name": f"{name or 'all'}, high", "y": high, **filled},
    ]


def _banded(name: str | None, curve: Curve, color: str, *, among: int = 1) -> list[Trace]:
    """A curve and its band, fainter with more curves; there is no band if no part has several matches."""
    opacity = min(_BAND, _BANDS / among)
    around = band(name, curve.ticks, curve.low, curve.high, color, opacity) if curve.low != curve.high else []
    return [*around, line(name, curve.ticks, curve.mean, color)]


def _evaluations(rows: Sequence[Evaluation], colors: Colors) -> dict[str, Figure]:
    def trace(mine: Sequence[Evaluation], values: Sequence[float | None], errors: Mapping[str, Any]) -> Trace:
        policy, ticks = mine[0].policy, [row.ticks for row in mine]
        bars = {"type": "data", **errors, "thickness": 1.2, "width": 3, "color": colors[policy]}
        return line(policy, ticks, values, colors[policy], mode="lines+markers", error_y=bars)

    by_policy: dict[str, list[Evaluation]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, []).append(row)
    returns, wins = [], []
    for mine in by_policy.values():
        returns.append(trace(mine, [row.return_ for row in mine], {"array": [row.margin for row in mine]}))
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
            strength = Curve(ticks=ticks, mean=elo, low=low, high=high, count=[])
            traces += _banded(policy, strength, colors[policy], among=len(curves))
    for policy, one in curves.items():
        marks = [
            (point.tick, point.elo, colors[policy], "circle", f"{name} {point.elo:+.0f}")
            for name, point in one.snapshots.items()
        ]
        begun = {
            **{fork.tick: ("diamond", _fork_text(fork)) for fork in lineage.forks if fork.policy == policy},
            **{reset.tick: ("x", f"{policy} started over") for reset in lineage.resets if reset.policy == policy},
        }
        for before, after in zip(one.points, one.points[1:], strict=False):
            if before.curve != after.curve and after.tick in begun:
                marks.append((after.tick, after.elo, colors[policy], *begun[after.tick]))
        if marks:
            traces.append({**_marks(marks), "meta": {"policy": policy}})
    return _figure(traces, yaxis={"title": {"text": "Elo"}}, hovermode="closest")


def _fork_text(fork: Fork) -> str:
    changes = ", ".join(f"{name} {value}" for name, value in fork.options.items())
    return f"{fork.policy} is a copy of {fork.source}" + (f"<br>{changes}" if changes else "")


def _marks(marks: Sequence[Mark]) -> Trace:
    x, y, color, symbol, text = (list(column) for column in zip(*marks, strict=True))
    marker = {"size": 9, "color": color, "symbol": symbol, "line": {"color": color, "width": 1.5}}
    hover = {"text": text, "hovertemplate": "%{text}<br>tick %{x}<extra></extra>"}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker, **hover}


def activity_colors(timing: Timing) -> dict[str, str]:
    """The legend of the two charts of time."""
    return {activity: _ACTIVITY_COLORS.get(activity, "#c3c9d0") for activity in timing.activities}
