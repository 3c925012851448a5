"""Slots for processes on hosts, and devices: which of them a trial gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from arena.plan.hosts import Host

_WHOLE = 1.0 - 1e-9  # a device of which nothing is taken


class Place(NamedTuple):
    """The slots and devices that a trial has taken."""

    hosts: tuple[Host, ...]  # with the processes on each
    devices: tuple[tuple[str, float], ...] = ()  # of the host, with the share of each that is taken
    crowded: bool = False  # whether it has more processes than there are slots

    @property
    def text(self) -> str:
        """`a:4,b:4`, as `--hosts` takes it."""
        return ",".join(f"{host.name}:{host.slots}" for host in self.hosts)


@dataclass
class Slots:
    """The free slots and devices of some hosts."""

    hosts: Sequence[Host]  # each with its slots
    devices: dict[str, Sequence[str]] = field(default_factory=dict)  # by host, as CUDA_VISIBLE_DEVICES takes them
    crowding: bool = True  # whether a trial with more processes than slots may run alone

    def __post_init__(self) -> None:
        self.free = [host.slots for host in self.hosts]
        self._left = {host.name: dict.fromkeys(self.devices.get(host.name, ()), 1.0) for host in self.hosts}

    @property
    def total(self) -> int:
        """The slots of all hosts together, whether free or not."""
        return sum(host.slots for host in self.hosts)

    @property
    def idle(self) -> bool:
        """Whether no trial has a slot."""
        return self.free == [host.slots for host in self.hosts]

    def room(self, processes: int, gpus: float = 0.0, *, most: int) -> int:
        """How many such trials fit at the same time when all slots are free, counted up to `most`."""
        if processes == 1 and not gpus:
            return min(self.total, most)
        free, number = Slots(self.hosts, self.devices, self.crowding), 0
        while number < most and free.take(processes, gpus) is not None:
            number += 1
        return number

    def take(self, processes: int, gpus: float = 0.0) -> Place | None:
        """Takes a place: on one host where the processes fit, else on neighboring hosts; None if there is none now."""
        if gpus:
            return self._take_with_devices(processes, gpus)
        for number, free in enumerate(self.free):
            if processes <= free:
                return self._taken({number: processes})
        for first in range(len(self.free)):
            spread, left = {}, processes
            for number in range(first, len(self.free)):
                if not self.free[number]:
                    break  # not neighbors
                spread[number] = min(left, self.free[number])
                left -= spread[number]
                if not left:
                    return self._taken(spread)
        if self.crowding and self.idle and processes > self.total and len(self.hosts) == 1:
            return self._taken({0: self.free[0]})._replace(crowded=True)
        return None

    def _take_with_devices(self, processes: int, gpus: float) -> Place | None:
        for number, host in enumerate(self.hosts):
            left = self._left[host.name]
            whole = [name for name, share in left.items() if share >= _WHOLE]
            part = sorted((share, name) for name, share in left.items() if share >= gpus - 1e-9)  # the fullest first
            crowded = self.crowding and self.free[number] == host.slots < processes
            if processes > self.free[number] and not crowded:
                continue
            if gpus < 1 and part:
                chosen = [(part[0][1], gpus)]
            elif gpus >= 1 and len(whole) >= gpus:
                chosen = [(name, 1.0) for name in whole[: int(gpus)]]
            else:
                continue
            for name, share in chosen:
                left[name] -= share
            taken = self._taken({number: min(processes, self.free[number])})
            return taken._replace(devices=tuple(chosen), crowded=crowded)
        return None

    def _taken(self, spread: dict[int, int]) -> Place:
        for number, processes in spread.items():
            self.free[number] -= processes
        return Place(tuple(Host(self.hosts[number].name, processes) for number, processes in spread.items()))

    def give_back(self, place: Place) -> None:
        """Frees what a trial has taken."""
        numbers = {host.name: number for number, host in enumerate(self.hosts)}
        for host in place.hosts:
            self.free[numbers[host.name]] += host.slots
        for name, share in place.devices:
            self._left[place.hosts[0].name][name] += share
