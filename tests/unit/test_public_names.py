"""What users import: these names, from these modules, and nothing that a rename takes away unseen."""

from __future__ import annotations

import importlib

import pytest

PUBLIC = {
    "arena": [
        *("ArenaError", "BatchedEnv", "BudgetReached", "Callback", "ConfigError", "Deadlock", "Event", "Frame"),
        *("GroupError", "Interface", "PolicyScore", "ProtocolError", "RunFailed", "RunResult", "RunStopped", "Step"),
        *("__version__", "train"),
    ],
    "arena.game": ["BatchedEnv", "Frame", "Interface", "Step"],
    "arena.callbacks": ["Callback", "StartedRun"],
    "arena.testing": ["ContractBroken", "check_batched_env"],
    "arena.dataset": ["Episode", "MatchSamples", "Samples", "open_dataset"],
    "arena.serving": ["Policy", "load_policy"],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_pinned_and_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    assert [one for one in module.__all__ if not getattr(module, one).__doc__] == []


@pytest.mark.parametrize("name", ["arena", "arena.dataset"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        importlib.import_module(name).nothing  # noqa: B018
