"""The built-in games, and adapters for other interfaces.

`touchdown`, `cover`, `matrix`, `poker`, `skirmish`, `minesweeper` and `multi_snake` implement
`arena.game.api.BatchedEnv`: they compute all lanes at once. `unit_tasks` are small games of `arena.entity_env`;
`adapters` convert games of Gymnasium, PettingZoo and other interfaces.
"""
