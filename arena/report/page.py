"""The page as one HTML file: it opens offline, asks the network for nothing, and holds every number that it shows.

The numbers are embedded twice: as JSON (`<script id="data">`), and where they are read, as `<data data-path="..."
value="...">`, whose path leads to the same number in the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from arena.diagnostics.start_folder import anchored
from arena.league.ratings.standings import ENOUGH
from arena.league.round_text import gate_text
from arena.records.atomic import check_place, replacing
from arena.records.faults import fault_text
from arena.records.folder import RunFolder
from arena.report.charts import activity_colors, figures, without_few
from arena.report.colors import Colors
from arena.report.numbers import FORMS, NOTHING
from arena.report.read_run import RunFiles, read_run
from arena.report.replays import Place, replay_strips
from arena.report.sections import look_up, page_data, plain

CONTENTS = {
    "summary": "Summary",
    "standings": "Standings",
    "payoff": "Payoffs",
    "meta-game": "Meta-game",
    "learning": "Learning",
    "results": "Results",
    "logged": "Logged values",
    "lengths": "Episode lengths",
    "evaluations": "Evaluations",
    "lineage": "Rounds and lineage",
    "plan": "Plan",
    "time": "Time",
    "faults": "Faults",
    "replays": "Replays",
    "configuration": "Configuration",
    "files": "Files",
}

MOST_REPLAYS = 3


def write_report(
    path: Path | str, output: Path | str | None = None, *, replays: int = MOST_REPLAYS, episodes: Sequence[Place] = ()
) -> Path:
    """Makes the page of a run; returns where it is.

    Args:
        path: of the run folder.
        output: the file; None: `report.html` in the run folder.
        replays: how many are shown at most, if the run has recorded some. Their games are played again.
        episodes: whose replays are shown instead.

    Raises:
        ConfigError: this is not a run folder, or it is damaged; or there can be no file at `output`.
        WriteError: the file cannot be written.
    """
    folder = RunFolder(Path(path))
    target = folder.report if output is None else anchored(output)
    if output is not None or folder.config.is_file():  # else `read_run` raises
        check_place(target, option="" if output is None else "--output")
    files = read_run(path)
    text = page(files, replays=replays, episodes=episodes)
    with replacing(target) as file:
        file.write(text.encode())
    return target


def page(files: RunFiles, *, live: str = "", replays: int = MOST_REPLAYS, episodes: Sequence[Place] = ()) -> str:
    """The HTML of a run, with at most so many replays, or with those of these episodes.

    `live` is the version of a page that asks its server whether there is another one, and shows it; empty: it does not.
    """
    strips = replay_strips(files.folder, most=replays, episodes=episodes)
    data, colors = page_data(files, [strip.replay for strip in strips]), Colors(files.config)
    numbers = plain(data)
    drawn, few = without_few(figures(data, colors))
    templates = numbered_templates(numbers)
    templates.globals.update(few=few, color=colors.__getitem__, zip=zip)
    templates.globals.update(told=fault_text, gate_text=gate_text)
    return templates.get_template("report.html").render(
        contents=CONTENTS,
        page=data,
        enough=ENOUGH,
        images=[strip.image for strip in strips],
        live=live,
        config_text=files.config_text,
        colors=colors.policies,
        activities={} if data.time is None else activity_colors(data.time),
        data_json=script_json(numbers),
        charts_json=script_json(drawn),
        plotly=plotly_script(),
        style=asset(templates, "report.css"),
        program=asset(templates, "report.js"),
    )


def numbered_templates(numbers: Any) -> Environment:
    """The templates of pages, in which `number(path, form)` shows a number of the page's data."""
    templates = Environment(
        loader=PackageLoader("arena.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    templates.globals.update(number=partial(number_element, numbers))
    return templates


def asset(templates: Environment, name: str) -> Markup:
    """A style sheet or a program, to stand inside of a page."""
    assert templates.loader is not None
    return Markup(templates.loader.get_source(templates, name)[0])


def plotly_script() -> Markup:
    """The program that draws the charts."""
    return Markup(get_plotlyjs())


def number_element(numbers: Any, path: str, form: str = "count") -> Markup:
    """A number of the page's data where it is read, or a dash where there is none."""
    value = look_up(numbers, path)
    if value is None:
        return Markup('<data class="number" data-path="{}" value="">{}</data>').format(path, NOTHING)
    template = '<data class="number" data-path="{}" data-form="{}" value="{}">{}</data>'
    return Markup(template).format(path, form, json.dumps(value), FORMS[form](value))


def script_json(value: Any) -> Markup:
    """JSON that can stand inside of a script element; what is not finite is null."""
    text = msgspec.json.encode(value).decode()
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
