"""Games with dictionaries of agents, in whole runs: agents that join late, leave, take turns, or never join."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from arena.dataset import open_dataset
from arena.records import read_results
from in_process import one_match, play

PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}
RELAY: dict[str, Any] = one_match(
    {"make": "dict_games:Relay"},
    {"taker": PPO, "guest": {"algorithm": "random"}, "ghost": {"algorithm": "random"}},
    seats=[["taker", "taker"], "guest", "ghost"],
    **{"ticks": 96, "checkpoint_every": 48, "record": "samples", "match": {"lanes": 2}},
)


def test_policies_play_agents_that_join_late_leave_and_take_turns(tmp_path: Path) -> None:
    played = play(RELAY, tmp_path)
    samples, lines = open_dataset(played.folder.path), played.episodes
    assert len(lines) == 2 * 96 // 6 and {line["length"] for line in lines} == {6}
    for seat, (name, entities, acts) in enumerate([("taker", 2, 3), ("guest", 1, 2)]):
        batch = samples.batch(name)
        returns = [line["seats"][seat]["return"] for line in lines]
        assert len(batch) == entities * acts * len(lines)
        # The game's rule: an action is paid one if it is the number that its observation shows.
        paid = batch["actions"] == batch["obs"][:, 0]
        assert paid.sum() == entities * sum(returns) == batch["rewards"].sum()
        mean = read_results(played.folder.path)[-1]["policy_reward_mean"][name]
        assert math.isclose(mean, sum(returns) / len(lines))
    assert {line["seats"][2]["return"] for line in lines} == {None}, "it has never acted"
    assert math.isnan(read_results(played.folder.path)[-1]["policy_reward_mean"]["ghost"])
    assert len(played.updates) > 0
