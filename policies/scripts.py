"""Functions for scripted policies in the built-in games: fixed opponents to measure policies against.

    policies: {red: {algorithm: scripted, options: {function: "policies.scripts:dodge"}}}

Each takes a vector environment's batched observations [B, ...] and infos, and gives batched actions [B, ...].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from arena.game.ragged import Ragged

Floats = NDArray[np.float32]
Choices = NDArray[np.int64]
Infos = Mapping[str, Any]

_STAY, _RIGHT, _LEFT, _UP, _DOWN = range(5)  # as in `envs.touchdown`, `envs.cover` and `envs.skirmish`
_DIRECTIONS = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
_NEAR = 0.05  # half a move: no move brings a player closer than this


def always(observations: Any, infos: Infos, *, env: Any, action: int) -> Choices:
    """One choice of a Discrete space, whatever is seen."""
    return np.full(env.num_envs, action, np.int64)


def beat_last(observations: Floats, infos: Infos) -> Choices:
    """Rock-paper-scissors (`envs.matrix`): what beats the other's last choice; paper on the first tick."""
    theirs = observations[:, 3:6].argmax(axis=1)  # [B]; rock where there is none yet
    return (theirs + 1) % 3  # type: ignore[no-any-return]


def run(observations: Floats, infos: Infos, *, env: Any, mirror: bool = False) -> NDArray[Any]:
    """Touchdown with vector observations: straight to the far line.

    `mirror` says that the game has its option `mirror` set: red sees itself as blue.
    """
    return _as_moves(env, np.where(_upwards(env, mirror), _UP, _DOWN))


def dodge(observations: Floats, infos: Infos, *, env: Any, mirror: bool = False) -> NDArray[Any]:
    """Touchdown with vector observations: to the far line, with a step aside when an opponent is close ahead."""
    players = observations.reshape(len(observations), -1, 2)  # [B, 2 * team_size, 2], own team first
    self_x = players[:, 0, 0]
    away = players[:, players.shape[1] // 2 :] - players[:, :1]  # [B, team_size, 2]
    upwards = _upwards(env, mirror)
    ahead = away[..., 1] * np.where(upwards, 1, -1)[:, None]
    threat = (np.abs(away[..., 0]) < 0.25) & (ahead > -0.05) & (ahead < 0.35)
    nearest = np.where(threat, np.abs(away).sum(-1), np.inf).argmin(axis=1)
    gap = away[np.arange(len(away)), nearest, 0]
    to_right = np.where(np.abs(self_x) > 0.9, self_x < 0, gap <= 0)  # at a side line there is one way only
    sideways = np.where(to_right, _RIGHT, _LEFT)
    return _as_moves(env, np.where(threat.any(axis=1), sideways, np.where(upwards, _UP, _DOWN)))


def greedy_cover(observations: Floats, infos: Infos) -> Choices:
    """Cover: to the nearest target that no other player is closer to; if there is none, to the nearest of all."""
    count = observations.shape[1] // 4  # players, and as many targets
    points = observations.reshape(len(observations), -1, 2)
    targets, others = points[:, 1 : 1 + count], points[:, 1 + count :]  # relative to the player [B, ., 2]
    mine = np.linalg.norm(targets, axis=-1)  # [B, target]
    theirs = np.linalg.norm(targets[:, :, None] - others[:, None], axis=-1).min(axis=-1, initial=np.inf)
    cost = mine + np.where(theirs < mine, 10.0, 0.0)  # more than the field is wide
    goal = targets[np.arange(len(targets)), cost.argmin(axis=1)]  # [B, 2]
    along_x = np.abs(goal[:, 0]) > np.abs(goal[:, 1])
    horizontal = np.where(goal[:, 0] > 0, _RIGHT, _LEFT)
    vertical = np.where(goal[:, 1] > 0, _UP, _DOWN)
    return np.where(np.abs(goal).max(axis=1) < _NEAR, _STAY, np.where(along_x, horizontal, vertical))


def focus(observations: Any, infos: Infos) -> dict[str, Ragged]:
    """Skirmish (`envs.skirmish`): attacks the weakest enemy in reach; else walks toward the nearest one."""
    soldiers, enemy = observations["units"]["Own"], observations["units"]["Enemy"]
    enemies = np.full((len(enemy), max(1, int(enemy.lengths.max(initial=0))), 3), np.inf)  # [B, N, 3] x, y, health
    enemies[enemy.rows(), enemy.places()] = enemy.values

    walkers = observations["actions"]["Move"]["actors"]  # indices; the own soldiers are the first units
    places = soldiers.values[walkers.values + np.repeat(soldiers.offsets, walkers.lengths), :2]  # [walkers, 2]
    difference = enemies[walkers.rows(), :, :2] - places[:, None]  # [walkers, N, 2]
    nearest = np.abs(difference).sum(axis=-1).argmin(axis=1) if len(places) else np.zeros(0, np.int64)
    gap = difference[np.arange(len(difference)), nearest]
    along_x = np.abs(gap[:, 0]) > np.abs(gap[:, 1])
    moves = np.where(along_x, np.where(gap[:, 0] > 0, _RIGHT, _LEFT), np.where(gap[:, 1] > 0, _UP, _DOWN))

    shown = observations["actions"]["Attack"]
    attackers, targets = shown["actors"], shown["actees"]
    most = max(1, int(targets.lengths.max(initial=0)))
    health = np.full((len(targets), most), np.inf)  # [B, actees]
    health[targets.rows(), targets.places()] = enemies[
        targets.rows(), targets.values - np.repeat(soldiers.lengths, targets.lengths), 2
    ]
    choices = np.repeat(targets.lengths, attackers.lengths)  # of each attacker
    attacker = np.repeat(np.arange(attackers.total), choices)
    place = np.arange(len(attacker)) - np.repeat(np.cumsum(choices) - choices, choices)
    reachable = np.zeros((attackers.total, most), np.bool_)
    reachable[attacker, place] = shown["mask"].values != 0
    weakest = np.where(reachable, health[attackers.rows()], np.inf).argmin(axis=1)
    return {"Move": Ragged(moves, walkers.lengths), "Attack": Ragged(weakest, attackers.lengths)}


def _upwards(env: Any, mirror: bool) -> NDArray[np.bool_]:
    """Which rows [B] run to y = +0.9: those of red, unless it sees the field turned."""
    red = [name.startswith("red") and not mirror for name in env.seat_entities]
    return np.tile(np.array(red), env.num_envs // len(red))  # row = lane * E + e


def _as_moves(env: Any, choices: NDArray[Any]) -> NDArray[Any]:
    """The chosen directions as actions, also where the team's actions are continuous."""
    if isinstance(env.single_action_space, spaces.Discrete):
        return choices.astype(np.int64)
    return _DIRECTIONS[choices]  # type: ignore[no-any-return]
