"""From a configuration to its plan, with all its names checked.

Of user code, it imports the modules of `imports`, callbacks, loggers, the curriculum, the function of the evaluation,
and rules and generators; no environment and no algorithm.
"""

from __future__ import annotations

from arena import registry
from arena.callbacks import made
from arena.config import Config
from arena.config.schema import CallbackEntry
from arena.errors import ConfigError
from arena.league.custom import check_custom
from arena.plan.build import make_plan
from arena.plan.plan import Plan
from arena.preflight.external import check_external


def checked_plan(config: Config, *, ranks: int | None) -> Plan:
    """The plan of a configuration whose names are known; no environment and no algorithm is imported for it.

    Raises:
        ConfigError: a module of `imports` that cannot be imported; an unknown short name, even if no match uses it; a
            callback, a logger, or a custom rule or generator that cannot be made; what `make_plan` refuses; or what
            games over HTTP or simulators cannot do.
    """
    registry.import_plugins(config.imports)
    registry.check_names(
        {name: entry.make for name, entry in config.envs.items()},
        {name: policy.algorithm for name, policy in config.policies.items()},
        {name: [wrapper for wrapper, _ in entry.wrapped_in] for name, entry in config.envs.items()},
    )
    plan = make_plan(config, ranks=ranks)
    check_external(plan, [match for match in plan.matches if match.game.make in registry.EXTERNAL])
    made(plan.config.callbacks)
    made(plan.config.loggers, "loggers")
    sending = [one for one in map(CallbackEntry.of, plan.config.loggers) if one.class_ in registry.LOGGERS]
    if config.record != "replays" and any("videos" in one.options.get("artifacts", ()) for one in sending):
        raise ConfigError("`artifacts: [videos]` needs `record: replays`", path="loggers")
    if plan.config.curriculum is not None:
        from arena.run.hooks import made_curriculum  # this module is imported by every launcher

        made_curriculum(plan.config.curriculum)
    if config.evaluation is not None:
        from arena.run.hooks import evaluation_function  # as above

        evaluation_function(config.evaluation)
    check_custom(config)
    return plan
