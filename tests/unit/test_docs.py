"""README, docs and pictures agree with the code; the public names are pinned."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import pkgutil
import re
import runpy
import shlex
from pathlib import Path

import gymnasium
import msgspec
import pytest
import yaml

import readme
from arena import registry
from arena.cli.main import command_parser
from arena.config import Config, matches, parse_config, schema
from arena.external.http import HttpGames
from arena.external.http_sessions import STATUSES
from arena.group.group import Group

ALL = [*readme.PAGES, "CONTRIBUTING.md", "CHANGELOG.md", "configs/examples/README.md"]
WRITTEN = [page for page in readme.PAGES.values() if "Written by `make reference`" not in page.text]
PERSONS = re.compile(r"\b(?:no|every|some|any)body\b|\b(?:every|some|any)one\b|\bwhoever\b", re.IGNORECASE)


def test_readme_has_at_most_220_lines() -> None:
    assert len(readme.README.text.splitlines()) <= 220


@pytest.mark.parametrize("page", readme.DOCS, ids=lambda page: page.path)
def test_page_opens_with_an_example(page: readme.Page) -> None:
    opening = re.split(r"^## ", page.text, flags=re.MULTILINE)[0]
    assert re.search(r"^```(?:sh|console|python|yaml)$", opening, re.MULTILINE)


@pytest.mark.parametrize("path", ALL)
def test_every_link_leads_somewhere(path: str) -> None:
    page = readme.Page(path)
    for link in page.links():
        file, _, anchor = link.partition("#")
        target = (readme.ROOT / path).parent / file if file else readme.ROOT / path
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in readme.Page(target.resolve().relative_to(readme.ROOT).as_posix()).anchors(), link


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    navigation = yaml.safe_load((readme.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = [
        page for entry in navigation for part in entry.values() for page in ([part] if isinstance(part, str) else part)
    ]
    assert sorted(f"docs/{page}" for page in listed) == sorted(page.path for page in readme.DOCS)


@pytest.mark.parametrize("page", readme.PAGES.values(), ids=lambda page: page.path)
def test_every_python_block_compiles(page: readme.Page) -> None:
    for body in page.blocks("python"):
        compile(body, page.path, "exec")


@pytest.mark.parametrize("page", readme.PAGES.values(), ids=lambda page: page.path)
def test_every_configuration_is_valid(page: readme.Page) -> None:
    for body in page.blocks("yaml"):
        data = yaml.safe_load(body)
        if "ticks" in data:
            assert parse_config(data, source="page.yaml").ticks == data["ticks"]


@pytest.mark.slow
def test_every_command_parses_and_names_an_existing_configuration() -> None:
    commands = [shlex.split(command)[1:] for page in readme.PAGES.values() for command in page.commands()]
    complete = [
        words for words in commands if words[1:] and not re.match(r"-|RUN|CONFIG|COMMAND|NAME|\.\.\.", words[1])
    ]
    assert len(complete) > 40
    parser = command_parser()
    for words in complete:
        if "..." not in words and "POLICY" not in words:
            path = getattr(parser.parse_args(words), "config", "")
            assert not path.startswith("configs/") or (readme.ROOT / path).is_file(), path


def test_pages_have_no_anonymous_persons() -> None:
    assert [(page.path, found[0]) for page in WRITTEN for found in PERSONS.finditer(page.prose)] == []


MOST_WORDS = 25


def words(sentence: str) -> int:
    return len(re.findall(r"[\w./'-]*\w", sentence))


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.path)
def test_page_can_be_scanned(page: readme.Page) -> None:
    assert [sentence for sentence in page.sentences() if words(sentence) > MOST_WORDS] == []
    assert len(page.text.splitlines()) <= 350


def test_sentences_are_those_of_text(tmp_path: Path) -> None:
    text = "# No heading\n\nOne `a. b` [two three](x.md).\nFour (A et al. 2019): five\n\n- six; 7.5\n- 8\n\n| no |\n"
    (tmp_path / "page.md").write_text(text)
    found = list(readme.Page(str(tmp_path / "page.md")).sentences())
    assert found == ["One code two three.", "Four (A et al 2019):", "five", "six; 7.5", "8"]
    assert [words(sentence) for sentence in found] == [4, 5, 1, 2, 1]


LEAGUES = readme.PAGES["docs/leagues.md"]


@pytest.mark.parametrize("rule", matches.RULES)
def test_every_option_of_a_rule_is_named(rule: str) -> None:
    options = LEAGUES.table("Matchmaking")[rule][0]
    assert [key for key in matches.RULES[rule].__struct_encode_fields__ if f"`{key}`" not in options] == []


def test_every_generator_and_each_of_its_keys_is_named() -> None:
    assert [kind for kind in matches.GENERATORS if f"`{kind}`" not in LEAGUES.section("Who meets whom")] == []
    told = LEAGUES.section("Who meets whom") + LEAGUES.section("Matchmaking")
    keys = {key for kind in matches.GENERATORS.values() for key in kind.__struct_encode_fields__}
    assert [key for key in sorted(keys) if f"`{key}`" not in told and f"{key}:" not in told] == []


ENVIRONMENTS = readme.PAGES["docs/environments.md"]


@pytest.mark.parametrize("name", registry.ENVIRONMENTS)
def test_every_option_of_a_built_in_game_is_named_with_its_default(name: str) -> None:
    parameters = inspect.signature(registry.environment_factory(name)).parameters
    described = ENVIRONMENTS.table("What `make` may name")[name][1]
    for option, parameter in parameters.items():
        if option not in ("lanes", "render_mode"):  # which all have
            assert f"`{option}`" in described
            if isinstance(parameter.default, int):
                assert f"`{option}` {str(parameter.default).lower()}" in described


def test_calls_of_the_group_are_named_with_their_signatures() -> None:
    section = readme.PAGES["docs/writing-algorithms.md"].section("The group")
    calls = [
        call for call in re.findall(r"`(\w+)(\([^`]*\))`", section) if hasattr(Group, call[0]) and "..." not in call[1]
    ]
    assert len(calls) > 10
    for name, written in calls:
        _, *given = inspect.signature(getattr(Group, name)).parameters.values()  # without `self`
        plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in given]
        assert written == str(inspect.Signature(plain)), name


def test_every_wrapper_and_algorithm_is_named() -> None:
    assert set(registry.WRAPPERS) <= set(readme.PAGES["docs/wrappers.md"].table("Wrappers"))
    table = readme.PAGES["docs/algorithms/index.md"].prose
    assert [name for name in registry.ALGORITHMS if f"`{name}`" not in table] == []
    assert [name for name in registry.ALGORITHMS if f"`{name}`" not in readme.README.section("Algorithms")] == []


def test_configuration_keys_are_described() -> None:
    told = "".join(page.prose for page in readme.DOCS if page.path != "docs/configuration/keys.md")
    structs = (Config, schema.Env, schema.Policy, matches.Match, schema.Evaluation)
    keys = [key for struct in structs for key in struct.__struct_encode_fields__ if key not in ("name", "env")]
    assert [key for key in keys if f"`{key}" not in told] == []


HTTP = readme.PAGES["docs/http-games.md"]


def test_every_key_of_http_is_described_with_its_default() -> None:
    rows = HTTP.table("Games over HTTP")
    for field in msgspec.structs.fields(HttpGames.Options):
        key = field.name
        (cells,) = [row for keys, row in rows.items() if key in re.findall(r"\w+", keys)]
        default = {None: "null", False: "false", (): "none"}.get(field.default, field.default)
        if key not in ("entities", "like", "config"):
            assert str(default).removesuffix(".0") in re.findall(r"[\w.]+", cells[0]), key


def test_every_status_and_code_of_http_is_described() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", HTTP.section("Requests and answers"), re.MULTILINE)
    told = {(int(status), code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert told == {(status, code) for status, codes in STATUSES.items() for code in codes}


def test_every_member_of_the_group_is_described() -> None:
    members = [name for name, _ in inspect.getmembers(Group) if not name.startswith("_")]
    described = readme.PAGES["docs/writing-algorithms.md"].section("The group")
    assert [name for name in members if not re.search(rf"`{name}\b", described)] == []


def test_every_package_of_the_arena_is_in_the_architecture() -> None:
    shown = readme.PAGES["docs/development/architecture.md"].section("Packages")
    rooms = [path.name for path in (readme.ROOT / "arena").iterdir() if (path / "__init__.py").is_file()]
    assert [room for room in sorted(rooms) if f"`{room}`" not in shown] == []


@pytest.mark.parametrize("name", ["architecture", "adding", "testing"])
def test_every_file_that_a_page_for_developers_names_exists(name: str) -> None:
    page = readme.PAGES[f"docs/development/{name}.md"]
    named = re.findall(r"`((?:arena|policies|envs|tests|diagrams)/[\w/.]+)`", page.prose)
    assert len(named) >= 5
    assert [path for path in named if not Path(readme.ROOT, path).exists()] == []


def test_every_class_that_the_architecture_names_exists() -> None:
    named = set(re.findall(r"`([A-Z]\w*[a-z]\w*)`", readme.PAGES["docs/development/architecture.md"].prose))
    assert len(named) >= 5
    sources = [
        path.read_text(encoding="utf-8")
        for name in ("arena", "policies")
        for path in Path(readme.ROOT, name).rglob("*.py")
    ]
    assert [name for name in named if not any(f"class {name}" in source for source in sources)] == []


# The public names and their modules, pinned so that a rename cannot remove one unnoticed


PUBLIC = {
    "arena": [
        *("ArenaError", "BatchedEnv", "BudgetReached", "Callback", "ConfigError", "Deadlock", "EnvContext", "Event"),
        *("Best", "CallbackEntry", "Config", "Decided", "Env", "Evaluation", "Evolution", "Exploiters", "Fictitious"),
        *("Frame", "Gate", "Gauntlet", "Knockout", "League", "Match", "Matchmaking", "Mixtures", "Nash", "OwnRule"),
        *("Pairings", "PastSelves", "Perturb", "Policy", "Reset", "Results", "RoundRobin", "Snapshots", "Swiss"),
        *(
            "Run",
            "Table",
            "TickRules",
            "Uncertainty",
            "evaluate",
            "export",
            "export_hub",
            "load_policy",
            "open_run",
            "plan_run",
            "standings",
        ),
        *("ExportError", "TournamentResult", "WriteError", "tournament"),
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
        *("Actor", "Agent", "Answers", "Ask", "End", "ExternalClosed", "ExternalEnv", "ExternalError", "ExternalGames"),
        *("ExternalMatch", "Forward", "PolicyClient", "PollEnv", "PollResult", "RemoteBuffer", "RemoteModel", "Slots"),
    ],
    "arena.external.shared_memory": [
        *("ActionError", "Command", "Driver", "GroupSpec", "LayoutError", "LinkError", "NoRoom", "PeerClosed"),
        *("PeerGone", "PeerSilent", "Rows", "Simulator", "UnsafeFile", "VersionError", "decode", "join_messages"),
        "split_messages",
    ],
    "arena.game": ["BatchedEnv", "Chance", "Decision", "End", "Frame", "Interface", "Step"],
    "arena.callbacks": ["Callback", "StartedRun"],
    "arena.league": ["LeagueView"],
    "arena.testing": [
        *("ContractBroken", "Played", "check_batched_env", "check_entity_env", "check_external_games"),
        *("check_pairings", "check_rule"),
    ],
    "arena.experiment": ["Combination", "Experiment", "Outcome", "Trial", "open_experiment", "run_experiments"],
    "arena.dataset": [
        *("Batch", "EntitySamples", "Episode", "MatchSamples", "Samples", "open_dataset", "to_minari", "write_samples"),
    ],
    "arena.replay": ["ReplayDiffers", "frames"],
    "arena.records": ["read_results"],
    "arena.trainer": ["Player", "Trainer"],
    "arena.serving": [
        *("EngineReport", "Export", "ExportReport", "OnnxModel", "OutputFigures", "Policy"),
        *("load_model", "load_policy"),
    ],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_pinned_and_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    assert [one for one in module.__all__ if not getattr(module, one).__doc__] == []


@pytest.mark.parametrize("name", [name for name in PUBLIC if "." in name])
def test_public_module_loads_on_access(name: str) -> None:
    parent, _, module = name.rpartition(".")
    assert importlib.import_module(parent).__getattr__(module) is importlib.import_module(name)


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


API = [page for page in readme.DOCS if page.path.startswith("docs/api/")]
SHOWN = [name for page in API for name in re.findall(r"^::: (\S+)$", page.text, re.MULTILINE)]
GIVEN = [f"arena.group.group.{name}" for name in ("Group", "Moments")] + [
    f"arena.seat.{name}" for name in ("gym.EnvProxy", "vector.VectorEnvProxy", "parallel.ParallelEnvProxy")
]
"""Classes that an algorithm is given objects of; they are in no public module, as it imports none of them."""


def test_every_public_name_is_on_a_page_of_the_reference_once() -> None:
    public = {(module, name) for module, names in PUBLIC.items() for name in names} - {("arena", "__version__")}
    top = importlib.import_module("arena")
    repeated = {
        (module, name)
        for module, name in public
        if module != "arena" and getattr(top, name, None) is getattr(importlib.import_module(module), name)
    }
    assert sorted(SHOWN) == sorted([*map(".".join, public - repeated), *GIVEN])
    assert [name for name in SHOWN if not _exists(name)] == []


@pytest.mark.parametrize("page", API, ids=lambda page: page.path)
def test_every_name_of_the_reference_is_in_an_example(page: readme.Page) -> None:
    code = "".join(body for each in readme.DOCS for body in each.blocks("python"))
    shown = set(re.findall(r"^::: (\S+)$", page.text, re.MULTILINE)) - {*GIVEN}
    names = [name.rpartition(".")[2] for name in shown]
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


@pytest.mark.parametrize("name", SHOWN)
def test_every_field_and_method_of_the_reference_is_described(name: str) -> None:
    found = pkgutil.resolve_name(name)
    if not isinstance(found, type) or not found.__module__.startswith("arena"):
        return
    source, told = inspect.getsource(found), inspect.getdoc(found) or ""
    commented = re.findall(r'^    (\w+): .*(?:  # \S|\n    """)', source, re.MULTILINE)
    listed = re.findall(r"^    (\w+): ", told, re.MULTILINE)
    has_fields = issubclass(found, (tuple, msgspec.Struct)) or dataclasses.is_dataclass(found)
    fields = [one for one, kind in inspect.get_annotations(found).items() if has_fields and "ClassVar" not in str(kind)]
    methods = [name for name, one in vars(found).items() if inspect.isroutine(one) or isinstance(one, property)]
    lacking = [one for one in methods if not inspect.getdoc(getattr(found, one))]
    lacking += [one for one in fields if one not in {*commented, *listed}]
    assert [one for one in lacking if not one.startswith("_")] == []


def test_every_error_that_a_docstring_raises_is_public() -> None:
    public, lacking = {name.rpartition(".")[2] for name in SHOWN} | {*dir(builtins), *gymnasium.error.__dict__}, []
    for name in SHOWN:
        found = pkgutil.resolve_name(name)
        members = [one for key, one in vars(found).items() if key[0] != "_"] if isinstance(found, type) else []
        for each in (found, *(getattr(one, "fget", None) or one for one in members)):
            text = (inspect.getdoc(each) or "") if callable(each) or isinstance(each, classmethod) else ""
            raised = re.findall(r"^    ([A-Z]\w+):", text.partition("Raises:\n")[2], re.MULTILINE)
            lacking += [f"{name}: {one}" for one in raised if one not in public]
    assert lacking == []


def test_messages_of_troubleshooting_are_said() -> None:
    page = readme.PAGES["docs/troubleshooting.md"].text
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    messages = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    sources = [file.read_text() for package in ("arena", "policies") for file in (readme.ROOT / package).rglob("*.py")]
    said = re.sub(r'"\s+f?"', "", "".join(sources)).replace("{what}", "environment") + "unknown algorithm"
    assert len(messages) >= 20
    assert [text for text in messages if text not in said] == []


def test_names_in_messages_and_pages_exist() -> None:
    files = [file for package in ("arena", "policies", "envs") for file in (readme.ROOT / package).rglob("*.py")]
    texts = [re.sub(r"^ *(?:from|import) .*", "", file.read_text(encoding="utf-8"), flags=re.M) for file in files]
    texts += [page.text for page in readme.PAGES.values()]
    names = {name for text in texts for name in re.findall(r"(?<![\w/.-])arena(?:\.[A-Za-z_]\w*)+", text)}
    assert {"arena.serving.load_policy", "arena.replay.frames"} <= names
    assert [name for name in sorted(names) if not _exists(name)] == []


def _exists(name: str) -> bool:
    if (readme.ROOT / name).is_file():  # arena.def
        return True
    if name in {f"arena.{kind}s" for kind in registry._OFFERED}:  # a group of entry points
        return True
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


# The picture of the imports is true; the others, which are edited by hand, are shown and well formed


DIAGRAMS = readme.ROOT / "diagrams"
NAMES = (
    *("environment_process", "workers", "proxy", "match_2v2", "round_robin", "legs", "rounds", "external"),
    *("ragged_message", "hand_over", "imports"),
)


@pytest.mark.slow
def test_picture_of_the_imports_is_up_to_date() -> None:
    drawn = runpy.run_path(str(DIAGRAMS / "draw.py"))["imports"]()
    assert drawn == (DIAGRAMS / "imports.svg").read_text(encoding="utf-8"), "run `make diagrams`"


def test_pages_show_every_picture() -> None:
    shown = "".join(page.text for page in readme.PAGES.values())
    assert [name for name in NAMES if f"diagrams/{name}.svg)" not in shown] == []
    assert {path.stem for path in Path(DIAGRAMS).glob("*.svg")} == set(NAMES)


def test_every_column_of_the_pages_of_a_run_is_explained() -> None:
    page = (readme.ROOT / "docs" / "board.md").read_text()
    cells = {
        part.strip() for row in re.findall(r"^\| (.*?) \|", page, re.MULTILINE) for part in re.split(r"[,;] ", row)
    }
    runs, report = (
        (readme.ROOT / "arena" / path).read_text()
        for path in ("board/templates/runs.html", "report/templates/report.html")
    )
    titles = re.findall(r'\("\w+", "([^"]+)", "n?"\)', runs)
    titles += re.findall(r'<th scope="col"[^>]*>([^<{}]+)</th>', report)
    common = {"name", "state", "policy", "algorithm", "episodes", "tick", "folder", "matches"}  # say what they are
    assert [*dict.fromkeys(t for t in titles if not {*re.split(r", ", t)} <= cells | common)] == []
    assert {"size", "counted", "copy of"} <= {*titles}
