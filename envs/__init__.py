"""The built-in games, computed for all lanes at once, and adapters for other interfaces.

`touchdown`, `cover` and `matrix` implement `arena.game.api.BatchedEnv`; `adapters` convert Gymnasium, PettingZoo and
plain list environments to it.
"""
