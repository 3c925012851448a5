"""Games in threads of the environment's process."""

from __future__ import annotations

from arena.testing import check_external_games
from external_connections import play_thread, threads


def test_threads_keep_the_contract() -> None:
    check_external_games(threads, play_thread, limit_s=60.0)
