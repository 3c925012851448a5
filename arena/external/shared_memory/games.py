"""External simulators that share a file with the environment: `make: shared_memory`."""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import IO, Any

import numpy as np

from arena.config.schema import TickRules
from arena.errors import ConfigError, LayoutError, LinkError, PeerGone, PeerSilent
from arena.external.interface import ExternalMatch
from arena.external.shared_memory.driver import Driver, close_drivers
from arena.external.shared_memory.layout import GroupSpec, Rows
from arena.external.shared_memory.lives import Lives, RequestRows, interface_of_groups
from arena.external.shared_memory.messages import Channel, Reported
from arena.external.shared_memory.settings import Settings, checked_split
from arena.external.slots import Answers, Slots
from arena.game.api import Interface

_log = logging.getLogger(__name__)

_TRIED_HANDOVERS = 64  # by `arena check`
_LEARNED_HANDOVERS = 64  # with rows, after which the groups that are registered are the interface
_LOOK_S = 0.25  # between two looks at programs that wait for their turn
_PATIENCE_S = 25.0  # a program may end by itself that waits longer for its turn: published ones do after 30 s
_MOST_IMPATIENT, _WINDOW_S = 5, 600.0
_REASONS = {PeerGone: "crashed", PeerSilent: "timeout", LayoutError: "bad_data"}  # why the games of a link are lost
_SEEDS = 2**24  # values of `seed_property`: whole numbers that float32 represents exactly


class SharedMemoryGames:
    """The agents of external simulators; see `ExternalGames`. The arguments are those of `Settings`.

    Attributes:
        Options: what `arena list` shows.
        notices: see `ExternalGames`.

    Raises:
        ConfigError: an argument is wrong, or the interface cannot be learned.
    """

    Options = Settings
    closed_loop = True
    exhausted = False

    def __init__(self, *, copy: int = 0, **kwargs: Any) -> None:
        self.settings = settings = Settings.of(kwargs, copy)
        self._match = ExternalMatch(0, TickRules(), ())
        groups = settings.specs or self._learn_groups()
        low, high = settings.action_range
        self.interface: Interface = interface_of_groups(groups, settings.split, (low, high))
        self._groups = {spec.name: spec for spec in groups}
        self._lives = Lives(groups, settings.split, settings.unseen)
        self._simulators = [_Simulator(number) for number in range(settings.simulators)]
        self._warned = False  # of `max_step` without `done`
        self.notices: deque[str] = deque()

    def _learn_groups(self) -> tuple[GroupSpec, ...]:
        """Starts one simulator, and takes the groups that it registers in its first hand-overs."""
        number = 0
        try:
            with self.settings.driver(0, 0, self.settings.messages(None), None) as driver:
                rows, begun = driver.reset(), time.monotonic()
                while (number := number + bool(rows)) < _LEARNED_HANDOVERS:
                    if not number and time.monotonic() - begun > self.settings.start_s:
                        made = f"{driver.handovers} hand-overs in {self.settings.start_s:g} s without a row"
                        raise ConfigError(f"the program has made {made}: write its groups here", path="groups")
                    driver.give()
                    rows = driver.await_rows()
                groups = tuple(driver.groups.values())
        except LinkError as error:
            raise ConfigError(str(error), path="command") from error
        for spec in groups:
            if not spec.observations or spec.continuous == 0:
                what = "actions" if spec.observations else "observations"
                raise ConfigError(f"the group {spec.name!r} of the program has no {what}", path="command")
        checked_split(self.settings.split, groups)
        return groups

    def configure(self, match: ExternalMatch) -> None:
        """Takes the match, from whose seed those of the simulators are derived; each restart of one is told."""
        self._match = match

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Starts all programs; `starting` says when they play.

        Raises:
            ConfigError: one cannot be started.
        """
        if self.settings.profile == "release-0.2" and any(spec.branches for spec in self._groups.values()):
            _log.warning("profile release-0.2: masks lie at `max_step`, and agents of discrete groups have no ids")
        with self._closed_by_failure():
            for simulator in self._simulators:
                with _numbered(simulator):
                    simulator.driver = self._start(simulator)

    @contextmanager
    def _closed_by_failure(self) -> Iterator[None]:
        """Closes the games and raises `ConfigError` if a link fails."""
        try:
            yield
        except LinkError as error:
            self.close("failed")
            raise ConfigError(str(error)) from error

    def _start(self, simulator: _Simulator) -> Driver:
        settings = self.settings
        sequence = np.random.SeedSequence((self._match.seed, simulator.number, simulator.starts))
        seed = int(sequence.generate_state(1)[0])
        simulator.starts += 1
        simulator.channels = [channel() for channel in settings.channel_classes()]
        if simulator.output is None:
            simulator.output = self._match.log(simulator.number)
        messages = settings.messages(float(seed % _SEEDS))
        messages += [(channel.guid, data) for channel in simulator.channels for data in channel.outgoing()]
        driver = settings.driver(simulator.number, seed, messages, simulator.output)
        if settings.attach is not None:
            self.notices.append(f"waits for a program started with `--memory-path {driver.first_path}`")
        try:
            driver.give(reset=True)
        except BaseException:
            driver.abandon()
            raise
        return driver

    @property
    def address(self) -> str:
        """The file for a program that is started by hand; otherwise the process ids of the programs."""
        drivers = [simulator.driver for simulator in self._simulators if simulator.driver is not None]
        if self.settings.attach is not None or not drivers:
            return ", ".join(self.files)
        return "pid " + ", ".join(str(driver.pid) for driver in drivers)

    @property
    def files(self) -> list[str]:
        """The first file of each simulator."""
        return [str(simulator.driver.first_path) for simulator in self._simulators if simulator.driver is not None]

    def starting(self) -> float | None:
        """Seconds until the next look at programs that start; None: each has handed over once, or is started by hand.

        Raises:
            ConfigError: one has ended, or breaks the rules.
        """
        if self.settings.attach is not None:
            return None
        waiting = [simulator for simulator in self._simulators if simulator.rows is None]
        with self._closed_by_failure():
            for simulator in waiting:
                with _numbered(simulator):
                    simulator.rows = simulator.link.poll()
                    self._check_groups(simulator.link.groups)
        return min((one.link.pause_s() for one in waiting if one.rows is None), default=None)

    def try_out(self) -> None:
        """Plays some hand-overs of the first simulator without policies, unless it is started by hand.

        Raises:
            ConfigError: it breaks the rules.
        """
        if self.settings.attach is not None:
            return  # the program may be started much later
        simulator = self._simulators[0]
        with self._closed_by_failure(), _numbered(simulator):
            for _ in range(_TRIED_HANDOVERS):
                simulator.link.give()
                simulator.link.await_rows()
                self._check_groups(simulator.link.groups)

    def _check_groups(self, groups: Mapping[str, GroupSpec]) -> None:
        if groups.items() <= self._groups.items():
            return
        for name, spec in groups.items():
            expected = self._groups.get(name)
            if expected is None:
                known = ", ".join(self._groups)
                raise LinkError(f"a group {name!r} was registered, but `groups` has {known}: name it there")
            for what, found, configured in (
                ("agents", spec.agents, expected.agents),
                ("observations", list(map(list, spec.observations)), list(map(list, expected.observations))),
                ("continuous actions", spec.continuous, expected.continuous),
                ("branches", spec.branches, expected.branches),
            ):
                if found != configured:
                    raise LinkError(f"group {name} has {found} {what}, the configuration says {configured}")

    def hint(self, slots: int) -> str:
        """A warning if there may be more rows than slots; otherwise empty."""
        most = sum(spec.agents for spec in self._groups.values()) * self.settings.simulators
        if most <= slots:
            return ""
        return (
            f"up to {most} rows may come at once, and there are {slots} slots: `lanes: {most}` is enough; fewer are if "
            "the last row of one life and the first row of the next one come together"
        )

    def poll(self, table: Slots) -> float | None:
        """Passes what has been handed over to the table.

        Raises:
            LinkError: a simulator has failed, more often than `restarts` allows.
        """
        for simulator in self._simulators:
            try:
                with _numbered(simulator):
                    self._advance(simulator, table)
            except LinkError as error:
                self._restart(simulator, table, error)
        computing = [simulator.link for simulator in self._simulators if simulator.requests is None]
        if not computing:
            table.complete()
            return _LOOK_S
        return min(min(driver.pause_s() for driver in computing), _LOOK_S)

    def _advance(self, simulator: _Simulator, table: Slots) -> None:
        """Passes a hand-over of one simulator to the table, if there is a new one."""
        driver, number = simulator.link, simulator.number
        if simulator.failure is not None:
            raise simulator.failure
        if simulator.requests is not None:
            driver.poll()  # checks that the program lives
            if not simulator.waiting:  # all games that waited were dropped
                self._give(simulator, None)
            return
        rows, simulator.rows = simulator.rows, None
        if rows is None:
            rows = driver.poll()
            if rows is None:
                return
        self._check_groups(driver.groups)
        for guid, data in driver.received():
            channel = next((channel for channel in simulator.channels if channel.guid == guid), None)
            if channel is not None:
                channel.receive(data)
            elif not simulator.reported.receive((guid, data)):
                simulator.reported.unknown += 1
                if guid not in simulator.unknown:
                    simulator.unknown.add(guid)
                    _log.warning("simulator %d sends messages of an unknown channel, %s", number, guid)
        simulator.requests = self._lives.pass_on(table, number, rows, driver.offset_of)
        for requests in simulator.requests.values():
            for slots in requests.slots.values():
                simulator.waiting.update(slots.tolist())
        if self._lives.counts[number].max_step_without_done and not self._warned:
            self._warned = True
            _log.warning("simulator %d: rows with `max_step` without `done` do not end a life", number)
        if not simulator.waiting:
            self._give(simulator, None)

    def _restart(self, simulator: _Simulator, table: Slots, error: LinkError) -> None:
        """Starts a simulator again that has failed; raises the error if that was done as often as is allowed."""
        driver, restarts = simulator.link, self.settings.restarts
        waited, now = driver.seconds_since_taken, time.monotonic()
        was_impatient = isinstance(error, PeerGone) and waited > _PATIENCE_S
        times, most = (simulator.impatient, _MOST_IMPATIENT) if was_impatient else (simulator.failed, restarts)
        while times and now - times[0] >= _WINDOW_S:
            times.popleft()
        if len(times) >= most:
            if not was_impatient and (restarts or isinstance(error, (LayoutError, PeerGone, PeerSilent))):
                first, *lines = error.message.split("\n")
                more = f"`restarts: {restarts}` is used up" if restarts else "`restarts: 2` in `kwargs` starts it again"
                error.message = "\n".join([f"{first}; {more}", *lines])
            raise error
        times.append(now)
        before = simulator.counts()
        driver.abandon()
        reason = next((why for kind, why in _REASONS.items() if isinstance(error, kind)), "failed")
        lost = self._lives.lose(table, simulator.number, reason)
        simulator.requests = simulator.rows = simulator.failure = None
        simulator.waiting.clear()
        with _numbered(simulator):
            simulator.driver = self._start(simulator)
        simulator.before = before
        if was_impatient:
            message = "simulator %d gave up after %.0f s without its turn: it was started again"
            _log.warning(message, simulator.number, waited)
        else:
            _log.warning("%s; it was started again", error)
        self._match.restarted(error, lost)

    def answer(self, actions: Answers) -> None:
        """Gives the actions to the simulators that wait for them; the next `poll` reports simulators that failed."""
        for simulator in self._simulators:
            if simulator.requests is not None:
                try:
                    with _numbered(simulator):
                        self._give(simulator, actions)
                except LinkError as error:
                    simulator.failure = error

    def _give(self, simulator: _Simulator, actions: Answers | None) -> None:
        requests, simulator.requests = simulator.requests, None
        chosen = self._lives.actions(requests or {}, actions, simulator.waiting)
        simulator.waiting.clear()
        driver = simulator.link
        for channel in simulator.channels:
            for data in channel.outgoing():
                driver.send(channel.guid, data)
        driver.give(chosen)

    def drop(self, slot: int, reason: str) -> None:
        """Gives an agent up: it does nothing until its life ends."""
        self._lives.drop(slot)
        for simulator in self._simulators:
            simulator.waiting.discard(slot)

    def pause(self, on: bool) -> None:
        """The simulators keep waiting; limits of time stand still."""
        if not on:
            for simulator in self._simulators:
                if simulator.driver is not None:
                    simulator.driver.stand_still()

    def close(self, reason: str) -> None:
        """Ends all programs, and removes all files."""
        close_drivers([simulator.driver for simulator in self._simulators if simulator.driver is not None])
        for simulator in self._simulators:
            if simulator.output is not None:
                simulator.output.close()
                simulator.output = None

    def report(self) -> dict[str, Any]:
        """The keys of a line of `games.jsonl` for simulators: `links`, and `reported` if one has reported something."""
        from arena.records.formats import LinkLine  # imported where it is needed: others do without msgspec

        links, reported = [], {}
        for simulator in self._simulators:
            number, unknown = simulator.number, simulator.reported.unknown
            counts = {**simulator.counts(), **asdict(self._lives.counts[number])}
            links.append(LinkLine(simulator=number, starts=simulator.starts, unknown_messages=unknown, **counts))
            if values := simulator.reported.take():
                reported[str(number)] = values
        return {"links": links, **({"reported": reported} if reported else {})}


@dataclass(eq=False)
class _Simulator:
    """One simulator of a match, through all drivers that it has had."""

    number: int
    driver: Driver | None = None
    rows: dict[str, Rows] | None = None  # rows of the first hand-over, before the table gets them
    requests: dict[str, RequestRows] | None = None  # rows that wait for actions
    waiting: set[int] = field(default_factory=set)  # slots of these
    failure: LinkError | None = None  # for the next `poll`
    starts: int = 0
    before: dict[str, Any] = field(default_factory=dict)  # the counts of earlier drivers
    failed: deque[float] = field(default_factory=deque)  # times of restarts
    impatient: deque[float] = field(default_factory=deque)  # likewise, as the program did not wait for its turn
    channels: list[Channel] = field(default_factory=list)
    reported: Reported = field(default_factory=Reported)
    unknown: set[uuid.UUID] = field(default_factory=set)
    output: IO[bytes] | None = None

    @property
    def link(self) -> Driver:
        """The driver; only after `open`."""
        assert self.driver is not None, "the games are open"
        return self.driver

    def counts(self) -> dict[str, Any]:
        """Counts of all drivers so far, by the keys of `LinkLine`."""
        driver, file = self.link, self.link.file
        now = {
            "handovers": driver.handovers,
            "changes": file.changes,
            "bytes_read": file.bytes_read,
            "bytes_written": file.bytes_written,
            "simulator_s": round(driver.simulator_s, 3),
            "arena_s": round(driver.driver_s, 3),
        }
        return {key: self.before.get(key, 0) + value for key, value in now.items()}


@contextmanager
def _numbered(simulator: _Simulator) -> Iterator[None]:
    """Adds the number of the simulator to errors that pass through."""
    try:
        yield
    except LinkError as error:
        error.simulator = simulator.number
        raise
