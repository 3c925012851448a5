"""The games that come with the arena, computed for all lanes at once, and the adapters for everybody else's.

`touchdown`, `cover` and `matrix` are written in the form of `arena.game.api.BatchedEnv`; `adapters` brings
Gymnasium, PettingZoo and plain list environments to that form.
"""
