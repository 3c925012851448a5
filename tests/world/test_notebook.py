"""The notebooks among the examples run from their first to their last cell, in a kernel of Jupyter."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "examples"


def printed(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell["outputs"])


def executed(name: str) -> tuple[list[Any], str]:
    """The code cells of a notebook with their outputs, and all that they have printed."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(FOLDER / name, 4)
    NotebookClient(book, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    kinds = [[output["output_type"] for output in cell["outputs"]] for cell in cells]
    assert not [kind for found in kinds for kind in found if kind == "error"]
    text = "\n".join(map(printed, cells))
    assert not re.search(r"Traceback|Warning", text)
    return cells, text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_notebook_trains_compares_plots_and_exports() -> None:
    cells, text = executed("compare.ipynb")
    means = re.search(r"mean return \{'a2c': ([\d.]+), 'ppo': ([\d.]+)\}", text)
    assert means is not None and min(map(float, means.groups())) > 60, "random actions earn 22"
    frames = [output["data"].get("text/html", "") for cell in cells for output in cell["outputs"] if "data" in output]
    assert any("<th>return_std</th>" in frame for frame in frames) and any("ppo, seed 2" in frame for frame in frames)
    assert "\nREADME.md, checkpoints, config.yaml, models, replay.mp4\n" in text
    mean = re.search(r"value: ([\d.]+) \+/- ", text)
    stood = re.search(r"the exported network stood for (\d+) ticks", text)
    assert mean is not None and float(mean[1]) > 60
    assert stood is not None and int(stood[1]) > 60


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_notebook_holds_a_run_improves_it_and_shows_why() -> None:
    cells, text = executed("notebook.ipynb")
    greedy = re.search(r"greedy play (\d+) -> (\d+)", text)
    assert greedy is not None and 1.5 * int(greedy[1]) < int(greedy[2])
    stood = re.search(r"the pole stood for (\d+) ticks", text)
    assert stood is not None and int(stood[1]) > 100
    held = next(cell for cell in cells if "for _ in range(3)" in cell["source"])
    tables = [output["data"].get("text/html", "") for output in held["outputs"] if "data" in output]
    assert tables and "<th>episode_reward_mean</th>" in tables[-1] and "tick 1800 of 4800" in tables[-1]
    goals = re.findall(r"^(\d+) ([\d.]+) ticks to the goal$", text, re.MULTILINE)
    assert [ticks for ticks, _ in goals] == ["400", "800"] and float(goals[-1][1]) < float(goals[0][1])


@pytest.mark.parametrize("name", ["compare.ipynb", "notebook.ipynb"])
def test_notebook_is_stored_without_outputs(name: str) -> None:
    book = json.loads((FOLDER / name).read_text())
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in book["cells"] if "outputs" in cell)
