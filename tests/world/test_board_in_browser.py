"""The board in a real Chromium, at the size of a desktop and of a phone."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import expect

from arena.board.run import RunPage
from boards import Served, board
from browser import PHONE, Browser, opened
from league_folders import League, write_league
from run_cli import ARENA, finish, start

HIT = "window.hit=1"
INJECTIONS = (
    f"<script>{HIT}</script>",
    f"</script><script>{HIT}</script>",
    f"<img src=x onerror={HIT}>",
    f'"><img src=x onerror={HIT}>',
    f"'><img src=x onerror={HIT}>",
    f'" onmouseover="{HIT}" x="',
    f"' onmouseover='{HIT}' x='",
    f"<svg onload={HIT}>",
    f"<svg><script>{HIT}</script></svg>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    f'<a href="javascript:{HIT}">x</a>',
    f"<details open ontoggle={HIT}>",
    f"<input autofocus onfocus={HIT}>",
    f"<style>@import '{HIT}'</style>",
    "</style><style>body{display:none}</style>",
    '" style="position:fixed;inset:0',
    "</section></main><section id=standings>",
    "<!--",
    "--><b>",
    "]]><b>",
    f"${{{HIT}}}",
    f"{{{{{HIT}}}}}",
    "{% raw %}",
    "\\u003cscript\\u003e",
    "<b>&lt;\u202e\u2028\r",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    for number, policies in enumerate((2, 3, 2)):
        folder = write_league(home / f"run-{number}", League(policies=policies, episodes=60, rounds=2), seed=number)
        line = {"ticks": 2000, "time_total_s": 10.0 + number, "policy_reward_mean": {"p0": 0.1 * number}, "done": True}
        line |= {"episode_reward_mean": 0.0}
        folder.results.write_text(json.dumps(line) + "\n")
    return home


def test_the_list_is_sorted_filtered_and_compared(browser: Browser, served: Served) -> None:
    with opened(browser, served.address()) as sheet:
        names = sheet.page.locator("#rows th a")
        expect(names).to_have_count(3)
        sheet.page.get_by_role("button", name="name", exact=True).click()
        expect(names).to_have_text(["run-0", "run-1", "run-2"])
        sheet.page.get_by_role("button", name="ticks/s").press("Enter")
        expect(names).to_have_text(["run-0", "run-1", "run-2"])
        sheet.page.get_by_role("button", name="ticks/s").press("Enter")
        expect(names).to_have_text(["run-2", "run-1", "run-0"])
        expect(sheet.page.locator("#rows .size").first).to_contain_text("kB")
        for name in ("run-0", "run-2"):
            sheet.page.get_by_label(f"compare {name}").check()
        sheet.page.get_by_role("searchbox").fill("run-1")
        expect(names).to_have_text(["run-1"])
        sheet.page.get_by_role("button", name="Compare 2 runs").click()
        expect(sheet.page.locator("#runs tbody code")).to_have_count(2)
        sheet.wait_until("document.querySelector('.chart svg.main-svg') !== null")
        assert sheet.complaints == []


def test_a_folder_without_runs_says_so(browser: Browser, tmp_path: Path) -> None:
    with board(tmp_path) as served, opened(browser, served.address()) as sheet:
        expect(sheet.page.locator("#empty")).to_be_visible()
        write_league(tmp_path / "new", League(policies=2, episodes=20, rounds=1))
        expect(sheet.page.locator("#rows th a")).to_have_text(["new"])
        assert sheet.complaints == []


def test_a_run_shows_new_points_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    """Over MPI, while it goes on; what a reader has chosen stays."""
    ppo = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}
    config = {
        "ticks": 10_000_000,
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": 10}}},
        "policies": {"blue": ppo, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 2}],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "runs").mkdir()
    process = start([*ARENA, "train", "config.yaml", "--ranks", "3", "--run-dir", "runs/one"], tmp_path)
    try:
        with board(tmp_path / "runs") as served, opened(browser, served.address()) as sheet:
            sheet.page.get_by_role("link", name="one").click()
            chart = "document.querySelector('[data-chart^=logged-]')"
            sheet.wait_until(f"({chart} !== null) && ({chart}.scrollIntoView(), {chart}.data !== undefined)")
            sheet.page.evaluate(f"window.kept = {chart}; {chart}.drawn.then(() => {{}})")
            sheet.page.evaluate(f"Plotly.relayout({chart}, {{'yaxis.range': [0, 7]}}).then(() => null)")
            sheet.page.locator("#faults").evaluate("(section) => (section.parentNode.open = true)")
            before = sheet.page.evaluate(f"{chart}.data.at(-1).x.at(-1)")
            expect(sheet.page.locator("#summary .state")).to_have_text("under way")
            sheet.wait_until(f"{chart}.data.at(-1).x.at(-1) > {before}")
            assert sheet.page.evaluate(f"window.kept === {chart} && {chart}.layout.yaxis.range.join() === '0,7'")
            sheet.wait_until("document.querySelector('#standings .standings') !== null")
            process.send_signal(signal.SIGINT)
            expect(sheet.page.locator("#summary .state")).to_have_text("ended early")
            assert sheet.complaints == []
    finally:
        process.send_signal(signal.SIGINT)
        finish(process)


def test_a_page_whose_folder_has_gone_says_why_it_is_not_live(browser: Browser, served: Served) -> None:
    with opened(browser, served.address()) as sheet:
        sheet.page.route("**/run-events/run-0", lambda route: route.continue_(url=f"{served.home}/run-events/gone"))
        sheet.page.get_by_role("link", name="run-0").click()
        expect(sheet.page.locator("#live")).to_have_text("There is no folder gone here. It may have been removed.")


def test_an_error_after_a_lost_connection_is_told(browser: Browser, served: Served) -> None:
    states = {"data": {}, "error": ""}, {"error": "This folder has been removed."}  # the second one by a new reader
    body = "".join(f"data: {json.dumps({'all': state})}\n\n" for state in states)
    with opened(browser, served.address("/run/run-0")) as sheet:
        sheet.page.route(
            "**/run-events/run-0", lambda route: route.fulfill(content_type="text/event-stream", body=body)
        )
        sheet.page.reload()
        expect(sheet.page.locator("#trouble")).to_have_text("This folder has been removed.")


def test_charts_are_drawn_over_samples_and_wall_time(browser: Browser, served: Served) -> None:
    chart = "document.querySelector('[data-chart^=logged-]')"
    with opened(browser, served.address("/run/run-1")) as sheet:
        sheet.wait_until(f"({chart} !== null) && ({chart}.scrollIntoView(), {chart}.data !== undefined)")
        ticks, values = sheet.page.evaluate(f"[{chart}.data[0].x, {chart}.data[0].y]")
        sheet.page.get_by_label("over").select_option("samples")
        clock = {json.loads(line)["ticks"]: json.loads(line)["samples"] for line in _updates(served, "p0")}
        assert sheet.page.evaluate(f"{chart}.data[0].x") == pytest.approx([clock[tick] for tick in ticks])
        sheet.page.get_by_label("over").select_option("seconds")
        assert sheet.page.evaluate(f"{chart}.data[0].x.at(-1)") == pytest.approx(11.0)
        sheet.page.get_by_label("smoothing").fill("0.5")
        smooth, mean, share = sheet.page.evaluate(f"{chart}.data[0].y"), 0.0, 0.0
        for value, found in zip(values, smooth, strict=True):
            mean, share = 0.5 * mean + 0.5 * value, 0.5 * share + 0.5
            assert found == pytest.approx(mean / share)
        sheet.page.get_by_label("log y").check()
        assert sheet.page.evaluate(f"{chart}.layout.yaxis.type") == "log"
        assert sheet.complaints == []


def _updates(served: Served, policy: str) -> list[str]:
    lines = (served.folder / "run-1" / "metrics.jsonl").read_text().splitlines()
    return [line for line in lines if json.loads(line)["policy"] == policy]


@pytest.mark.parametrize("page", ["/", "/run/run-1", "/compare?run=run-0&run=run-1", "/run/none"])
def test_pages_fit_a_phone_and_a_keyboard_reaches_them(browser: Browser, served: Served, page: str) -> None:
    with opened(browser, served.address(page), size=PHONE, scheme="dark") as sheet:
        sheet.wait_until("document.querySelector('#content')?.innerText.length > 20")
        if page == "/run/run-1":
            expect(sheet.page.locator("#summary h1")).to_have_text("league")
        sheet.page.wait_for_timeout(300)
        assert sheet.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        sheet.page.keyboard.press("Tab")
        assert sheet.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        sheet.page.keyboard.press("Tab")
        assert sheet.page.evaluate("document.activeElement.textContent") == "Runs"
        paper = sheet.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(int(part) for part in paper[4:-1].split(",")) < 60
        assert [one for one in sheet.complaints if "404" not in one] == []


def test_names_of_a_run_are_text(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / 'x"><img src=x onerror=window.hit=1>'
    folder = write_league(home / f"'{INJECTIONS[2]}{{{{7*7}}}}", League(policies=2, episodes=40, rounds=1))
    line = json.loads(folder.metrics.read_text().splitlines()[0])
    with folder.metrics.open("a") as file:
        for tick in range(4):
            values = dict.fromkeys(INJECTIONS, float(tick))
            file.write(json.dumps(line | {"update": 50 + tick, "ticks": 900 + tick} | values) + "\n")
    with folder.faults.open("a") as file:
        for text in INJECTIONS:
            fault = {"time": text, "kind": "environment", "match": 0, "tick": 1, "lanes": [0], "error": text}
            file.write(json.dumps(fault | {"seconds": 0.1}) + "\n")
    with board(home) as served, opened(browser, served.address()) as sheet:
        expect(sheet.page.locator("#rows th a")).to_have_text([folder.path.name])
        assert "window.hit=1" in (sheet.page.locator("h1 + .from").text_content() or "")
        sheet.page.locator("#rows th a").click()
        expect(sheet.page.locator(".where")).to_have_text(folder.path.name)
        expect(sheet.page.locator("#summary h1")).to_have_text("league")
        captions = sheet.page.locator("#logged figcaption")
        shown = [text.replace("\n", "\r") for text in captions.all_text_contents()]
        assert {one.replace("_", " ") for one in INJECTIONS} <= set(shown)
        assert all(text in sheet.page.locator("#faults").evaluate("(s) => s.textContent") for text in INJECTIONS[:20])
        sheet.scroll()
        assert sheet.page.evaluate("[window.hit, document.querySelectorAll('#sections > section').length]") == [
            None,
            len(RunPage.contents),
        ]
        assert sheet.complaints == []
