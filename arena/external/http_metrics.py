"""Metrics of a server of games, for Prometheus."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_NOTICES_S = 60.0  # between two notices of one code


class Histogram:
    """Counts of values up to each bound, as Prometheus has them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterable[str]:
        """The text of this histogram."""
        yield f"# TYPE {name} histogram"
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum!r}"
        yield f"{name}_count {total}"


class Metrics:
    """The counters of a server.

    Attributes:
        begun: number of games.
        ended: games that have ended by the request `end`.
        lost: games that have ended otherwise, by reason.
        requests: by kind and status.
        refused_by: requests of games that got another status than 200, by code.
        notices: sentences for the user about some of these; their reader removes them.
        answer_seconds: from request to answer.
        batch_rows: rows that were answered together.
        versions: of the policies, by name; -1: unknown.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.begun = self.ended = 0
        self.lost: Counter[str] = Counter()
        self.refused_by: Counter[str] = Counter()
        self.notices: deque[str] = deque(maxlen=100)
        self._clock, self._noted = clock, dict[str, float]()  # by code, when there was a notice
        self.requests: Counter[tuple[str, int]] = Counter()
        self.answer_seconds, self.batch_rows = Histogram(_SECONDS), Histogram(_ROWS)
        self.versions: dict[str, int] = {}

    def note_refusal(self, code: str, detail: str, game: str | None) -> bool:
        """Makes a notice of a counted refusal, one in a minute for each code; returns whether it has."""
        now = self._clock()
        if now - self._noted.get(code, -math.inf) < _NOTICES_S:
            return False
        self._noted[code] = now
        of, line = f" of the game {game!r}" if game else "", " ".join(detail.split())[:500]
        self.notices.append(f"a request{of} is refused: {code}: {line} ({self.refused_by[code]} {code} so far)")
        return True

    def text(self, running: int) -> str:
        """The metrics in the text format of Prometheus 0.0.4; `running` is the number of games that go on."""
        lines = ["# TYPE arena_games_held gauge", f"arena_games_held {running}"]
        for name, count in (("begun", self.begun), ("ended", self.ended)):
            lines += [f"# TYPE arena_games_{name}_total counter", f"arena_games_{name}_total {count}"]
        lines.append("# TYPE arena_games_lost_total counter")
        lines += [f'arena_games_lost_total{{reason="{reason}"}} {count}' for reason, count in sorted(self.lost.items())]
        lines.append("# TYPE arena_requests_total counter")
        for (kind, status), count in sorted(self.requests.items()):
            lines.append(f'arena_requests_total{{kind="{kind}",status="{status}"}} {count}')
        lines += self.answer_seconds.lines("arena_answer_seconds")
        lines += self.batch_rows.lines("arena_batch_rows")
        lines.append("# TYPE arena_policy_version gauge")
        for policy, version in sorted(self.versions.items()):
            label = policy.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            lines.append(f'arena_policy_version{{policy="{label}"}} {version}')
        return "\n".join(lines) + "\n"
