"""Checks for authors of games, of connections to external games, and of rules and generators of leagues.

`check_batched_env` checks a game against the contract in `arena.game.api`:

    def test_my_game_keeps_the_contract():
        check_batched_env(MyGame(lanes=3))

`check_external_games` checks a kind of connection against `arena.external.ExternalGames`:

    def test_my_connection_keeps_the_contract():
        check_external_games(MyGames, play_one_game)

`check_rule` and `check_pairings` check a rule of matchmaking and a generator of matches, see `arena.league.custom`:

    def test_my_rule_keeps_the_contract():
        check_rule(lambda: MyRule(elo=50))

`check_entity_env` checks a game of the interface in `arena.entity_env`:

    def test_my_units_keep_the_contract():
        check_entity_env("my_game:MyGame")

All raise `ContractBroken` at the first breach.
"""

from arena.testing.batched_env import ContractBroken, check_batched_env, check_entity_env
from arena.testing.external_games import Played, check_external_games
from arena.testing.leagues import check_pairings, check_rule

__all__ = [
    "ContractBroken",
    "Played",
    "check_batched_env",
    "check_entity_env",
    "check_external_games",
    "check_pairings",
    "check_rule",
]
