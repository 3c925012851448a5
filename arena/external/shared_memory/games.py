"""External simulators that share a file with the environment: `make: shared_memory`."""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from arena.config.schema import TickRules
from arena.errors import ConfigError, LinkError, PeerGone
from arena.external.interface import Answers
from arena.external.shared_memory.driver import Driver, close_drivers
from arena.external.shared_memory.layout import GroupSpec, Rows
from arena.external.shared_memory.lives import AskedRows, Lives, interface_of_groups
from arena.external.shared_memory.messages import Channel, Message, Reported, parameter_message, property_message
from arena.external.shared_memory.settings import Settings, checked_split
from arena.external.slots import Slots
from arena.game.api import Interface

_log = logging.getLogger(__name__)

_TRIED_HANDOVERS = 64  # by `arena check`
_LEARNED_HANDOVERS = 64  # with rows, after which the groups that are registered are the interface
_LOOK_S = 0.25  # between two looks at programs that wait for their turn
_PATIENCE_S = 25.0  # a program that waited for its turn for longer may have given up: published ones do after 30 s
_MOST_GIVEN_UP, _WINDOW_S = 5, 600.0
_SEEDS = 2**24  # values of `seed_property`: whole numbers that float32 represents exactly


class SharedMemoryGames:
    """The agents of external simulators; see `ExternalGames`. The arguments are those of `Settings`.

    Attributes:
        Options: what `arena list` shows.
        rules: of the match; not used here.
        log: opens the file for the output of a simulator, by its number; None: the output is not kept.
        restarted: called after a simulator was started again, with its failure and the slots of the lost lives.

    Raises:
        ConfigError: an argument is wrong, or the interface cannot be learned.
    """

    Options = Settings
    closed_loop = True
    exhausted = False

    def __init__(self, *, copy: int = 0, **kwargs: Any) -> None:
        self.settings = settings = Settings.of(kwargs, copy)
        self.rules = TickRules()
        self.log: Callable[[int], IO[bytes] | None] = lambda number: None
        self.restarted: Callable[[Exception, Sequence[int]], None] = lambda error, lost: None
        self._entropy = 0
        groups = settings.specs or self._learn_groups()
        low, high = settings.action_range
        self.interface: Interface = interface_of_groups(groups, settings.split, (low, high))
        self._groups = {spec.name: spec for spec in groups}
        self._lives = Lives(groups, settings.split, settings.unseen)
        self._simulators = [_Simulator(number) for number in range(settings.simulators)]
        self._warned = False  # of `max_step` without `done`

    def seed(self, entropy: int) -> None:
        """Sets the seed of the match's first lane, from which the seeds of the simulators are derived."""
        self._entropy = entropy

    def open(self, slots: int, ring: Callable[[], None]) -> None:
        """Starts all programs; `starting` says when they play.

        Raises:
            ConfigError: one cannot be started.
        """
        if self.settings.profile == "release-0.2" and any(spec.branches for spec in self._groups.values()):
            _log.warning("profile release-0.2: masks lie at `max_step`, and agents of discrete groups have no ids")
        try:
            for simulator in self._simulators:
                with _numbered(simulator):
                    simulator.driver = self._start(simulator)
        except LinkError as error:
            self.close("failed")
            raise ConfigError(str(error)) from error

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
        try:
            for simulator in waiting:
                with _numbered(simulator):
                    simulator.rows = simulator.link.poll()
                    self._check_groups(simulator.link.groups)
        except LinkError as error:
            self.close("failed")
            raise ConfigError(str(error)) from error
        return min((one.link.pause_s() for one in waiting if one.rows is None), default=None)

    def try_out(self) -> None:
        """Plays some hand-overs of the first simulator without policies, unless it is started by hand.

        Raises:
            ConfigError: it breaks the rules.
        """
        if self.settings.attach is not None:
            return  # the program may be started much later
        simulator = self._simulators[0]
        try:
            with _numbered(simulator):
                for _ in range(_TRIED_HANDOVERS):
                    simulator.link.give()
                    simulator.link.await_rows()
                    self._check_groups(simulator.link.groups)
        except LinkError as error:
            raise ConfigError(str(error)) from error

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
        """Tells the table what has been handed over.

        Raises:
            LinkError: a simulator has failed, more often than `restarts` allows.
        """
        for simulator in self._simulators:
            try:
                with _numbered(simulator):
                    self._advance(simulator, table)
            except LinkError as error:
                self._restart(simulator, table, error)
        computing = [simulator.link for simulator in self._simulators if simulator.asked is None]
        if not computing:
            table.complete()
            return _LOOK_S
        return min(min(driver.pause_s() for driver in computing), _LOOK_S)

    def _advance(self, simulator: _Simulator, table: Slots) -> None:
        driver = simulator.link
        if simulator.failure is not None:
            raise simulator.failure
        if simulator.asked is not None:
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
        self._receive(simulator)
        simulator.asked = self._lives.tell(table, simulator.number, rows, driver.offset_of)
        for asked in simulator.asked.values():
            for slots in asked.slots.values():
                simulator.waiting.update(slots.tolist())
        if self._lives.counts[simulator.number].max_step_without_done and not self._warned:
            self._warned = True
            _log.warning("simulator %d: rows with `max_step` without `done` do not end a life", simulator.number)
        if not simulator.waiting:
            self._give(simulator, None)

    def answer(self, actions: Answers) -> None:
        """Gives the actions to the simulators that wait for them; the next `poll` reports simulators that failed."""
        for simulator in self._simulators:
            if simulator.asked is not None:
                try:
                    with _numbered(simulator):
                        self._give(simulator, actions)
                except LinkError as error:
                    simulator.failure = error

    def _give(self, simulator: _Simulator, actions: Answers | None) -> None:
        asked, simulator.asked = simulator.asked, None
        chosen = self._lives.actions(asked or {}, actions, simulator.waiting)
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
            simulator.close_output()

    def report(self) -> dict[str, Any]:
        """The keys of a line of `games.jsonl` for simulators: `links`, and `reported` if one has reported something."""
        from arena.records.formats import LinkLine  # imported where it is needed: others do without msgspec

        links = []
        for simulator in self._simulators:
            counts = self._lives.counts[simulator.number]
            links.append(
                LinkLine(
                    simulator=simulator.number,
                    **simulator.counts(),
                    starts=simulator.starts,
                    lost=counts.lost,
                    never_asked=counts.never_asked,
                    max_step_without_done=counts.max_step_without_done,
                    first_rewards=counts.first_rewards,
                    unknown_messages=simulator.reported.unknown,
                )
            )
        reported = {str(simulator.number): simulator.reported.take() for simulator in self._simulators}
        told = {number: values for number, values in reported.items() if values}
        return {"links": links, **({"reported": told} if told else {})}

    # ------------------------------------------------------------------------------------------------------- inside

    def _start(self, simulator: _Simulator) -> Driver:
        settings = self.settings
        sequence = np.random.SeedSequence((self._entropy, simulator.number, simulator.starts))
        seed = int(sequence.generate_state(1)[0])
        simulator.starts += 1
        simulator.channels = [channel() for channel in settings.channel_classes()]
        if simulator.output is None:
            simulator.output = self.log(simulator.number)
        messages = self._messages(float(seed % _SEEDS))
        messages += [(channel.guid, data) for channel in simulator.channels for data in channel.outgoing()]
        driver = settings.driver(simulator.number, seed, messages, simulator.output)
        try:
            driver.give(reset=True)
        except BaseException:
            driver.abandon()
            raise
        return driver

    def _messages(self, seed: float | None = None) -> list[Message]:
        """The messages of the first reset: engine, properties, parameters."""
        settings = self.settings
        messages = [] if settings.engine is None else settings.engine.messages()
        messages += [property_message(key, value) for key, value in settings.properties.items()]
        if settings.seed_property is not None and seed is not None:
            messages.append(property_message(settings.seed_property, seed))
        return messages + [parameter_message(key, value) for key, value in settings.parameters.items()]

    def _learn_groups(self) -> tuple[GroupSpec, ...]:
        """Starts one simulator, and takes the groups that it registers in its first hand-overs."""
        number = 0
        try:
            with self.settings.driver(0, 0, self._messages(), None) as driver:
                rows, begun = driver.reset(), time.monotonic()
                while True:
                    number += bool(rows)
                    if number >= _LEARNED_HANDOVERS:
                        break
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

    def _check_groups(self, groups: Mapping[str, GroupSpec]) -> None:
        if groups.items() <= self._groups.items():
            return
        for name, spec in groups.items():
            expected = self._groups.get(name)
            if expected is None:
                known = ", ".join(self._groups)
                raise LinkError(f"a group {name!r} was registered, but `groups` has {known}: name it there")
            for words, found, wanted in (
                ("agents", spec.agents, expected.agents),
                ("observations", list(map(list, spec.observations)), list(map(list, expected.observations))),
                ("continuous actions", spec.continuous, expected.continuous),
                ("branches", spec.branches, expected.branches),
            ):
                if found != wanted:
                    raise LinkError(f"group {name} has {found} {words}, the configuration says {wanted}")

    def _receive(self, simulator: _Simulator) -> None:
        for guid, data in simulator.link.received():
            channel = next((channel for channel in simulator.channels if channel.guid == guid), None)
            if channel is not None:
                channel.receive(data)
            elif not simulator.reported.receive((guid, data)):
                simulator.reported.unknown += 1
                if guid not in simulator.unknown:
                    simulator.unknown.add(guid)
                    _log.warning("simulator %d sends messages of an unknown channel, %s", simulator.number, guid)

    def _restart(self, simulator: _Simulator, table: Slots, error: LinkError) -> None:
        """Starts a simulator again that has failed."""
        driver = simulator.link
        waited = driver.seconds_since_taken
        given_up = isinstance(error, PeerGone) and waited > _PATIENCE_S
        restarts = self.settings.restarts
        times, most = (simulator.given_up, _MOST_GIVEN_UP) if given_up else (simulator.failed, restarts)
        now = time.monotonic()
        while times and now - times[0] >= _WINDOW_S:
            times.popleft()
        if len(times) >= most:
            if restarts and not given_up:
                words, *lines = error.message.split("\n")
                error.message = "\n".join([f"{words}; `restarts: {restarts}` is used up", *lines])
            raise error
        times.append(now)
        before = simulator.counts()
        driver.abandon()
        lost = self._lives.lose(table, simulator.number)
        simulator.asked = simulator.rows = simulator.failure = None
        simulator.waiting.clear()
        with _numbered(simulator):
            simulator.driver = self._start(simulator)
        simulator.before = before
        if given_up:
            _log.warning(
                "simulator %d gave up after %.0f s without its turn: it was started again", simulator.number, waited
            )
        else:
            _log.warning("%s; it was started again", error)
        self.restarted(error, lost)


class _Simulator:
    """One simulator of a match."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.driver: Driver | None = None
        self.rows: dict[str, Rows] | None = None  # rows of the first hand-over, before the table gets them
        self.asked: dict[str, AskedRows] | None = None  # rows that wait for actions
        self.waiting: set[int] = set()  # slots of these
        self.failure: LinkError | None = None  # for the next `poll`
        self.starts = 0
        self.before: dict[str, Any] = {}  # the counts of earlier drivers
        self.failed: deque[float] = deque()
        self.given_up: deque[float] = deque()
        self.channels: list[Channel] = []
        self.reported = Reported()
        self.unknown: set[uuid.UUID] = set()
        self.output: IO[bytes] | None = None

    @property
    def link(self) -> Driver:
        """The driver; only after `open`."""
        assert self.driver is not None, "the games are open"
        return self.driver

    def counts(self) -> dict[str, Any]:
        """Counts of all drivers so far, by the keys of `LinkLine`."""
        driver = self.link
        read, written = driver.bytes_moved
        now = {
            "handovers": driver.handovers,
            "changes": driver.changes,
            "bytes_read": read,
            "bytes_written": written,
            "simulator_s": round(driver.simulator_s, 3),
            "arena_s": round(driver.driver_s, 3),
        }
        return {key: self.before.get(key, 0) + value for key, value in now.items()}

    def close_output(self) -> None:
        """Closes the file of the program's output."""
        if self.output is not None:
            self.output.close()
            self.output = None


@contextmanager
def _numbered(simulator: _Simulator) -> Iterator[None]:
    """Adds the number of the simulator to errors that pass through."""
    try:
        yield
    except LinkError as error:
        error.simulator = simulator.number
        raise
