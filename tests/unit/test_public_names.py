"""The public names and their modules, pinned so that a rename cannot remove one unnoticed."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re

import pytest

import readme

PUBLIC = {
    "arena": [
        *("ArenaError", "BatchedEnv", "BudgetReached", "Callback", "ConfigError", "Deadlock", "EnvContext", "Event"),
        "Frame",
        *("GroupError", "Interface", "PolicyScore", "ProtocolError", "RunFailed", "RunResult", "RunStopped", "Step"),
        *("Choice", "GlobalChoice", "Ragged", "Select", "Trainer", "UnitActions", "UnitSpace", "__version__", "train"),
        *("register_algorithm", "register_callback", "register_environment", "register_logger", "register_wrapper"),
    ],
    "arena.entity_env": [
        *("Action", "ActionMask", "ActionName", "ActionSpace", "CategoricalAction", "CategoricalActionMask"),
        *("CategoricalActionSpace", "Entity", "EntityID", "EntityName", "EnvList", "Environment", "EpisodeStats"),
        *("GlobalCategoricalAction", "GlobalCategoricalActionMask", "GlobalCategoricalActionSpace", "ListEnv"),
        *("ObsSpace", "Observation", "RaggedBufferBool", "RaggedBufferF32", "RaggedBufferI64", "SelectEntityAction"),
        *("SelectEntityActionMask", "SelectEntityActionSpace", "VecActionMask", "VecCategoricalActionMask", "VecObs"),
        "VecSelectEntityActionMask",
    ],
    "arena.external": [
        *("Actor", "Agent", "Answers", "ExternalClosed", "ExternalEnv", "ExternalError", "ExternalGames", "Forward"),
        *("PolicyClient", "PollEnv", "PollResult", "RemoteBuffer", "RemoteModel", "Slots"),
    ],
    "arena.external.shared_memory": [
        *("ActionError", "Command", "Driver", "GroupSpec", "LayoutError", "LinkError", "NoRoom", "PeerClosed"),
        *("PeerGone", "PeerSilent", "Rows", "Simulator", "UnsafeFile", "VersionError", "decode", "join_messages"),
        "split_messages",
    ],
    "arena.game": ["BatchedEnv", "Frame", "Interface", "Step"],
    "arena.callbacks": ["Callback", "StartedRun"],
    "arena.league": ["LeagueView"],
    "arena.testing": [
        *("ContractBroken", "Played", "check_batched_env", "check_entity_env", "check_external_games"),
        *("check_pairings", "check_rule"),
    ],
    "arena.experiment": ["Experiment", "Outcome", "Trial", "open_experiment", "run_experiments"],
    "arena.dataset": ["Batch", "Episode", "MatchSamples", "Samples", "open_dataset", "write_samples"],
    "arena.replay": ["frames"],
    "arena.records": ["read_results"],
    "arena.trainer": ["Player", "Trainer"],
    "arena.serving": ["OnnxModel", "Policy", "load_model", "load_policy"],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_pinned_and_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    assert [one for one in module.__all__ if not getattr(module, one).__doc__] == []


@pytest.mark.parametrize("name", ["arena", "arena.dataset", "arena.external", "arena.replay"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        importlib.import_module(name).nothing  # noqa: B018


@pytest.mark.parametrize("page", readme.PAGES.values(), ids=lambda page: page.path)
def test_documented_code_imports_only_public_modules(page: readme.Page) -> None:
    nodes = [node for body in page.blocks("python") for node in ast.walk(ast.parse(body))]
    imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    private = {name for name in imported if name.split(".")[0] == "arena"} - PUBLIC.keys()
    assert sorted(private) == []


def test_names_in_messages_and_pages_exist() -> None:
    files = [file for package in ("arena", "policies", "envs") for file in (readme.ROOT / package).rglob("*.py")]
    texts = [re.sub(r"^ *(?:from|import) .*", "", file.read_text(encoding="utf-8"), flags=re.M) for file in files]
    texts += [page.text for page in readme.PAGES.values()]
    names = {name for text in texts for name in re.findall(r"(?<![\w/.-])arena(?:\.[A-Za-z_]\w*)+", text)}
    assert {"arena.serving.load_policy", "arena.replay.frames"} <= names
    assert [name for name in sorted(names) if not _exists(name)] == []


def _exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True
