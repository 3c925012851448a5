"""Games in the published interface of entities: an `Environment` gives `Observation`s and gets action objects.

    class Guess(Environment):
        def obs_space(self): return ObsSpace(entities={"Card": Entity(["color"])})
        def action_space(self): return {"pick": SelectEntityActionSpace()}
        def reset(self): ...                 an Observation
        def act(self, actions): ...          the next one

The arena plays such a class as `make: "package.module:Guess"`. Its spaces are a `UnitSpace` and `UnitActions`; the
interface's word for a unit is entity. `ListEnv` steps several of them without a run.
"""

from arena.entity_env.actions import (
    Action,
    ActionMask,
    ActionName,
    ActionSpace,
    CategoricalAction,
    CategoricalActionMask,
    CategoricalActionSpace,
    EntityID,
    EntityName,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    SelectEntityAction,
    SelectEntityActionMask,
    SelectEntityActionSpace,
)
from arena.entity_env.environment import Entity, Environment, EpisodeStats, Observation, ObsSpace
from arena.entity_env.list_env import (
    EnvList,
    ListEnv,
    RaggedBufferBool,
    RaggedBufferF32,
    RaggedBufferI64,
    VecActionMask,
    VecCategoricalActionMask,
    VecObs,
    VecSelectEntityActionMask,
)

__all__ = [
    "Action",
    "ActionMask",
    "ActionName",
    "ActionSpace",
    "CategoricalAction",
    "CategoricalActionMask",
    "CategoricalActionSpace",
    "Entity",
    "EntityID",
    "EntityName",
    "EnvList",
    "Environment",
    "EpisodeStats",
    "GlobalCategoricalAction",
    "GlobalCategoricalActionMask",
    "GlobalCategoricalActionSpace",
    "ListEnv",
    "ObsSpace",
    "Observation",
    "RaggedBufferBool",
    "RaggedBufferF32",
    "RaggedBufferI64",
    "SelectEntityAction",
    "SelectEntityActionMask",
    "SelectEntityActionSpace",
    "VecActionMask",
    "VecCategoricalActionMask",
    "VecObs",
    "VecSelectEntityActionMask",
]
