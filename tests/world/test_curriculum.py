"""A curriculum changes games, options and learners between two legs; interruptions do not change the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_results_in_runs import LEARNER, RANDOM, left, train

from arena import evaluate
from arena.cli.main import main
from arena.config import Config, parse_config
from arena.config.yaml import dump
from arena.errors import ConfigError
from arena.league.sources import Source
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.replay.reader import read_replays
from arena.replay.verify import verify
from arena.roles.run import Leg
from arena.run import hooks
from arena.run.planning import checked_plan
from fakes import all_equal
from in_process import NOTES, one_match
from slow_results import json_lines, without_clock
from working_folder import working_directory

LEG, START = 40, 10
PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}
LONGER: dict[str, Any] = one_match(
    {"make": "touchdown"},
    {"blue": PPO, "red": RANDOM},
    **{"ticks": 8 * LEG, "seed": 5, "checkpoint_every": LEG, "match": {"lanes": 2}},
    curriculum={"class": "curricula:Longer", "options": {"start": START}},
    results={"smoothing": 1},
)


def weights(run: Path, tick: int) -> bytes | None:
    path = checkpoint.path_of(run / "checkpoints" / "blue", tick)
    return path.read_bytes() if path.exists() else None


def played_with(changes: list[Any]) -> Iterator[int]:
    """`max_steps` of each leg, by the lines of changes.jsonl."""
    steps = 0
    for line in changes:
        steps = line["set"].get("envs.game.kwargs.max_steps", steps)
        yield steps


@pytest.mark.parametrize(
    ("leg", "ticks", "start", "longest"), [(40, 320, 10, 40), pytest.param(1200, 9600, 50, 500, marks=pytest.mark.long)]
)
def test_interrupted_run_with_longer_games_leaves_the_same_bytes(
    leg: int, ticks: int, start: int, longest: int, tmp_path: Path
) -> None:
    longer = {"class": "curricula:Longer", "options": {"start": start}}
    data = {**LONGER, "ticks": ticks, "checkpoint_every": leg, "results": {"every": leg, "smoothing": 1}}
    data |= {"curriculum": longer, "record": "replays"}
    whole = train(data, tmp_path / "whole")
    changes = json_lines(whole / "changes.jsonl")
    assert [line["tick"] for line in changes] == list(range(0, ticks, leg))
    steps = [
        line["set"]["envs.game.kwargs.max_steps"] for line in changes if "envs.game.kwargs.max_steps" in line["set"]
    ]
    assert steps == [min(500, start * 2**number) for number in range(len(steps))] and steps[-1] >= longest
    lengths = [line["length"] for line in json_lines(whole / "episodes.jsonl") if "cut" not in line]
    assert max(lengths[:4]) == start and max(lengths) >= longest / 2
    assert [note for note in NOTES if note[0] == "changes"] == [("changes", tick) for tick in range(leg, ticks, leg)]

    broken = train({**data, "ticks": leg}, tmp_path / "broken")
    for tick in range(leg, ticks, leg):  # ended at every boundary, and once more, as if killed in the leg after it
        train({**data, "ticks": tick + leg}, broken, resume=True)
        boundary.discard_after(RunFolder(broken), tick)
        train({**data, "ticks": tick + leg}, broken, resume=True)
        assert NOTES[0] == ("resume", list(range(0, tick + 1, leg)))
        assert ("changes", tick) not in NOTES, "recorded changes are used"
    mine, known = left(broken), left(whole)
    assert mine.keys() == known.keys()
    for name in known:
        if name.endswith(".ckpt") and ".workers-" not in name:  # a state has the ticks of its run, which was shorter
            states = [dict(checkpoint.load(run / name).state) for run in (broken, whole)]
            for state in states:
                state.pop("horizon", None)
            assert all_equal(*states), name
        else:
            assert mine[name] == known[name], name
    assert (broken / "changes.jsonl").read_bytes() == (whole / "changes.jsonl").read_bytes()
    mine, known = (
        {str(path.relative_to(run)): path.read_bytes() for path in (run / "replays").rglob("*") if path.is_file()}
        for run in (broken, whole)
    )
    assert mine == known
    replays = read_replays(whole).match(0)
    asked = [*played_with(changes)]
    assert [one.manifest.kwargs["max_steps"] for one in replays.recordings] == asked
    assert len(replays.manifests) == len({*asked}) > 1
    assert [differences for _, differences in verify(replays)] == [[] for _ in asked]
    assert [{**line, "done": 0} for line in without_clock(broken)] == [
        {**line, "done": 0} for line in without_clock(whole)
    ]


def test_refused_resume_says_what_a_changed_argument_was_by_then(tmp_path: Path) -> None:
    run = train({**LONGER, "ticks": 2 * LEG}, tmp_path / "run")
    changed = {**LONGER, "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 7, "width": 9}}}}
    with pytest.raises(ConfigError) as caught:
        train({**changed, "ticks": 3 * LEG}, run, resume=True)
    text = str(caught.value)
    assert (
        "kwargs.max_steps was not set, is 7 in the configuration (a curriculum, or `Trainer.change`, set 20 at" in text
    )
    assert f"set {2 * START} at tick {LEG})" in text
    assert "kwargs.width was not set, is 9. " in text or "kwargs.width was not set, is 9; " in text, (
        "which none has set"
    )


def test_frozen_policy_is_unchanged_and_learns_again_when_thawed(tmp_path: Path) -> None:
    run = train({**LONGER, "ticks": 3 * LEG}, tmp_path / "run")
    frozen_at, thawed_at = 2 * LEG, 4 * LEG
    kept = weights(run, frozen_at)
    assert kept is not None and weights(run, 3 * LEG) is None
    found = boundary.newest(RunFolder(run))
    assert found is not None and found.checkpoints == {"blue": frozen_at}
    train({**LONGER, "ticks": 5 * LEG}, run, resume=True)
    assert weights(run, frozen_at) == kept
    updates = [(line["update"], line["ticks"], line["learning_rate"]) for line in json_lines(run / "metrics.jsonl")]
    assert [number for number, _, _ in updates] == list(range(1, len(updates) + 1)), "their numbers continue"
    assert not [tick for _, tick, _ in updates if frozen_at < tick <= thawed_at]
    assert {rate for _, tick, rate in updates if tick > thawed_at} == {1e-3}
    last = checkpoint.load(checkpoint.path_of(run / "checkpoints" / "blue", 5 * LEG))
    assert last.update == len(updates)
    assert weights(run, 5 * LEG) != kept


def test_boundary_neither_reads_nor_applies_earlier_lines_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work of a boundary is the same after any number of them."""
    read: Counter[str] = Counter()  # bytes by name of the journal
    checked: list[str] = []
    decoded, check = JournalReader._decoded, hooks.check_change

    def counted(self: JournalReader, decode: Callable[[bytes], Any], **settings: Any) -> Iterator[Any]:
        def noted(raw: bytes) -> Any:
            read[self.path.name] += len(raw)
            return decode(raw)

        return decoded(self, noted, **settings)

    def check_counted(config: Config, key: str, value: Any) -> None:
        checked.append(key)
        check(config, key, value)

    monkeypatch.setattr(JournalReader, "_decoded", counted)
    monkeypatch.setattr(hooks, "check_change", check_counted)
    data = {
        **LONGER,
        "ticks": 100,
        "checkpoint_every": 10,
        "policies": {"blue": RANDOM, "red": RANDOM},
        "curriculum": {"class": "curricula:Says", "options": {"what": {"envs.game.kwargs.max_steps": 7}}},
        "evaluation": {"every": 50, "episodes": 1},
        "stop": {"ticks": 1000},
        "best": {"metric": "episode_len_mean"},
    }
    run = train(data, tmp_path / "run")
    assert (len(checked), read["changes.jsonl"]) == (9, 0)
    assert read["result.json"] <= (run / "result.json").stat().st_size
    assert [line["tick"] for line in json_lines(run / "changes.jsonl")] == [*range(10, 100, 10)]
    assert max(line["length"] for line in json_lines(run / "evaluations" / "tick-000000000050" / "episodes.jsonl")) <= 7


def test_evaluation_plays_the_current_game(tmp_path: Path) -> None:
    data = {**LONGER, "ticks": 3 * LEG, "evaluation": {"every": LEG, "episodes": 1}}
    run = train({**data, "results": {"every": LEG}}, tmp_path / "run")
    lengths = [line["evaluation"]["episode_len_mean"] for line in json_lines(run / "result.json")]
    changes = [line["set"].get("envs.game.kwargs.max_steps") for line in json_lines(run / "changes.jsonl")]
    assert lengths[0] <= START < lengths[1] <= 2 * START
    assert changes[:2] == [START, 2 * START]


def test_commands_play_the_game_with_its_newest_arguments(tmp_path: Path) -> None:
    run = train({**LONGER, "ticks": 3 * LEG}, tmp_path / "run")
    longest = [line["set"]["envs.game.kwargs.max_steps"] for line in json_lines(run / "changes.jsonl")][-1]
    assert longest > START

    def played(*overrides: str) -> Any:
        return Source.of(str(run), overrides).config.envs["game"].kwargs["max_steps"]

    assert (played(), played("envs.game.kwargs.max_steps=7")) == (longest, 7)
    (row,) = evaluate(run, episodes=8, against="random")
    assert START < row["length"] <= longest
    boundary.discard_after(RunFolder(run), LEG)
    newest = [
        line["set"]["envs.game.kwargs.max_steps"] for line in json_lines(run / "changes.jsonl") if line["tick"] <= LEG
    ]
    assert played() == newest[-1], "what was changed after the newest boundary was not played"


def test_evaluation_plays_with_arguments_of_its_own(tmp_path: Path) -> None:
    """They go over those that the match has, and those that a curriculum has changed."""
    evaluation = {"every": LEG, "episodes": 2, "env_kwargs": {"max_steps": 3}}
    data = {**LONGER, "ticks": 3 * LEG, "evaluation": evaluation, "results": {"every": LEG}}
    run, without = train(data, tmp_path / "run"), train({**data, "evaluation": None}, tmp_path / "without")
    assert {line["evaluation"]["episode_len_mean"] for line in json_lines(run / "result.json")} == {3.0}
    assert max(line["length"] for line in json_lines(run / "episodes.jsonl")) > 3
    assert weights(run, 2 * LEG) == weights(without, 2 * LEG) is not None


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [
        ({"env_kwargs": {"max_step": 5}}, "did you mean 'max_steps'"),
        ({"env_kwargs": {"team_size": 2}}, "no seat plays red_0"),
    ],
)
def test_wrong_arguments_of_an_evaluation_are_refused(evaluation: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"evaluation: .*{words}"):
        train({**LONGER, "evaluation": {"every": LEG, **evaluation}}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_arguments_of_games_that_are_not_played_are_refused() -> None:
    evaluation = {"every": LEG, "env_kwargs": {"max_steps": 5}, "episodes": 0, "function": "recorders:measure"}
    with pytest.raises(ConfigError, match="no game is played"):
        parse_config({"name": "test", **LONGER, "evaluation": evaluation}, source="x")


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ({"seed": 3}, 2, "seed: cannot be changed between two legs; possible are envs.<name>.kwargs.*"),
        ({"envs.game.kwarg.max_steps": 5}, 2, "max_steps: cannot be changed between two legs; did you mean 'kwargs'?"),
        ({"policies.bleu.frozen": True}, 2, "policies.bleu.frozen: cannot be changed"),
        ({"policies.blue.frozen": 3}, 2, "policies.blue.frozen: found 3"),
        ({"envs.game.kwargs.max_step": 5}, 2, "as changed at tick 40: matches[0]: environment"),
        ("numpy", 2, "envs.game.kwargs.max_steps: found"),
        ([1], 2, "it has returned [1]; expected a mapping"),
        ("raise", 1, "ZeroDivisionError: raised"),
    ],
)
def test_wrong_change_ends_the_run_and_a_fixed_class_continues(
    what: Any, code: int, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = {**LONGER, "ticks": 2 * LEG, "policies": {"blue": LEARNER, "red": RANDOM}}
    says = {"class": "curricula:Says", "options": {"what": what}}
    run = train({**data, "curriculum": says}, tmp_path / "run", code=code)
    assert words in capfd.readouterr().err
    assert json_lines(run / "changes.jsonl") == []
    mended = {**data, "curriculum": {"class": "curricula:Says", "options": {"what": {"policies.blue.frozen": True}}}}
    train(mended, run, resume=True)
    assert json_lines(run / "changes.jsonl") == [{"tick": LEG, "set": {"policies.blue.frozen": True}}]
    assert f"tick {LEG}: policies.blue.frozen = true" in capfd.readouterr().out


def test_each_changed_value_is_told_and_of_many_the_first() -> None:
    def run(**kwargs: Any) -> Any:
        return SimpleNamespace(changed_config=None, plan=SimpleNamespace(config=config(kwargs)), leg=Leg(start=7))

    def config(kwargs: dict[str, Any]) -> Config:
        return parse_config({**LONGER, "envs": {"game": {"make": "touchdown", "kwargs": kwargs}}}, source="run.yaml")

    told = hooks.changes_text(run(a=[1, 2], b=True), run(a=[1, 3], b=None))
    assert told == ["tick 7: envs.game.kwargs.a[1] = 3", "tick 7: envs.game.kwargs.b = null"]
    told = hooks.changes_text(run(a=[*range(50)]), run(a=[*range(1, 51)]))
    assert told[19:] == ["tick 7: envs.game.kwargs.a[19] = 20", "tick 7: 30 more values"]


def test_refused_change_is_not_blamed_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    says = {"class": "curricula:Says", "options": {"what": {"policies.blue.options.learning_rate": "x"}}}
    (tmp_path / "x.yaml").write_text(dump({**LONGER, "ticks": 2 * LEG, "curriculum": says}))
    overrides = ["--set", "policies.blue.options.learning_rate=0.001"]
    with working_directory(tmp_path):
        assert main(["train", "x.yaml", "--ranks", "1", "--run-dir", "run", *overrides]) == 2
    error = capfd.readouterr().err
    assert f"x.yaml, as changed at tick {LEG}: policies.blue.options.learning_rate: found 'x'" in error
    assert "--set" not in error


@pytest.mark.parametrize(
    ("entry", "path", "words"),
    [
        ({"class": "curricula:Longr"}, "curriculum.class", "did you mean 'Longer'"),
        ({"class": "curricula:Longer"}, "curriculum.options", "needs the option 'start'"),
        ({"class": "curricula:Misspelled"}, "curriculum.class", "beginn() is never called; did you mean 'begin'?"),
        ({"class": "curricula:WrongSignature"}, "curriculum.class", "changes cannot be called with (result)"),
        ({"class": "curricula:Nothing"}, "curriculum.class", "has no method changes(result)"),
        ({"class": "curricula:NOTES"}, "curriculum.class", "it has to be a class"),
    ],
)
def test_wrong_curriculum_is_refused(entry: Any, path: str, words: str) -> None:
    config = parse_config({"name": "test", **LONGER, "curriculum": entry}, source="x")
    with pytest.raises(ConfigError) as caught:
        checked_plan(config, ranks=1)
    assert caught.value.path == path
    assert words in caught.value.message


# -------------------------------------------------------------------------------------------------------------- leagues

ROUND = 24  # ticks, two legs
LEAGUE: dict[str, Any] = {
    **one_match(
        {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 9}},
        {"blue": {"algorithm": "dqn", "options": {"learning_starts": 8, "hidden_sizes": [4]}}, "red": PPO},
        **{"ticks": ROUND, "seed": 2, "checkpoint_every": ROUND // 2, "rounds": 4, "results": {"smoothing": 1}},
    ),
    "matches": [{"round_robin": {"env": "game", "policies": ["blue", "red"]}}],
    "league": {"snapshots": {"every": 1}},
    "curriculum": {"class": "curricula:UntilElo", "options": {"elo": -5000}},
}


def lengths_by_round(run: Path) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(4)]
    for line in json_lines(run / "episodes.jsonl"):
        if "cut" not in line:
            found[(line["tick"] - 1) // ROUND].add(line["length"])
    return found


def test_lesson_of_a_league_ends_at_an_elo(tmp_path: Path) -> None:
    run = train(LEAGUE, tmp_path / "run")
    asked = [(tick, elo is None) for _, tick, elo in (note for note in NOTES if note[0] == "changes")]
    assert asked == [(tick, tick % ROUND > 0) for tick in range(12, 4 * ROUND, 12)]
    assert lengths_by_round(run) == [{2}, {3}, {4}, {5}]
    never = {"class": "curricula:UntilElo", "options": {"elo": 5000}}
    assert lengths_by_round(train({**LEAGUE, "curriculum": never}, tmp_path / "never")) == [{2}] * 4


def test_interrupted_league_with_a_curriculum_leaves_the_same_bytes(tmp_path: Path) -> None:
    whole, broken = train(LEAGUE, tmp_path / "whole"), train({**LEAGUE, "stop": {"ticks": 48}}, tmp_path / "broken")
    for tick in range(2 * ROUND - 12, 4 * ROUND, 12):  # in a round, and between two
        boundary.discard_after(RunFolder(broken), tick)
        train({**LEAGUE, "stop": {"ticks": tick + 12}}, broken, resume=True)
    mine, known = left(broken), left(whole)
    assert mine.keys() == known.keys()
    assert {name for name in known if mine[name] != known[name]} <= {name for name in known if name.endswith(".ckpt")}
    assert lengths_by_round(broken) == lengths_by_round(whole)
    assert (broken / "changes.jsonl").read_bytes() == (whole / "changes.jsonl").read_bytes()


@pytest.mark.parametrize(
    "key", ["policies.blue.options.learning_rate", "policies.red.frozen", "matches[0].env_kwargs.rounds"]
)
def test_curriculum_of_a_league_changes_games_alone(key: str, tmp_path: Path, capsys: Any) -> None:
    says = {"class": "curricula:Says", "options": {"what": {key: 1}}}
    train({**LEAGUE, "curriculum": says}, tmp_path / "run", code=2)
    assert f"{key}: cannot be changed in a league" in capsys.readouterr().err
