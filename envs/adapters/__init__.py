"""Adapters that convert games of other interfaces to `arena.game.api.BatchedEnv`.

    adapt(factory, kwargs, lanes)        any of the interfaces below, or a natively batched class
    gymnasium_factory("CartPole-v1")     makes instances of a registered Gymnasium id
    gymnasium_vec_factory("CartPole-v1")       makes vector environments of it
    envpool_factory("Pong-v5")                 makes pools of a game of EnvPool
    pettingzoo_factory("mpe2.simple_tag_v3")   makes instances of a PettingZoo module's game

One module per interface turns a single instance into a `LaneGame` (one lane): `gymnasium_env`, `pettingzoo_parallel`,
`pettingzoo_aec`, `dict_env`, `list_env` (the middle three use `agents`); `observations` lets each of them give
observations of `arena.entity_env`. `batch` combines several `LaneGame`s into one `BatchedEnv`; `entity_env` makes one
of games of `arena.entity_env`, `vector_env` of a vector environment (`envpool_env` makes one of a pool of EnvPool), and
`jax_env` of a game in JAX. `wrappers` holds the wrappers of a configuration, `batched_wrappers` those around games
that are not Gymnasium environments.
"""

from envs.adapters.adapt import adapt
from envs.adapters.sources import envpool_factory, gymnasium_factory, gymnasium_vec_factory, pettingzoo_factory

__all__ = ["adapt", "envpool_factory", "gymnasium_factory", "gymnasium_vec_factory", "pettingzoo_factory"]
