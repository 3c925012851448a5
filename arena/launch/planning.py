"""From a configuration to its plan, with all names in it checked and nothing imported for them."""

from __future__ import annotations

from arena import registry
from arena.config import Config
from arena.plan import Plan, make_plan


def checked_plan(config: Config, *, ranks: int | None) -> Plan:
    """The plan of a configuration whose names are known ones; nothing is imported or made for it.

    Raises:
        ConfigError: a short name of an environment or an algorithm that nothing has, even of one that nobody plays; or
            what `make_plan` refuses.
    """
    registry.check_names(
        {name: entry.make for name, entry in config.envs.items()},
        {name: policy.algorithm for name, policy in config.policies.items()},
    )
    return make_plan(config, ranks=ranks)
