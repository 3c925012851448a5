"""The plain and the terminal display, and the summary of a run, with simulated time."""

from __future__ import annotations

import io
import itertools
import re
import threading

import pytest

from arena.config import parse_config
from arena.errors import percent
from arena.league.ratings.sprt import Verdict
from arena.league.round_text import VERDICTS, claim_text, gate_text, round_text
from arena.plan.build import make_plan
from arena.records.faults import fault_text
from arena.records.figures import results_of
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord
from arena.records.outcome import Outcome
from arena.records.scoreboard import Scoreboard
from arena.roles.state import Display
from arena.terminal.display import LiveDisplay, PlainDisplay, make_display, summary_lines


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Screen(io.StringIO):
    """A stream that is read in parts."""

    def fresh(self) -> str:
        """What was written since the last call, without control sequences."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        self.seek(0)
        self.truncate()
        return text


def play(board: Scoreboard, games: int, outcome: Outcome | None, *, gain: float = 1.0) -> None:
    other: Outcome | None = {"win": "loss", "loss": "win"}.get(str(outcome), outcome)  # type: ignore[assignment]
    for _ in range(games):
        seats = (SeatRecord("blue", (0,), gain, outcome), SeatRecord("red", (1,), -gain, other))
        board.add(results_of([EpisodeRecord(0, 0, "game", 0, 0, 1, 10, True, False, seats)]))


def shown(display: Display, clock: Clock, screen: Screen, at: float, ticks: int, board: Scoreboard) -> str:
    clock.seconds = at
    display.update(ticks, board)
    return screen.fresh()


def test_a_pipe_gets_a_plain_line_every_five_seconds() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue", "red"])
    display = make_display(screen, columns=0, total_ticks=20000, colors={}, clock=clock)
    display.start()
    play(board, 3, "win", gain=0.41)
    play(board, 1, "loss", gain=0.41)
    assert shown(display, clock, screen, 100.0, 0, board) == ""
    assert shown(display, clock, screen, 104.9, 5880, board) == ""
    assert shown(display, clock, screen, 105.0, 6000, board) == (
        "6000/20000 ticks of all matches  30 %  1200 ticks/s | blue return 0.41 win 75 % | red return -0.41 win 25 %\n"
    )
    assert shown(display, clock, screen, 109.9, 12000, board) == ""
    assert shown(display, clock, screen, 110.0, 12000, board).startswith(
        "12000/20000 ticks of all matches  60 %  1200 ticks/s | "
    )


def test_policies_without_an_episode_are_counted_on_one_line() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue", "red", *(f"p{number}" for number in range(6))])
    display = PlainDisplay(screen, total_ticks=100, clock=clock)
    display.start()
    assert shown(display, clock, screen, 105.0, 1, board).endswith(" ticks/s | 8 policies no episode yet\n")
    play(board, 4, "win", gain=0.5)
    assert shown(display, clock, screen, 110.0, 2, board).partition("ticks/s")[2] == (
        " | blue return 0.50 win 100 % | red return -0.50 win 0 % | 6 policies no episode yet\n"
    )


def test_lines_of_a_long_run_come_each_minute() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue"])
    display = PlainDisplay(screen, total_ticks=10**9, clock=clock)
    display.start()
    at = [second for second in range(1, 3601) if shown(display, clock, screen, 100.0 + second, second, board)]
    assert at[:10] == [*range(5, 51, 5)] and at[-3:] == [at[-1] - 120, at[-1] - 60, at[-1]]
    assert all(after - before <= max(5, -(-before // 10)) for before, after in itertools.pairwise(at))


def test_the_last_state_is_printed_once_at_the_end() -> None:
    clock, screen = Clock(), Screen()
    display = PlainDisplay(screen, total_ticks=10, clock=clock)
    display.start()
    display.update(10, Scoreboard(["blue"]))
    display.stop()
    display.stop()
    assert screen.fresh() == "10/10 ticks of all matches  100 %  - ticks/s | blue no episode yet\n"


def test_less_than_a_hundredth_is_not_shown_as_one() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue"])
    display = PlainDisplay(screen, total_ticks=3000, clock=clock)
    display.start()
    assert shown(display, clock, screen, 105.0, 2, board).startswith("2/3000 ticks of all matches  <1 %  ")
    assert shown(display, clock, screen, 110.0, 30, board).startswith("30/3000 ticks of all matches  1 %  ")


def test_speed_is_left_out_while_no_tick_is_played() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue"])
    display = PlainDisplay(screen, total_ticks=10, clock=clock)
    display.start()
    assert "  100 %  - ticks/s | " in shown(display, clock, screen, 105.0, 10, board)
    assert "  100 % | " in shown(display, clock, screen, 120.0, 10, board)
    assert "  110 %  - ticks/s | " in shown(display, clock, screen, 135.0, 11, board)
    assert "  120 %  0.067 ticks/s | " in shown(display, clock, screen, 150.0, 12, board)
    assert "  130 %  0.067 ticks/s | " in shown(display, clock, screen, 165.0, 13, board)


def test_speed_after_a_pause_is_that_since_the_pause() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue"])
    display = PlainDisplay(screen, total_ticks=1000, clock=clock)
    display.start()
    shown(display, clock, screen, 100.0, 0, board)
    shown(display, clock, screen, 101.0, 10, board)
    shown(display, clock, screen, 1101.0, 11, board)
    assert "  61 %  10 ticks/s | " in shown(display, clock, screen, 1161.0, 611, board)


def test_speed_counts_the_time_of_long_updates() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue"])
    display = PlainDisplay(screen, total_ticks=1000, clock=clock)
    display.start()
    shown(display, clock, screen, 100.0, 0, board)
    for update in range(5):  # 100 ticks in 5 s, then an update of 20 s: 4 ticks/s
        for second in range(1, 26):
            if second == 25:
                board.update(UpdateRecord("blue", update + 1, 0, 0, 0.0, {"loss": 0.5}))
            at, ticks = 100.0 + 25 * update + second, 100 * update + 20 * min(second, 5)
            text = shown(display, clock, screen, at, ticks, board)
            speed = re.search(r" ([0-9.]+) ticks/s", text)
            assert not text or (speed and update < 2) or (speed and 4 <= float(speed[1]) <= 6), text


def test_speed_forgets_the_idle_time_of_a_game_that_runs_elsewhere() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue"])
    display = PlainDisplay(screen, total_ticks=10000, clock=clock)
    display.start()
    shown(display, clock, screen, 100.0, 0, board)
    at, ticks = 160.0, 0  # a minute until its first game
    for _ in range(3):
        for _ in range(100):
            at, ticks = at + 1, ticks + 10
            shown(display, clock, screen, at, ticks, board)
            board.update(UpdateRecord("blue", ticks, 0, ticks, 0.0, {}))
            shown(display, clock, screen, at + 0.5, ticks, board)
        at, ticks = at + 7200, ticks + 1
        assert "  10 ticks/s | " in shown(display, clock, screen, at, ticks, board)


def test_unknown_number_of_ticks_shows_no_remaining_time() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue"])
    plain = make_display(screen, columns=0, total_ticks=None, colors={}, clock=clock)
    plain.start()
    assert (
        shown(plain, clock, screen, 105.0, 6000, board)
        == "6000 ticks of all matches  - ticks/s | blue no episode yet\n"
    )
    live = make_display(screen, columns=80, total_ticks=None, colors={}, clock=clock)
    live.start()
    told = shown(live, clock, screen, 106.0, 6000, board)
    live.stop()
    assert "6000 ticks of all matches  - ticks/s" in told
    assert "left" not in told
    assert "/" not in told.replace("ticks/s", "")


def test_a_terminal_shows_progress_and_a_row_per_policy() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue", "red"])
    colors = {"blue": "#1f77b4", "red": None}
    display = make_display(screen, columns=100, total_ticks=20000, colors=colors, clock=clock)
    play(board, 3, "win")
    board.update(UpdateRecord("blue", 1, 1, 1, 0.1, {"entropy": 0.5, "policy_loss": -0.012, "value_loss": 0.34}))
    display.start()
    shown(display, clock, screen, 100.0, 0, board)
    text = shown(display, clock, screen, 110.0, 5000, board)
    display.stop()
    assert "5000/20000 ticks of all matches  25 %  500 ticks/s  0:30 left" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "policy episodes return win rate last update" in rows
    assert "blue 3 1.00 100 % policy_loss -0.01 value_loss 0.34" in rows
    assert "red 3 -1.00 0 %" in rows


def test_terminal_is_drawn_at_most_5_times_a_second_without_a_thread() -> None:
    clock, screen, board = Clock(), Screen(), Scoreboard(["blue"])
    display = LiveDisplay(screen, total_ticks=1000, colors={}, width=80, clock=clock)
    threads = set(threading.enumerate())
    display.start()
    drawn = sum("ticks/s" in shown(display, clock, screen, 100 + step / 100, step, board) for step in range(200))
    assert set(threading.enumerate()) <= threads
    display.stop()
    assert 9 <= drawn <= 10


def test_cursor_is_restored_and_the_last_state_stays() -> None:
    clock, screen = Clock(), Screen()
    display = LiveDisplay(screen, total_ticks=10, colors={}, width=80, clock=clock)
    display.start()
    display.update(4, Scoreboard())
    display.update(10, Scoreboard())
    display.stop()
    display.stop()
    written = screen.getvalue()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    assert "10/10 ticks of all matches  100 %" in written[written.rindex("4/10") :]


@pytest.mark.parametrize("columns", [80, 0])
def test_message_is_shown_unchanged(columns: int) -> None:
    screen = Screen()
    display = make_display(screen, columns=columns, total_ticks=10, colors={})
    display.start()
    display.message("[red]checkpoint[/] saved: matches[0]")
    display.stop()
    assert "[red]checkpoint[/] saved: matches[0]\n" in screen.fresh()


def test_names_with_markup_are_escaped() -> None:
    screen, board = Screen(), Scoreboard(["[bold]"])
    board.update(UpdateRecord("[bold]", 1, 1, 1, 0.1, {"[x]_loss": 0.5}))
    display = LiveDisplay(screen, total_ticks=10, colors={}, width=80)
    display.start()
    display.update(1, board)
    display.stop()
    assert re.search(r"\[bold\] .* \[x\]_loss 0\.50", screen.fresh())


@pytest.mark.parametrize(
    ("games", "words"),
    [
        ([(1, "win", 1.0)], "won 100 % of its 1 game"),
        ([(1, "win", 1.0), (26, None, 1.0)], "won 100 % of its 1 game; 26 others ended without an outcome"),
        ([(15, "loss", 1.0), (15, "win", 1.0)], "won 0 % of its first 15 games, 100 % of its last 15"),
        ([(100, None, 21.25), (100, None, 480.0)], "return 21.25 in its first 100 episodes, 480.00 in its last 100"),
    ],
)
def test_summary_of_a_policy_says_what_its_games_show(games: list[tuple[int, Outcome, float]], words: str) -> None:
    board = Scoreboard()
    for count, outcome, gain in games:
        play(board, count, outcome, gain=gain)
    assert summary_lines(board, "x")[1] == f"blue  {words}"


def test_summary_has_first_and_last_games_of_each_policy() -> None:
    board = Scoreboard(["blue", "red", "idle"])
    play(board, 12, "win")
    play(board, 88, "loss")
    play(board, 30, "draw")
    play(board, 19, "loss")
    play(board, 81, "win")
    assert summary_lines(board, "runs/x") == [
        "run folder: runs/x",
        "blue  won 12 % of its first 100 games, 81 % of its last 100",
        "red   won 88 % of its first 100 games, 19 % of its last 100",
        "idle  finished no episode",
    ]


def test_summary_counts_frozen_policies_that_are_idle_or_beyond_the_first_three() -> None:
    names = ["blue", *(f"blue-{tick}" for tick in range(5))]
    policies = {name: {"algorithm": "random", "frozen": name != "blue"} for name in [*names, "blue-5", "blue-6"]}
    match = {"env": "game", "seats": ["blue", "blue-0"]}
    config = {"ticks": 9, "envs": {"game": {"make": "touchdown"}}, "policies": policies, "matches": [match]}
    board = Scoreboard([*names, "blue-5", "blue-6"])
    for name in names:
        board.policies[name].returns.extend([(0, 0, 0, 0)], [1.0])
    lines = summary_lines(board, "x", parse_config(config, source="test"))
    assert [line.split()[0] for line in lines[1:-2]] == names[:4]
    assert lines[-2:] == ["and 2 more frozen policies", "2 frozen policies finished no episode"]


def test_summary_says_which_built_in_algorithms_have_logged_no_update() -> None:
    algorithms = {"blue": "ppo", "red": "ppo", "own": "my_worker:QLearner", "fixed": "random"}
    policies = {name: {"algorithm": algorithm} for name, algorithm in algorithms.items()}
    match = {"env": "game", "seats": [*policies]}
    config = {"ticks": 9, "envs": {"game": {"make": "touchdown"}}, "policies": policies, "matches": [match]}
    board = Scoreboard(policies)
    play(board, 2, "win")
    board.update(UpdateRecord("red", 1, 1, 1, 0.1, {"policy_loss": -0.012}))
    assert summary_lines(board, "x", parse_config(config, source="test"))[1:] == [
        "blue   won 100 % of its 2 games; it has logged no update in this run: give it more `ticks`, or less of an "
        "option such as n_steps, learning_starts or log_every",
        "red    won 0 % of its 2 games",
        "own    finished no episode",
        "fixed  finished no episode",
    ]


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.0, 0, "0 %"),
        (0.004, 0, "1 %"),
        (0.955, 0, "96 %"),
        (0.996, 0, "99 %"),
        (1.0, 0, "100 %"),
        (0.9996, 1, "99.9 %"),
        (1 - 1e-12, 1, "100.0 %"),
        (1.75, 0, "175 %"),
    ],
)
def test_only_a_whole_is_shown_as_100_percent_and_only_nothing_as_0(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text


# Small phrases of messages and tables: counts, rounds


@pytest.mark.parametrize(
    ("seats", "sides", "words"),
    [
        (["a", "b"], None, "a - b"),
        (["a", "a", "b", "b"], None, "a - b"),
        (["a", "a"], [[0], [1]], "a - a"),
        (["a", "b", "b", "b"], [[0, 1], [2, 3]], "a + b - b"),
        (["a", "b", "c", "c"], None, "a - b - c"),
    ],
    ids=["duel", "teams", "itself", "mixture", "no-sides"],
)
def test_round_line_lists_pairings_by_side(seats: list[str], sides: list[list[int]] | None, words: str) -> None:
    data = {
        "ticks": 10,
        "rounds": 3,
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": len(seats) // 2}}},
        "policies": {name: {"algorithm": "random"} for name in sorted({*seats})},
        "matches": [{"env": "game", "seats": seats, "sides": sides, "copies": 2}],
    }
    assert round_text(make_plan(parse_config(data, source="league.yaml"))) == f"round 0 of 0 to 2: {words} x2"


def test_unknown_kind_of_fault_is_shown_verbatim() -> None:
    assert fault_text({"time": "2026-03-01", "kind": "weather", "wind": 9}) == "weather: wind 9"


def test_every_gate_verdict_has_a_description() -> None:
    assert {verdict.value for verdict in Verdict} == VERDICTS.keys()
    assert (gate_text("odd"), claim_text("odd", policy="a", against="a@5")) == ("gate odd", "gate odd: a against a@5")
