"""What a run shows while it goes: a live panel on a terminal, a plain line now and then anywhere else; and its end.

Ticks are those of all matches together, and so is their rate: as `arena plan --probe` predicts it.

The root calls `update` as often as it likes; a display draws at its own, slower pace and has no thread. Both
displays write only to the stream that they are given.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from arena.config.schema import Config
from arena.diagnostics.profile import RoleProfile
from arena.errors import percent, pluralize, shown
from arena.plan.plan import Plan
from arena.records.faults import Losses
from arena.records.formats import ProfiledRole, ProfileFile
from arena.records.scoreboard import Scoreboard
from arena.roles.state import Display, ProfileKey
from arena.terminal.output import drawing, printable

Clock = Callable[[], float]

DRAW_EVERY = 0.2  # seconds between two pictures on a terminal
LINE_EVERY = 5.0, 60.0  # seconds between two lines elsewhere: a tenth of the time so far, within these
_MOST_FROZEN = 3  # policies that the end of a run says: `--continue` takes over many snapshots
PAUSE = 10.0  # seconds without a tick that may be left out of the speed


class Rate:
    """Ticks per second of this leg, updates included; pauses of other causes, as of an external game, are left out.

    A pause is left out if it is longer than ten seconds and all time counted before it, has no update in it, and does
    not follow such a pause at once, as the ticks of a slow game do.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ticks, self._seconds = 0, 0.0  # that count
        self._left_out = False  # the last pause
        self._last: tuple[float, int, int] | None = None  # time of the last tick; ticks and updates

    def add(self, ticks: int, scoreboard: Scoreboard) -> None:
        """Adds the ticks so far."""
        now, updates = self._clock(), sum(score.updates for score in scoreboard.shown.values())
        then, before, made = self._last or (now, ticks, updates)
        if ticks > before:
            self._left_out = not self._left_out and updates == made and now - then > max(PAUSE, self._seconds)
            if not self._left_out:
                self._ticks, self._seconds = self._ticks + ticks - before, self._seconds + now - then
            then = now
        elif now - then >= PAUSE:  # earlier it may be the update of the ticks before
            updates = made
        self._last = then, ticks, updates

    @property
    def per_second(self) -> float | None:
        """None until time has passed; a pause that lasts counts up to the limit beyond which it may be left out."""
        seconds = self._seconds
        if self._last is not None:
            seconds += min(self._clock() - self._last[0], max(PAUSE, seconds))
        return self._ticks / seconds if seconds else None


class PlainLines:
    """Lines on a stream that is no terminal."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def message(self, text: str) -> None:
        """Prints the text at once."""
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()


class LivePanel:
    """What is drawn again in place on a terminal, and the lines above it; `width`: columns, None asks the terminal."""

    def __init__(self, stream: IO[str], *, width: int | None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=drawing(stream), force_terminal=True, width=width)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def start(self) -> None:
        """Takes the cursor; from here on `stop` must be called."""
        self._live.start()

    def message(self, text: str) -> None:
        """Prints the text above the panel."""
        self._console.print(printable(text), markup=False, highlight=False)

    def stop(self) -> None:
        """Gives the cursor back."""
        self._live.stop()


class PlainDisplay(PlainLines):
    """One line every five seconds, later every minute, and one at the end."""

    def __init__(self, stream: IO[str], *, total_ticks: int | None, clock: Clock = time.monotonic) -> None:
        super().__init__(stream)
        self._clock, self._total = clock, total_ticks
        self._rate = Rate(clock)
        self._began = self._line_at = 0.0
        self._pending: tuple[int, Scoreboard] | None = None
        self._printed: tuple[int, str] | None = None  # the last line, its speed left out

    def start(self) -> None:
        """The first line comes after five seconds."""
        self._began = self._clock()
        self._line_at = self._began + LINE_EVERY[0]

    def update(self, ticks_done: int, scoreboard: Scoreboard) -> None:
        """Prints a line if it is time."""
        self._rate.add(ticks_done, scoreboard)
        self._pending = (ticks_done, scoreboard)
        if self._clock() >= self._line_at:
            self._print()

    def stop(self) -> None:
        """Prints the last state if it has not been printed."""
        if self._pending is not None and self._state(*self._pending) != self._printed:
            self._print()

    def _print(self) -> None:
        assert self._pending is not None  # both callers have seen to it
        self._printed = ticks_done, policies = self._state(*self._pending)
        self._pending = None
        now, (least, most) = self._clock(), LINE_EVERY
        self._line_at = now + min(most, max(least, (now - self._began) / 10))
        progress = _progress_text(ticks_done, self._total, self._rate.per_second)
        self.message(" | ".join(filter(None, [progress, policies])))

    @staticmethod
    def _state(ticks_done: int, scoreboard: Scoreboard) -> tuple[int, str]:
        parts = []
        waiting = [name for name, score in scoreboard.shown.items() if not score.episodes]
        for name, score in scoreboard.shown.items():
            if score.episodes:
                wins = f" win {percent(score.win_rate or 0.0)}" if score.games.count else ""
                parts.append(f"{name} return {_number(score.returns.last_mean)}{wins}")
        if waiting:
            parts.append(f"{waiting[0] if len(waiting) == 1 else f'{len(waiting)} policies'} no episode yet")
        return ticks_done, " | ".join([*parts, *scoreboard.games.values()])


class SilentDisplay:
    """Shows nothing, and keeps nothing: a program may hold a run for long."""

    def start(self) -> None: ...

    def update(self, ticks_done: int, scoreboard: Scoreboard) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


def silent_display() -> Display:
    """Shows nothing."""
    return SilentDisplay()


class LiveDisplay(LivePanel):
    """A progress bar and a table of the policies, drawn again in place at most five times a second.

    Args:
        stream: a terminal, or something that passes on to one.
        total_ticks: ticks of all matches together; None: not known, and there is no bar.
        colors: per policy `#rrggbb`, or None for the terminal's default.
        width: columns of the terminal; None asks the terminal.
        clock: seconds.
    """

    def __init__(
        self,
        stream: IO[str],
        *,
        total_ticks: int | None,
        colors: Mapping[str, str | None],
        width: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(stream, width=width)
        self._total, self._colors, self._clock = total_ticks, colors, clock
        self._rate = Rate(clock)
        self._draw_at = 0.0
        self._pending: tuple[int, Scoreboard] | None = None

    def start(self) -> None:
        """Takes the cursor; from here on `stop` must be called."""
        super().start()
        self._draw_at = self._clock()

    def update(self, ticks_done: int, scoreboard: Scoreboard) -> None:
        """Draws if it is time."""
        self._rate.add(ticks_done, scoreboard)
        self._pending = (ticks_done, scoreboard)
        if self._clock() >= self._draw_at:
            self._draw()

    def stop(self) -> None:
        """Draws the last state and gives the cursor back."""
        if self._pending is not None and self._live.is_started:
            self._draw()
        super().stop()

    def _draw(self) -> None:
        assert self._pending is not None  # both callers have seen to it
        ticks_done, scoreboard = self._pending
        self._pending = None
        self._draw_at = self._clock() + DRAW_EVERY
        from rich.console import Group, RenderableType
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("policy", no_wrap=True)
        for name in ("episodes", "return", "win rate"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("last update", no_wrap=True, overflow="ellipsis")
        for name, score in scoreboard.shown.items():
            losses = [name for name in score.values if "loss" in name] or list(score.values)
            won = "-" if score.win_rate is None else percent(score.win_rate)
            table.add_row(
                Text(printable(name), style=self._colors.get(name) or "bold"),
                *(str(score.episodes), _number(score.returns.last_mean), won),
                Text(printable("  ".join(f"{name} {_number(score.values[name])}" for name in losses[:2]))),
            )
        rate = self._rate.per_second
        progress = _progress_text(ticks_done, self._total, rate)
        bar: RenderableType = Text(progress)
        if self._total is not None:
            left = "-:--"
            if rate:
                minutes, seconds = divmod(max(0, math.ceil((self._total - ticks_done) / rate)), 60)
                hours, minutes = divmod(minutes, 60)
                left = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
            bar = Table.grid(padding=(0, 1), expand=True)
            bar.add_column(ratio=1)
            bar.add_column(no_wrap=True)
            bar.add_row(ProgressBar(total=max(self._total, 1), completed=ticks_done), f"{progress}  {left} left")
        games = (Text(printable(line)) for line in scoreboard.games.values())
        self._live.update(Group(bar, table, *games), refresh=True)


def make_display(
    stream: IO[str],
    *,
    columns: int,
    total_ticks: int | None,
    colors: Mapping[str, str | None],
    clock: Clock = time.monotonic,
) -> Display:
    """The display that fits the stream: a live panel on a terminal, else plain lines.

    `columns` are those of the user's terminal, 0 if the stream does not end at one, for under a launcher the stream
    cannot be asked. For the others see `LiveDisplay`.
    """
    if columns:
        return LiveDisplay(stream, total_ticks=total_ticks, colors=colors, width=columns, clock=clock)
    return PlainDisplay(stream, total_ticks=total_ticks, clock=clock)


# "Made no update" would be wrong: some algorithms do not log every update.
_NO_UPDATE = (
    "; it has logged no update in this run: give it more `ticks`, or less of an option such as n_steps, "
    "learning_starts or log_every"
)


def summary_lines(scoreboard: Scoreboard, run_dir: Path | str, config: Config | None = None) -> list[str]:
    """What the end of a run says: where everything is, and per policy how it began, how it ended, if it has learned."""
    pad = max(map(len, scoreboard.shown), default=0)
    lines = [f"run folder: {shown(run_dir)}"]
    policies = {} if config is None else config.policies
    frozen = [name for name in scoreboard.shown if name in policies and policies[name].frozen]
    idle = [name for name in frozen if not scoreboard.shown[name].episodes]  # as past selves that were never drawn
    more = [name for name in frozen if name not in idle][_MOST_FROZEN:]
    for name, score in scoreboard.shown.items():
        policy = policies.get(name)
        if name in idle or name in more:
            continue
        learns = policy is not None and policy.learns and ":" not in policy.algorithm  # others may log no updates
        waits = "" if not learns or score.updates or score.absent else _NO_UPDATE
        if not score.episodes:
            lines.append(f"{name:{pad}}  {'took no part' if score.absent else 'finished no episode'}{waits}")
            continue
        rated = score.games.count > 0
        series, what, noun, of = (
            (score.games, "won", "game", "of") if rated else (score.returns, "return", "episode", "in")
        )
        figure: Callable[[float], str] = percent if rated else _number
        change = series.before_and_after()
        if change is None:
            text = f"{what} {figure(series.mean or 0.0)} {of} its {pluralize(series.count, noun)}"
        else:
            size, before, after = change
            text = f"{what} {figure(before)} {of} its first {size} {noun}s, {figure(after)} {of} its last {size}"
        if rated:
            draws = score.drawn.before_and_after()
            shares = (score.drawn.mean or 0.0,) if draws is None else draws[1:]
            text += f"; drew {', then '.join(map(percent, shares))}" if any(shares) else ""
            others = score.episodes - score.games.count
            text += f"; {pluralize(others, 'other')} ended without an outcome" if others > 0 else ""
        lines.append(f"{name:{pad}}  {text}{waits}")
    if more:
        lines.append(f"and {pluralize(len(more), 'more frozen policy', 'more frozen policies')}")
    if idle:
        lines.append(f"{pluralize(len(idle), 'frozen policy', 'frozen policies')} finished no episode")
    return lines


def fault_lines(losses: Losses) -> list[str]:
    """What the end of a run says of the games that have failed in it; nothing where none has."""
    if not losses.restarts:
        return []
    dropped = pluralize(losses.episodes, "unfinished episode")
    return [
        f"games that failed were made again {pluralize(losses.restarts, 'time')}, {dropped} dropped: see faults.jsonl"
    ]


def _progress_text(done: int, total: int | None, rate: float | None) -> str:
    # No speed where no tick is played, such as while a run is saved.
    speed = "" if rate == 0 else f"  {'-' if rate is None else f'{rate:.2g}' if rate < 1 else round(rate)} ticks/s"
    if total is None:
        return f"{pluralize(done, 'tick')} of all matches{speed}"
    share = "<1 %" if 0 < 100 * done < total else percent(done / total if total else 1.0)
    return f"{done}/{total} ticks of all matches  {share}{speed}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    return f"{value:.2f}" if 0.01 <= abs(value) < 1000 or value == 0 else f"{value:.3g}"


def processes_text(processes: int, roles: int) -> str:
    """`6 processes`, or where they host several roles each, `151 roles on 3 processes`."""
    text = pluralize(processes, "process", "processes")
    return text if processes >= roles else f"{roles} roles on {text}"


def crossing_text(plan: Plan) -> str:
    """`2 of 30 matches over several hosts`."""
    crossing = f"{plan.crossing} of {pluralize(len(plan.matches), 'match', 'matches')} over several hosts"
    return crossing if plan.crossing else "each match within a host"


def profile_file(profiles: Mapping[ProfileKey, RoleProfile]) -> ProfileFile:
    """What `profile.json` holds: per role its wall and processor seconds, and the seconds of each activity."""
    return ProfileFile(
        tuple(
            ProfiledRole(
                rank=profiled.rank,
                role=profiled.role.kind.value,
                match=profiled.role.match,
                policy=profiled.policy,
                wall=profile.wall,
                cpu=profile.cpu,
                seconds=profile.seconds,
            )
            for profiled, profile in sorted(profiles.items(), key=lambda item: item[0].place)
        )
    )


def profile_lines(profile: ProfileFile) -> list[str]:
    """One line per kind of role and policy: the mean share of each activity in the wall time, the largest first."""
    kinds: dict[str, list[ProfiledRole]] = {}
    for role in profile.roles:
        kinds.setdefault(f"{role.role} {role.policy}" if role.policy else role.role, []).append(role)
    pad, lines = max(map(len, kinds), default=0), []
    for name, roles in kinds.items():
        wall = sum(role.wall for role in roles)
        totals: Counter[str] = Counter()
        for role in roles:
            totals.update(role.seconds)
        shares = [
            f"{activity} {percent(spent / wall, 1)}" for activity, spent in totals.most_common() if spent >= wall / 1000
        ]
        processor = sum(role.cpu for role in roles) / wall
        lines.append(f"{name:{pad}}  {', '.join(shares)} (processor {percent(processor, 1)})")
    return lines
