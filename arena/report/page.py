"""The page as one HTML file: it opens offline, asks the network for nothing, and holds every number that it shows.

The numbers are embedded twice: as JSON (`<script id="data">`), and where they are read, as `<data data-path="..."
value="...">`, whose path leads to the same number in the JSON.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from arena.diagnostics.start_folder import anchored
from arena.errors import shown as shown_path
from arena.league.round_text import gate_text
from arena.records.atomic import check_place, replacing
from arena.records.faults import fault_text
from arena.records.folder import RunFolder
from arena.report.colors import Colors
from arena.report.numbers import FORMS, NOTHING
from arena.report.read_run import RunFiles, read_run
from arena.report.replays import Place, replay_strips
from arena.report.sections import PageData, page_data

CONTENTS = {
    "summary": "Summary",
    "tournament": "Tournament",
    "standings": "Standings",
    "payoff": "Payoffs",
    "crosstable": "Crosstable",
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
}

_OF_TOURNAMENT = ("tournament", "crosstable")

MOST_REPLAYS = 3
STATIC = Path(__file__).with_name("static")
PROGRAMS = "charts.js", "report.js"  # templates that draw


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
    usual = RunFolder.begun(path).report
    return write_html(usual, output, lambda: page(read_run(path), replays=replays, episodes=episodes))


def write_html(usual: Path | str, output: Path | str | None, make: Callable[[], str]) -> Path:
    """Writes the page that `make` makes to `output`, else to its `usual` place; returns where it is.

    Raises:
        ConfigError: there can be no file; `make` is not called.
        WriteError: the file cannot be written.
    """
    target = anchored(usual if output is None else output)
    check_place(target, option="" if output is None else "--output")
    text = make()
    with replacing(target) as file:
        file.write(text.encode())
    return target


def page(files: RunFiles, *, replays: int = MOST_REPLAYS, episodes: Sequence[Place] = ()) -> str:
    """The HTML of a run, with at most so many replays, or with those of these episodes."""
    strips = replay_strips(files.folder, most=replays, episodes=episodes)
    data, colors = page_data(files, [strip.replay for strip in strips]), Colors(files.config)
    values = template_values(files, data, colors)
    return rendered("report.html", data, images=[strip.image for strip in strips], **values)


def template_values(files: RunFiles, data: PageData, colors: Colors) -> dict[str, Any]:
    """What `report.html` needs beside the numbers of the page and the pictures of replays."""
    return {
        "contents": {name: title for name, title in CONTENTS.items() if data.tournament or name not in _OF_TOURNAMENT},
        "beside": "",  # path prefix of the links to folders of evaluations
        "config_text": files.config_text,
        "folder_name": shown_path(files.folder.path),
        "colors": colors.policies,
        "color": colors.__getitem__,
        "fault_text": fault_text,
        "gate_text": gate_text,
        "zip": zip,
    }


def rendered(template: str, data: msgspec.Struct, **content: Any) -> str:
    """The HTML of a template as one file, with its numbers, and the programs that draw them.

    In the template, `page` is the data, and `number(path, form)` shows a number of it.
    """
    templates = environment(loader := PackageLoader("arena.report"))
    sources = {name: Markup(loader.get_source(templates, name)[0]) for name in ("report.css", *PROGRAMS)}
    return templates.get_template(template).render(
        shown(data),
        shell="document.html",
        data=data,
        plotly=packed_plotly(),
        style=sources["report.css"],
        programs=[sources[name] for name in PROGRAMS],
        **content,
    )


def environment(loader: BaseLoader) -> Environment:
    """The environment of templates; its filter `json` makes what can stand inside of a script element."""
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    made.filters["json"] = script_json
    return made


def shown(data: msgspec.Struct) -> dict[str, Any]:
    """What a template needs to show numbers, see `rendered`."""
    return {"page": data, "number": partial(number_element, msgspec.to_builtins(data))}


@cache
def packed_plotly() -> str:
    """The chart library as base64 of gzip, less than half of its size, which the page inflates before it draws."""
    return base64.b64encode(gzip.compress((STATIC / "plotly-basic.min.js").read_bytes(), mtime=0)).decode()


def number_element(numbers: Any, path: str, form: str = "count") -> Markup:
    """A number of the page's data where it is read, or a dash where there is none."""
    value = numbers
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, (list, tuple)) else value[step]
    if value is None:
        return Markup('<data class="number" data-path="{}" value="">{}</data>').format(path, NOTHING)
    template = '<data class="number" data-path="{}" data-form="{}" value="{}">{}</data>'
    return Markup(template).format(path, form, json.dumps(value), FORMS[form](value))


def script_json(value: Any) -> Markup:
    """JSON that can stand inside of a script element; what is not finite is null."""
    text = msgspec.json.encode(value).decode()
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
