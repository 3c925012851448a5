"""A seat of a match: its messages (`layout`, `ragged_parts`), their two ends (`client`, `server`), and the proxies.

A proxy is the environment that an algorithm steps, while the game runs in another process: `gym`, `vector` and
`parallel` are the three faces, each holds a `SeatClient`. `play` plays with a function from observations to actions.
"""
