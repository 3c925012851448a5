"""Plays a match with people at pages: `python -m arena.cli.board_games.played`, which reads who plays from its stdin.

server: {"target": "runs/duel", "match": 0, "people": [0], "against": {"1": "red@500"}, "advice": "", ...}
here:   {"kind": "match", "players": [...]}      who sits where
        ...                                      see `page_human`
        {"kind": "over", "results": [...]}       the result, and where the records are
        {"kind": "error", "text": ...}           why there is none
"""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from arena.board.pipes import game_pipe
from arena.cli.evaluate import weights_of
from arena.cli.play.human import configured
from arena.cli.play.match import HumanMatch, human_match, place_for_records, rated_game, version_of
from arena.config import load_config
from arena.config.schema import Config, PolicyConfig
from arena.diagnostics.start_folder import started_here
from arena.errors import ArenaError, located
from arena.errors import shown as shown_path
from arena.preflight.external import refuse_external
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.registry import import_plugins
from arena.replay.format import Manifest
from arena.replay.verify import PICTURES, TEXT, rendering, without_screen
from arena.roles.protocol import Failed
from arena.run.console import Output
from arena.run.loop import run_single_process
from arena.run.prepare import prepare
from arena.terminal.display import silent_display

if TYPE_CHECKING:
    from arena.league.human_games import RatedGame

_PERSON, _GAME = "arena.cli.board_games.page_human:PageHuman", "arena.cli.board_games.page_human:PageGame"


class _PageOutput(Output):
    """Says on the pages why there is no result."""

    def say(self, text: str) -> None:
        """Nothing: what belongs to the result is in `over`."""

    def fail(self, failure: Failed) -> None:
        """Writes why there is no result."""
        game_pipe().say({"kind": "error", "text": failure.message})


def play(begin: dict[str, Any]) -> None:
    """Plays one episode, and says how it has ended."""
    without_screen()
    folder = RunFolder.of_target(begin["target"])
    config = load_config(begin["target"] if folder is None else folder.config)
    import_plugins(config.imports)
    with located(source=begin["target"]):
        frozen = weights_of(config, folder, "" if folder is None else "last").config
        refuse_external(frozen)
        game = _match(begin, frozen, folder)
        rated = rated_game(folder, config, game) if begin["rated"] else None
    seed = int(begin["seed"]) if begin["seed"] else secrets.randbelow(2**31)
    made = msgspec.structs.replace(game.config, seed=seed)
    with tempfile.TemporaryDirectory(prefix="arena-play-") as scratch:
        place = Path(scratch) / "run" if folder is None else place_for_records(folder)
        prepared = replace(prepare(made, ranks=1, run_dir=str(place)), episodes=1, greedy=not begin["sample"])
        _introduce(game)
        status = run_single_process(
            prepared,
            lambda _run, _scoreboard: None,
            silent_display(),
            output=_PageOutput(),
            watched=False,
            at_once=(signal.SIGINT, signal.SIGTERM),
        )
        if status == 0:
            _say_over(RunFolder(place), rated, kept=folder is not None)
        elif folder is not None:
            shutil.rmtree(place, ignore_errors=True)  # nothing of it is a result


def _match(begin: dict[str, Any], frozen: Config, folder: RunFolder | None) -> HumanMatch:
    """The match, its game with pictures, and its people with what they are told of policies."""
    advice = None
    if adviser := begin["advice"]:
        advice = _as_advisor(adviser, version_of(frozen, folder, adviser, path="advice"))
        configured(adviser, advice)
    game = human_match(
        frozen,
        folder,
        match=begin["match"],
        seats=begin["people"],
        against=[f"{seat}={name}" for seat, name in begin["against"].items()],
        algorithm=_PERSON,
        options={"episodes": 1, "advice": advice, "named": True, "seats": {}, "judges": []},
    )
    human = next(player.policy for player in game.players if player.human)
    others = dict.fromkeys(player.policy for player in game.players if not player.human)
    policies = dict(game.config.policies)
    options = {
        **policies[human].options,
        "seats": {entity: player.seat for player in game.players for entity in player.entities},
        "judges": [_as_advisor(name, policies[name]) for name in others],
    }
    policies[human] = msgspec.structs.replace(policies[human], options=options)
    ((name, env),) = game.config.envs.items()
    inner = env.kwargs["kwargs"]
    own = {"make": env.kwargs["make"], "kwargs": inner, "imports": frozen.imports, "screen": env.screen}
    modes = rendering(Manifest(round=0, match=0, env=name, wrappers=(), entities=(), **own)).modes
    mode = next((one for one in (PICTURES, TEXT) if one in modes), None)
    kwargs = {**env.kwargs, "kwargs": inner if mode is None else {**inner, "render_mode": mode}}
    envs = {name: msgspec.structs.replace(env, make=_GAME, kwargs=kwargs)}
    return game._replace(config=msgspec.structs.replace(game.config, policies=policies, envs=envs))


def _as_advisor(name: str, policy: PolicyConfig) -> dict[str, Any]:
    return {"name": name, "algorithm": policy.algorithm, "options": dict(policy.options), "load": policy.load}


def _introduce(game: HumanMatch) -> None:
    colors = dict(zip(game.interface.entities, game.interface.colors, strict=False))
    players = [{**player._asdict(), "color": colors.get(player.entities[0], "")} for player in game.players]
    game_pipe().say({"kind": "match", "env": next(iter(game.config.envs)), "players": players})


def _say_over(played: RunFolder, rated: RatedGame | None, *, kept: bool) -> None:
    (record,) = JournalReader(played.episodes).lines(EpisodeRecord)
    game_pipe().say(
        {
            "kind": "over",
            "episode": record,
            "kept": shown_path(played.path) if kept else "",
            "recorded": kept and played.replays.is_dir(),
            "rated": "" if rated is None else rated.keep(played),
        }
    )


@started_here()
def main() -> None:
    """Plays what the first line of stdin says."""
    pipe = game_pipe()
    try:
        play(pipe.receive(wait=True) or {})
    except ArenaError as error:
        pipe.say({"kind": "error", "text": str(error)})


if __name__ == "__main__":
    main()
