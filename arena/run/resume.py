"""Continuing a run: from which boundary, with which weights, after which records.

`resumed`, for `--resume`, and `rolled_back`, after a death, only read; `forget` removes what came after
the boundary, when all roles are ready to continue from it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from arena import registry
from arena.config import Config, load_config
from arena.config.fields import changed_values, plain
from arena.config.league import League
from arena.config.matches import Knockout, Match, Swiss, reseated
from arena.config.schema import Env, TickRules
from arena.errors import ConfigError, located, shown
from arena.league.changes import check_recorded, lines_of
from arena.league.sources import find_checkpoint
from arena.plan.plan import Plan
from arena.records import best, checkpoint, checksums, evaluations, journal
from arena.records import boundary as boundaries
from arena.records.folder import RunFolder, forget_lanes, matches_in
from arena.records.formats import Boundary, ChangeLine, MeasureLine, ResumeLine, Worker
from arena.records.journal import JournalReader
from arena.records.result_file import numbers, results_in
from arena.records.results import RunResults, StopReached, first_met
from arena.roles.root.legs import match_workers, seats_of
from arena.roles.run import Run, leg_at
from arena.run import hooks

SAME_MATCH = ("env", "entities", "env_kwargs")
GAME = ("make", "kwargs", "wrappers")
LENGTH_DEFAULTS: Mapping[str, Mapping[str, Any]] = {  # of built-in algorithms, which the root does not import
    "a2c": {"learning_rate_schedule": "linear"},
    "dqn": {"learning_rate_schedule": "linear", "exploration_fraction": 0.16},
    "impala": {"learning_rate_schedule": "linear"},
    "vdn": {"exploration_fraction": 0.16},
    "qmix": {"exploration_fraction": 0.16},
    "ppo": {"n_steps": "auto", "minibatch_size": "auto"},
}
SCHEDULED = ("learning_rate", "ent_coef", "epsilon", "noise_std", "clip_range", "clip_range_vf")  # may be a schedule
_LONG_RUN = 8 * 2048  # ticks from which on `n_steps: auto` does not follow the length (policies/common/on_policy.py)
_CURRICULUM = "change arguments of the game between two legs by a `curriculum`, "
_log = logging.getLogger(__name__)


def resumed(run: Run, config: Config) -> Run:
    """The run of the new configuration, in the old run's folder, as it continues from the newest whole boundary.

    Raises:
        ConfigError: the new configuration describes another game; there is no such boundary; nothing is left to do.
    """
    folder = run.folder
    for path in (folder.config, folder.tournament):
        checksums.check(path)
    before = load_config(folder.config)
    given, config = config, msgspec.structs.replace(config, name=before.name)
    run = replace(run, plan=replace(run.plan, config=msgspec.structs.replace(run.plan.config, name=before.name)))
    changed = {
        re.sub(r"\[(\d+)\]", r".\1", key): f"{_quoted(value)} at tick {line.tick}"  # as in `compared`
        for line in lines_of(folder)
        for key, value in line.set.items()
    }
    differences = list(_differences(before, config))
    for place, text in enumerate(differences):  # the game was played with what a curriculum has set
        if (key := text.partition(" was ")[0]) in changed:
            differences[place] = f"{text} in the configuration (a curriculum, or `Trainer.change`, set {changed[key]})"
    if differences:  # the records and weights of another game would be mixed with the old ones
        raise ConfigError(
            f"--resume goes on with the same policies in the same games, but {'; '.join(differences)}. "
            f"Go back to that (--resume with the configuration in its folder, {shown(folder.config)}), "
            f"{_CURRICULUM if any('kwargs' in one for one in differences) else ''}or start a new run "
            "that begins with the policies of this one, by `load`, or in a "
            f"shell by arena train NEW.yaml --continue {folder.config.parent}",
            source=str(folder.config),
        )
    passed_over: list[str] = []
    found = next(boundaries.whole(folder, passed_over), None)
    if found is None:
        raise ConfigError(
            "there is no tick to go on from: the run has not come to the end of a leg (every `checkpoint_every` ticks, "
            "or the last tick where some algorithm has no load_state_dict()), or its files are damaged"
            f"{''.join(f'; {line}' for line in passed_over)}. Leave --resume out and start a new run; with `load:` its "
            "policies begin with checkpoints of this one",
            source=str(folder.path),
        )
    best.check(folder, found.tick)
    run = _at(found, run, config, before)
    results = results_in(folder.results)
    done = any(result["done"] for result in results[-1:])
    met = rule_met(run)
    if met is not None and done:
        raise ConfigError(
            f"a stop rule has ended the run at tick {run.leg.start}: {met.rule.met_text(met.value)}; "
            f"go on with another bound, such as --set stop.{met.rule.key}=..., or without it: --set stop={{}}",
            source=str(run.path),
        )
    evaluated = not run.plan.evaluates_at(found.tick) or found.tick in evaluations.evaluated(folder)
    is_over = run.concluded and evaluated and (done or not folder.results.exists())
    if is_over or found.tick > run.plan.horizon:
        more = "--ticks" if run.plan.config.round_count == 1 else "--set rounds=..."
        other = "" if given.name == before.name else f"; it is a run of {before.name!r}, and not of {given.name!r}"
        raise ConfigError(
            f"the run has played {found.tick} ticks, the configuration asks for {run.plan.horizon}: there is "
            f"nothing left to do; ask for more with {more}{other}",
            source=str(folder.path),
        )
    return replace(run, text=(*passed_over, *_resume_text(before, given, found, run), *_length_text(before, config)))


def rolled_back(run: Run) -> Run:
    """The run, which has begun, as it continues from its newest boundary; without one from its beginning."""
    passed_over: list[str] = []
    found = next(boundaries.whole(run.folder, passed_over), None)
    for line in passed_over:
        _log.warning("%s", line)
    if found is None and passed_over:
        raise ConfigError("the run has begun, but no boundary in its folder is whole", source=str(run.path))
    return replace(_at(found or Boundary(tick=0), run, run.plan.config), begun=True, text=())


def _at(found: Boundary, run: Run, config: Config, before: Config | None = None) -> Run:
    """The run at a boundary: the plan of the round there, and the leg that begins there; `before`: what was played."""
    if run.plan.config.round_count > 1:
        from arena.run import rounds

        run = rounds.again(run, config, found.tick)
    changes = lines_of(run.folder)
    if run.changed_config is not None:  # by later boundaries too, perhaps
        plan = hooks.with_changes(run.plan, config) if run.plan.config.round_count == 1 else run.plan
        run = replace(run, plan=plan, changed="", changed_config=None)
    states: dict[Worker, checkpoint.StatePlace] = {}
    leg, policies = leg_at(found, run.folder), run.plan.policies
    replaced = {  # policies of another algorithm, which start over
        name
        for name, path in leg.restore.items()
        if name in policies and checkpoint.algorithm_of(path) != policies[name].config.algorithm
    }
    known = {} if before is None else before.policies
    swapped = {name for name in known.keys() & policies if known[name].algorithm != policies[name].config.algorithm}
    renewed = {
        key: policies[name].config.options
        for name in sorted(replaced | swapped)
        for key in [f"policies.{name}.options"]
        if name in swapped
        or not any(key in line.set for line in changes if checkpoint.ticks_of(leg.restore[name]) <= line.tick)
    }
    changes = hooks.without(changes, renewed)
    if before is not None:
        check_recorded(changes, config, found.tick, source=str(run.folder.changes))
    # The run as it was played up to here.
    run = hooks.with_change_lines(run, [line for line in changes if line.tick < found.tick])
    for name in policies.keys() - replaced:
        states |= checkpoint.worker_states(run.folder.checkpoints_path(name), found.tick)
    left = leg.left - {seat.worker for seat in found.seats if seat.policy in replaced}
    restored = {name: path for name, path in leg.restore.items() if name not in replaced}
    leg = replace(leg, restore=restored, left=left, private_states=states)
    if found.seats and found.seats != seats_of(run.plan):  # which worker continues with which private state
        taken: dict[Worker, Worker] = {}
        for name in run.plan.policies:
            last = [seat for seat in found.seats if seat.policy == name]
            taken |= match_workers(seats_of(run.plan, name), last)
        left = frozenset(worker for worker, other in taken.items() if other in leg.left)
        continued = {worker: states[other] for worker, other in taken.items() if other in states}
        leg = replace(leg, left=left, private_states=continued)
    here = [line for line in changes if line.tick == found.tick]
    if run.plan.config.curriculum is None:  # else it is asked between two stages
        run = hooks.with_change_lines(run, here)
    restore = {**initial_checkpoints(run.plan, run.folder, without=leg.restore), **leg.restore}
    return replace(
        run,
        recorded_change=here[0].set if here else None,
        renewed=renewed,
        resumed=True,
        concluded=found.tick >= run.plan.horizon,
        leg=replace(leg, restore=restore),
    )


def initial_checkpoints(
    plan: Plan, folder: RunFolder | None = None, *, without: Container[str] = ()
) -> dict[str, Path]:
    """The checkpoints that the configuration's `load` names, as `find_checkpoint`; not of the policies in `without`."""
    found = {}
    for policy in plan.policies.values():
        if policy.config.load is not None and policy.name not in without:
            with located(path=f"policies.{policy.name}.load"):
                found[policy.name] = find_checkpoint(policy.config.load, policy.name, folder)
    return found


def forget(run: Run) -> int:
    """Brings the folder of a resumed run back to the boundary from which it continues; a second call does nothing.

    Returns:
        the ticks beyond the boundary that the farthest match has on record.
    """
    folder, start = run.folder, run.leg.start
    boundaries.discard_after(folder, start)
    found = boundaries.last(folder) or Boundary(tick=0)
    assert found.tick == start, "the boundary was there when the run was prepared"
    farthest = start
    for path, name in ((folder.episodes, "tick"), (folder.metrics, "ticks")):
        lines = JournalReader(path, start=found.journals.get(path.name, 0))
        farthest = max([farthest, *lines.made(itemgetter(name), missing_ok=True)])
    for name in run.plan.policies:
        # A policy that had finished before its leg was cut short has a checkpoint at the planned end of the leg.
        checkpoint.discard_after(folder.checkpoints_path(name), found.checkpoints.get(name, start))
    boundaries.cut_journals(folder, found)
    for home, suffix in ((folder.samples, "npz"), (folder.replays, "replay")):
        for match in matches_in(home):
            forget_lanes(match, suffix, start)
    evaluations.forget_after(folder, start)
    # By their ticks: `on_checkpoint` may measure when the boundary is on the disk already.
    journal.forget_after(folder.measures, MeasureLine, lambda line: line.tick, start)
    best.forget_after(folder, start)
    journal.forget_after(folder.changes, ChangeLine, lambda line: line.tick, start)  # the boundary's line stays
    journal.forget_after(folder.resumes, ResumeLine, lambda line: line.tick, start)
    before, now = _in_force(load_config(folder.config), run.plan.config)
    changed = [
        ResumeLine(tick=start, key=key, was=was, now=new)
        for key, was, new in changed_values(before, now)
        if re.match(r"(seed|envs|policies|matches|league)\b", key)
    ]
    if changed and start:
        # A resume that was killed before it wrote config.yaml has written its lines already.
        newest = {line.key: line for line in JournalReader(folder.resumes).lines(ResumeLine, missing_ok=True)}
        resumes = journal.Journal(folder.resumes)
        resumes.extend([line for line in changed if newest.get(line.key) != line])
        resumes.close()
    return farthest - start


def rule_met(run: Run, kept: RunResults | None = None) -> StopReached | None:
    """The first result on record up to a boundary that meets a stop rule as the rules are now; None if none does.

    `kept` are the results as the process that leads the run keeps them; None: they are read from the run folder.
    """
    if kept is not None:
        return kept.met
    results = results_in(run.folder.results) if run.plan.config.stop_rules else []
    met = (first_met(run.plan.config.stop_rules, result) for result in results if result["ticks"] <= run.leg.start)
    return next(filter(None, met), None)


def _in_force(*configs: Config) -> list[dict[str, Any]]:
    """Configurations as data, with the defaults of what only some of them set, so that these can be compared."""
    found: list[dict[str, Any]] = [plain(config) for config in configs]
    for data in found:
        data["league"] = data["league"] or plain(League())
        for env in data["envs"].values():
            env["external"] = env["external"] or plain(TickRules())
    for name in found[0]["policies"]:
        same = [data["policies"][name] for data in found if name in data["policies"]]
        algorithms, options = {one["algorithm"] for one in same}, {frozenset(one["options"]) for one in same}
        if len(algorithms) == 1 and len(options) > 1:  # imported only then: it may need torch
            with located(path=f"policies.{name}.algorithm"):
                defaults = plain(registry.option_parameters(registry.algorithm(*algorithms)).defaults)
            for one in same:
                one["options"] = {**defaults, **one["options"]}
    return found


def _resume_text(before: Config, config: Config, found: Boundary, run: Run) -> Iterator[str]:
    """Lines about what begins without a checkpoint, and about the effects of a changed configuration."""
    plan = run.plan
    for name, policy in plan.policies.items() if found.tick else ():
        if name not in found.checkpoints and policy.config.learns and policy.workers:
            yield f"policy {name!r} has no checkpoint: it starts over"
    if before.name != config.name:
        yield f"the run keeps its name, {before.name}"
    old, given, played = (one["policies"] for one in _in_force(before, config, run.changed_config or config))
    for name, new in given.items():
        was = old.get(name, new)
        if was["algorithm"] != new["algorithm"]:
            yield f"policy {name!r} was of {was['algorithm']!r}, is of {new['algorithm']!r}: it starts over"
            continue
        held = [*changed_values(was, played[name])]  # after changes of a curriculum
        for key, former, value in changed_values(was, new):
            if key != "load" and (key, former, value) in held:
                yield f"policies.{name}.{key}: {former} -> {value}"
    if before.best is not None and plan.config.best is not None and not run.folder.best.exists():
        earlier = [line for line in results_in(run.folder.results) if line["ticks"] < found.tick]
        had = [line for line in earlier if line["ticks"] % before.checkpoint_every == 0]
        if any(before.best.metric in numbers(line) for line in had):
            yield f"{run.folder.best} is missing: the best result is sought among those from tick {found.tick} on"
    if found.seats and [(seat.worker, seat.game) for seat in found.seats] != [
        (seat.worker, seat.game) for seat in seats_of(plan)
    ]:
        yield (
            "copies or lanes have changed, so the matches have other numbers or lanes than before: each lane counts "
            "its episodes on from those that episodes.jsonl has of the same match and lane number"
        )
    if config.seed != before.seed:
        yield (
            f"seed was {before.seed}, is {config.seed}: it counts from tick {found.tick} on, so no configuration alone "
            "gives this run again"
        )
    for name, env in config.envs.items():
        if env.outcome != (old := before.envs[name].outcome):
            yield (
                f"envs.{name}.outcome was {_quoted(old)}, is {_quoted(env.outcome)}: episodes on record keep the "
                "outcomes that they have"
            )
    changed = (before.listed, before.league) != (config.listed, config.league)
    if plan.config.round_count > 1 and found.tick < plan.ticks and changed:
        last = plan.round + 1 == plan.config.round_count
        then = "there is none after it" if last else "`matches` and `league` as they are now count from the next one on"
        yield f"round {plan.round} goes on as it was planned; {then}"


def _length_text(before: Config, config: Config) -> Iterator[str]:
    """A line about the options that follow the length of the run, if that has grown."""
    was, now = before.ticks * before.round_count, config.ticks * config.round_count
    found = []
    for name, policy in config.policies.items() if now > was else ():
        options = {**LENGTH_DEFAULTS.get(policy.algorithm, {}), **policy.options}
        is_auto = options.get("n_steps") == "auto" and was < _LONG_RUN
        scheduled = {key: isinstance(options.get(key), (Mapping, list)) for key in SCHEDULED}
        by_number = options.get("learning_rate_schedule") == "linear" and not scheduled["learning_rate"]
        follows = {
            **scheduled,
            "learning_rate_schedule": by_number,
            "n_steps": is_auto,
            "minibatch_size": is_auto and options.get("minibatch_size") == "auto",
            "exploration_fraction": bool(options.get("exploration_fraction")) and options.get("epsilon") is None,
            "priority_beta": options.get("prioritized") is True,
        }
        found += [f"policies.{name}.options.{key}" for key, does in follows.items() if does and policy.learns]
    if found:
        yield (
            f"the run had {was} ticks, has {now}: {', '.join(found)} {'follow' if found[1:] else 'follows'} the length "
            "of the run, so it goes on with "
            f"other values than it had, and is not the run that had {now} ticks from its start"
        )


def _differences(before: Config, now: Config) -> Iterator[str]:
    """What differs between the games and policies of two configurations of a run.

    In a league it is only what the rounds to come may not change: the pairings may change, but not the game.
    """
    kept, replaced = registry.game_arguments, msgspec.structs.replace  # not how external games are reached

    def games(config: Config) -> dict[str, Env]:
        return {name: replaced(env, kwargs=kept(env.make, env.kwargs)) for name, env in config.envs.items()}

    def matches(config: Config) -> list[Match]:
        entries = [(match, config.envs[match.env].make) for _, match in config.entries()]
        return [replaced(match, env_kwargs=kept(make, match.env_kwargs)) for match, make in entries]

    if before.round_count > 1 and before.ticks != now.ticks:
        yield f"ticks: a round had {before.ticks}, has {now.ticks}"
    if (before.round_count == 1) != (now.round_count == 1):
        yield f"rounds was {before.round_count}, is {now.round_count} (one round is no league)"
    yield from compared("envs", games(before), games(now), GAME)
    if now.round_count == 1:
        here = {name: policy for name, policy in now.policies.items() if name in before.policies}
        yield from compared("policies", before.policies, here, ("frozen",))
        old, new = matches(before), matches(now)
        if len(old) != len(new):
            yield f"matches: had {len(old)} descriptions, has {len(new)}"
            return
        was, now_is = ([[reseated(seat, "") for seat in entry.seats] for entry in entries] for entries in (old, new))
        records = "samples" in (before.record, now.record)
        fields = (*SAME_MATCH, "seats") if records or was != now_is else SAME_MATCH
        why = " (`record: samples` keeps seats as they are)" if records and was == now_is else ""
        yield from (
            f"{line}{why}" for line in compared("matches", matches_by_number(old), matches_by_number(new), fields)
        )
        return
    yield from compared("policies", before.policies, now.policies, ("algorithm", "frozen"))

    def setting(match: Match) -> dict[str, Any]:
        """The game and form of a match, without its players."""
        return {**{field: getattr(match, field) for field in SAME_MATCH}, "seats": len(match.seats)}

    def tournaments(config: Config) -> dict[str, tuple[str, ...]]:
        """The players of each knockout and Swiss, which continue from one round to the next."""
        kinds = (Knockout, Swiss)
        return {place: tuple(entry.policies) for place, entry in config.places() if isinstance(entry, kinds)}

    known = [setting(match) for _, match in before.known_matches()]
    for path, found in {path: setting(match) for path, match in now.known_matches()}.items():
        if found not in known:  # how it differs from the most similar one
            nearest = min(([*changed_values(one, found)] for one in known), key=len)
            yield from (f"{path}.{key} was {was}, is {value}" for key, was, value in nearest)
    played, planned = tournaments(before), tournaments(now)
    for place in sorted(played.keys() | planned.keys()):
        if played.get(place) != planned.get(place):
            yield f"{place}.policies was {_quoted(played.get(place))}, is {_quoted(planned.get(place))}"


def matches_by_number(entries: Sequence[Match]) -> dict[str, Match]:
    """Match descriptions by their numbers."""
    return {str(number): entry for number, entry in enumerate(entries)}


def compared(path: str, before: Mapping[str, Any], now: Mapping[str, Any], fields: Sequence[str]) -> Iterator[str]:
    """A line for each difference between two parts of a configuration, in these fields."""
    for name in sorted(before.keys() - now.keys()):
        yield f"{path}.{name} is missing"
    for name in sorted(now.keys() - before.keys()):
        yield f"{path}.{name} is new"
    for name in sorted(before.keys() & now.keys()):
        old, new = ({field: getattr(one[name], field) for field in fields} for one in (before, now))
        yield from (f"{path}.{name}.{key} was {was}, is {value}" for key, was, value in changed_values(old, new))


def _quoted(value: Any) -> str:
    return json.dumps(value, default=repr)
