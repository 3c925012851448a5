"""A run that a program holds: trained leg by leg, looked at, changed, saved and restored between two legs.

    with Trainer("configs/cartpole.yaml", every=500) as trainer:
        for result in trainer:
            print(result["training_iteration"], result["episode_reward_mean"])

It is the run of `arena train` with the same configuration, held at its boundaries: whatever is called between two legs
draws from no random stream of the run, and leaves the same bytes in its folder.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from html import escape
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from arena import registry
from arena.callbacks import check_object
from arena.config import Config, resolved_yaml, yaml
from arena.config import overrides as overriding
from arena.config.decode import show
from arena.config.load import load_with_origin, parse_config
from arena.config.named import refuse_main
from arena.config.plain_data import from_python
from arena.config.schema import Evaluation
from arena.diagnostics.start_folder import anchored, check_path
from arena.errors import MISTAKE, BudgetReached, ConfigError, Origin, RunFailed, in_python, located, nearest, shorten
from arena.game.api import Interface
from arena.league.sources import Named, Source, find_checkpoint, only_policy, opponent_of, opposed
from arena.plan.hosts import parse_hosts
from arena.plan.plan import Plan
from arena.plan.process_count import RankCount, process_count
from arena.plan.seats import check_seats, teams_of
from arena.preflight.examine import environment_key, examine, interface_of
from arena.preflight.later_seats import evaluation_config
from arena.preflight.spec import spec_of
from arena.records import boundary, checkpoint, evaluations
from arena.records.atomic import make_folder, part_of
from arena.records.evaluations import numbers_of
from arena.records.folder import RunFolder, free_path
from arena.records.formats import ChangeLine
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.records.result_file import read_results
from arena.roles.perform import failure_of
from arena.roles.protocol import Failed
from arena.roles.run import Run
from arena.roles.state import Display, RunState
from arena.run import mpirun
from arena.run.api import untouched_process
from arena.run.console import Output, log_to_folder
from arena.run.evaluation import check_episodes, episodes_per_lane, is_due
from arena.run.hooks import changed_config, check_change, lines_at, with_changes, without
from arena.run.lead import Leader, scored
from arena.run.loop import Processes, RunLoop, in_one_process
from arena.run.planning import checked_plan
from arena.run.prepare import prepare
from arena.run.resume import rolled_back, rule_met
from arena.serving.policy import Policy, configured_policy
from arena.terminal.display import silent_display
from arena.terminal.output import say
from arena.trainer.player import Player
from arena.trainer.remote import RemoteRun

_log = logging.getLogger(__name__)
_NAME = "trainer"  # of a run whose configuration has no file
_NOT_SAVED = ("lock", "requeue", "saved", "logs", "report.html", "wandb", "wandb_id", "mlflow_id")
_RESUMED = re.compile(  # what changes as by `close` and a resume
    r"matches(\[[0-9]+\]|\.[0-9]+)((\.(?!env_kwargs\.)\w+)?\.copies|\.seats([.\[].+)?)"
    r"|policies\.[^.]+(\.(algorithm|options))?"
)
_SHOWN = ("training_iteration", "ticks", "episodes_total", "episode_reward_mean", "episode_len_mean")
_in_python = in_python(resume="Trainer.restore", ticks="ticks=")


class Trainer:
    """A run that a program holds at its boundaries.

    Args:
        config: a YAML file, its contents, or the same as `arena.Config`.
        overrides: values by key path, as `--set` takes them.
        run_dir: the run folder; None: `runs/<name>`, or the next free name.
        ticks: of every match; None: as configured.
        every: ticks of an iteration: `checkpoint_every` and `results.every`; None: as configured.
        ranks: how many processes; 1: this one alone; None: as the configuration's `ranks` says. More than one are
            started at the first `train()`, and wait between two iterations.
        hosts: for these processes, as `arena train --hosts` takes them; None: this machine, or the allocation.
        callbacks: objects with the methods of callbacks, called after those of the configuration; with ranks=1.
        verbose: print a line per iteration.

    Attributes:
        folder: the run folder.

    Raises:
        ConfigError: a mistake of the user.
    """

    @_in_python
    def __init__(
        self,
        config: Config | Mapping[str, Any] | Path | str,
        *,
        overrides: Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
        ticks: int | None = None,
        every: int | None = None,
        ranks: RankCount | None = 1,
        hosts: str | None = None,
        callbacks: Sequence[Any] = (),
        verbose: bool = False,
    ) -> None:
        named = {"name": _NAME, **config} if isinstance(config, Mapping) else config
        read, origin = load_with_origin(named, _overrides(overrides, ticks=ticks, every=every))
        self._begin(read, origin, run_dir, resume=False, ranks=ranks, hosts=hosts, callbacks=callbacks, verbose=verbose)

    @classmethod
    @_in_python
    def restore(
        cls,
        folder: str | Path,
        *,
        overrides: Mapping[str, Any] | None = None,
        ticks: int | None = None,
        ranks: RankCount | None = 1,
        hosts: str | None = None,
        callbacks: Sequence[Any] = (),
        verbose: bool = False,
    ) -> Trainer:
        """Continues a run in its folder, also one of `arena train`.

        Args:
            folder: of the run.
            overrides: values by key path, as `--set` takes them.
            ticks: of every match; None: as configured.
            ranks: as of a new Trainer; so are `hosts`, `callbacks` and `verbose`.

        Raises:
            ConfigError: no such run, no boundary to go on from, or another process holds it.
        """
        path = RunFolder.begun(folder).config
        read, origin = load_with_origin(path, _overrides(overrides, ticks=ticks, every=None))
        self = cls.__new__(cls)
        self._begin(read, origin, folder, resume=True, ranks=ranks, hosts=hosts, callbacks=callbacks, verbose=verbose)
        return self

    def _begin(
        self,
        config: Config,
        origin: Origin,
        run_dir: str | Path | None,
        *,
        resume: bool,
        ranks: RankCount | None,
        hosts: str | None,
        callbacks: Sequence[Any],
        verbose: bool,
    ) -> None:
        self._closed = True  # until everything is there
        count = process_count(config, ranks, os.environ, hosts=() if hosts is None else parse_hosts(hosts)).number
        self._ranks = "one_per_role" if count is None else str(count)
        if self._ranks != "1":
            if mpirun.under_launcher():
                raise ConfigError("a Trainer starts its processes itself; under mpirun or srun use ranks=1")
            if callbacks:
                text = "objects as callbacks need ranks=1; name a class under `callbacks` of the configuration"
                raise ConfigError(text)
            refuse_main(config, ", or use ranks=1")
        elif hosts is not None:
            raise ConfigError(f"hosts={hosts!r} are for several processes; set ranks")
        for item in callbacks:
            check_object(item)
        self._hosts = hosts
        self._remote: RemoteRun | None = None
        self._config, self._origin, self._objects, self._verbose = config, origin, tuple(callbacks), verbose
        self._output, self._warned = _Silent(), False
        self._before: int | None = None  # bytes of the episodes before the iteration; None: none has begun
        self._acting: dict[str, Policy] = {}  # of the newest state
        self._memories: dict[str, Any] = {}  # by entity of match 0
        self._interfaces: dict[str, Interface] = {}  # of the games of changes, see `examine`
        self._open(None if run_dir is None else check_path(run_dir, "the path of a run folder"), resume=resume)

    def _open(self, run_dir: str | None, *, resume: bool) -> None:
        """Prepares the run and locks its folder."""
        with untouched_process(), self._origin.located():
            registry.import_plugins(self._config.imports)
            _check_resumable(self._config)
            run = prepare(self._config, ranks=1, run_dir=run_dir, resume=resume)
        for line in run.text:  # such as that a boundary is damaged
            _log.warning("%s", line)
        run = replace(run, source=self._origin.source, overridden=self._origin.overridden, controlled=True)
        state = RunState(objects=self._objects)
        self._leader = Leader(state, display=silent_display(), output=self._output, watched=False)
        self._loop = RunLoop(Processes(), run, state, self._leader)
        if self._ranks == "1":
            self._leader.lock(run)
        self._closed = self._is_over = self._interrupted = False

    # ------------------------------------------------------------------------------------------------------- the state

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._loop.run.path

    @property
    def config(self) -> Config:
        """The configuration of the run, with all overrides, as `config.yaml` has it; see also `changes.jsonl`."""
        return self._config

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies."""
        return tuple(self._config.policies)

    @property
    def ticks(self) -> int:
        """The ticks that every match has played."""
        return self._loop.run.leg.start

    @property
    def results(self) -> list[dict[str, Any]]:
        """All results of the run folder, with NaN for null."""
        return read_results(self.folder)

    @property
    def iteration(self) -> int:
        """The number of results so far."""
        return len(self.results)

    @property
    def done(self) -> bool:
        """Whether the last tick was played, a stop rule is met, or a callback has called `stop()`."""
        run = self._loop.run
        return self._is_over or run.leg.start >= run.plan.horizon or self._rule_met

    @property
    def _rule_met(self) -> bool:
        return rule_met(self._loop.run, self._loop.state.results) is not None

    # -------------------------------------------------------------------------------------------------------- training

    @_in_python
    def train(self) -> dict[str, Any]:
        """Plays one iteration: a leg, and the evaluation at its boundary; returns the newest result.

        Raises:
            BudgetReached: the run is over.
            ConfigError: a mistake of the user, also in a game or an algorithm; or the Trainer is closed.
            RunFailed: the run has failed; the Trainer is closed.
            KeyboardInterrupt: Ctrl-C or, with ranks=1, SIGTERM has ended the iteration; it was saved, and the next call
                goes on from there.
        """
        self._check_open()
        if self._interrupted:
            changes = self._loop.state.changes  # since then
            self._loop.state.unlock()
            self._open(str(self.folder), resume=True)
            self._loop.state.changes = changes
        if self.done:
            raise BudgetReached(f"the run is over at tick {self.ticks}; go on with {self._again}")
        loop, started = self._loop, self.ticks
        episodes = loop.run.folder.episodes
        if self._before is None:
            self._before = episodes.stat().st_size if episodes.exists() else 0
        self._acting.clear()
        self._memories.clear()
        if self._ranks != "1":
            return self._trained(over=self._play_remotely() == 0)
        with untouched_process():
            loop.state.stop.renew()
            loop.state.stop.listen()
            try:
                log_to_folder(loop.run)
                while (status := loop.play_stage()) is None:
                    run = loop.run  # more belongs to the iteration: its leg, its evaluation, or the end of the run
                    ends = run.concluded or self._rule_met or loop.state.stop.by
                    if not (run.leg.start == started or is_due(run) or ends):
                        break
            except KeyboardInterrupt:
                self._interrupted = True
                raise
            except BaseException as error:
                self._fail(self._leader.failure(loop.run, error))
        if status is not None:
            self._read_boundary()
        if status is not None and loop.state.stop.number is not None:
            self._interrupted = True
            raise KeyboardInterrupt(signal.Signals(loop.state.stop.number).name)
        return self._trained(over=status is not None)

    def _play_remotely(self) -> int | None:
        """Plays an iteration in the processes of a launcher; the exit status if the run is over."""
        run, memory = self._loop.run, self._loop.state
        if self._remote is None:
            resume = run.resumed or run.begun
            self._remote = RemoteRun(resolved_yaml(self._config), run.path, self._ranks, self._hosts, resume=resume)
        status: int | None = None
        try:
            if self._remote.play(run.leg.start, memory.changes) is None:
                status, errors = self._remote.ended()
                self._end_remote()
                if status:
                    exit_code = MISTAKE if status == MISTAKE else 1
                    self._fail(Failed("a process", errors.removeprefix("arena: error: "), exit_code=exit_code))
        except KeyboardInterrupt:
            if self._remote is not None:
                self._remote.interrupt()
                self._end_remote()
            self._read_boundary()
            raise
        memory.changes = {}
        self._read_boundary()
        return status

    @property
    def _again(self) -> str:
        return f"Trainer.restore({str(self.folder)!r}, ticks=...)"

    def _end_remote(self) -> None:
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()

    def _read_boundary(self) -> None:
        """Replaces the run by its continuation from the newest boundary in its folder."""
        if boundary.newest_tick(self._loop.run.folder) is not None:
            self._loop.run = replace(rolled_back(self._loop.run), begun=True)

    def _trained(self, *, over: bool) -> dict[str, Any]:
        """The newest result after an iteration."""
        self._is_over = over
        played = JournalReader(self._loop.run.folder.episodes, start=self._before or 0)
        self._before = None
        lines = list(played.lines(EpisodeRecord, missing_ok=True))
        cut = sum(line.cut for line in lines)
        if 2 * cut > len(lines) and not self._warned:
            self._warned = True
            text = f"{cut} of {len(lines)} episodes were cut by the end of the iteration"
            warnings.warn(f"{text}: `every` is short for this game", stacklevel=4)
        kept = self._loop.state.results  # None where other processes have played
        newest = (self.results[-1:] or [{}])[0] if kept is None else dict(kept.newest or {})
        if self._verbose:
            say(_line(newest))
        return newest

    def _fail(self, failure: Failed) -> None:
        self.close()
        raise _error_of(failure) from None  # whose text has the traceback of what has failed

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Trains until the run is over; yields the newest result of each iteration."""
        while not self.done:
            yield self.train()

    @_in_python
    def change(self, changes: Mapping[str, Any]) -> None:
        """Changes games, options, frozen policies, copies, seats or algorithms from the next iteration on.

        Args:
            changes: values by key path: as of a curriculum, `envs.<name>.kwargs.*`, `matches[i].env_kwargs.*`,
                `policies.<name>.options.*`, `policies.<name>.frozen`; and with what follows the run goes on as after
                `close` and `arena train --resume`: `matches[i].copies`, with which workers join and leave,
                `matches[i].seats[j]`, another policy in a seat, `policies.<name>`, a further policy, and
                `policies.<name>.algorithm` with `policies.<name>.options`: the policy starts over.

        Raises:
            ConfigError: one cannot be changed, the configuration is refused, or spaces or options do not fit what an
                algorithm with `from_spaces` has learned; nothing is changed then.
        """
        self._check_open()
        changes = from_python(changes)
        run, resumed = self._loop.run, {key: value for key, value in changes.items() if _RESUMED.fullmatch(key)}
        changes = {key: value for key, value in changes.items() if key not in resumed}
        if self.done and (first := next(iter({**changes, **resumed}), None)) is not None:
            text = f"the run is over at tick {self.ticks}, so nothing changes; go on with {self._again}"
            raise ConfigError(text, path=first)
        source, other = self._origin.source, self._config
        more = f"what else may change: close(), then Trainer.restore({str(self.folder)!r}, overrides=...)"
        if resumed:
            data = yaml.load(resolved_yaml(self._config), source=source)
            other = parse_config(overriding.apply_values(data, resumed, source=source), source=source)
            run = replace(run, plan=replace(run.plan, config=other), changed_config=None)
        for key, value in changes.items():
            check_change(other, key, value, more=f"; of a Trainer also copies, seats and algorithms; {more}")
        renewed = {
            f"policies.{name}.options": other.policies[name].options
            for name in {key.split(".")[1] for key in resumed if key.startswith("policies.")}
            if name in self._config.policies
        }
        recorded, pending = lines_at(run), ChangeLine(tick=run.leg.start, set=self._loop.state.changes)
        kept = without([*recorded, pending], renewed)
        if kept[:-1] == recorded:  # nothing to replace there
            renewed = {}
        changed_values = {**kept[-1].set, **renewed, **changes}
        changed = changed_config(run, [*kept[:-1], ChangeLine(tick=run.leg.start, set=changed_values)])
        _check_resumable(changed)
        plan = checked_plan(changed, ranks=1) if resumed else with_changes(run.plan, changed)
        keys = shorten([f"{key}={show(value)}" for key, value in {**resumed, **changes}.items()])
        with untouched_process(), located(source=f"{source or 'the run'}, as changed by {keys}"):
            for playing in self._loop.state.connections.values():  # to start a program again may take minutes
                self._interfaces[environment_key(playing.match)] = playing.games.interface
            examine(_loading(plan, run.leg.restore), known=self._interfaces, folder=run.folder)
        if resumed:
            self._reopen(other)
        self._loop.state.changes = changed_values

    def _reopen(self, config: Config) -> None:
        """Goes on with another configuration as after `close` and a resume; with the same one if that is refused."""
        folder, begun, before = self._loop.run.folder, self._loop.run.begun or self._loop.run.resumed, self._config
        self.close()
        try:
            self._config = config
            self._open(str(folder.path), resume=begun)
        except ConfigError:
            self._config = before
            self._open(str(folder.path), resume=begun)
            raise
        finally:
            self._acting.clear()
            self._memories.clear()
            vars(self).pop("_seated", None)

    # ----------------------------------------------------------------------------------------------------- its policies

    @_in_python
    def evaluate(self, episodes: int = 100, *, against: str | None = None, greedy: bool = True) -> dict[str, Any]:
        """Plays without learning, as `arena evaluate`; the games are in the run folder's `evaluations/`.

        Args:
            episodes: at least so many of each policy.
            against: a policy, a policy at a tick (`blue@5000`), one of another run (`runs/a:blue@best`), or an
                algorithm, which takes all seats of others; None: as configured.
            greedy: the most likely actions rather than sampled ones.

        Returns:
            the same as `evaluation` of a result.

        Raises:
            ConfigError: an unknown opponent, or an algorithm without `actor()`.
            RunFailed: a game has failed.
        """
        self._check_open()
        check_episodes(episodes)
        run = self._loop.run
        loads = {name: str(path) for name, path in run.leg.restore.items()}
        now = self._config_now()
        frozen = evaluation_config(msgspec.structs.replace(now, evaluation=Evaluation(every=1)), loads)
        contests = {"": frozen}
        if against is not None:
            opponent = opponent_of(frozen, Source(self._config, run.folder), against, path="against")
            each = {name: opposed(frozen, name, opponent) for name in self.policies}
            contests = {name: found for name, found in each.items() if found is not None}
            if not contests:
                raise ConfigError("no policy has a match with seats of others, or of two `sides`", path="against")
        parent = self.folder / "evaluations"
        parent.mkdir(mode=0o700, exist_ok=True)
        text = f"trainer-{self.ticks:012d}"
        text += "" if against is None else f"-against-{re.sub('[:/]', '-', against)}"
        folders, lines = [], []
        with untouched_process():
            for name, contest in contests.items():
                folder = free_path(parent / text)
                config = prepare(contest, ranks=1, run_dir=str(folder))
                seated = {seat.policy for match in config.plan.matches for seat in match.seats}
                lanes = episodes_per_lane(config, [name] if name else sorted(seated), episodes)
                try:
                    in_one_process(replace(config, source=run.source, episodes=lanes, greedy=greedy), silent_display())
                except BaseException as error:
                    raise _error_of(failure_of(error, f"root, {run.plan.place(0)}", run.origin)) from error
                folders.append(config.folder)
                for other, score in scored(config.folder, ()).policies.items():
                    if score.episodes and name in ("", other):
                        lines.append(evaluations.line_of(self.ticks, other, score))
        return numbers_of(folders, lines, self.policies)

    def _config_now(self) -> Config:
        run = self._loop.run
        return changed_config(run, lines) if (lines := lines_at(run)) else self._config

    def policy(self, name: str | None = None, *, which: str | int = "last") -> Player:
        """A policy as it is now, or as it was.

        Args:
            name: of the policy; None: the only one that learns.
            which: `last`, `first`, `best`, or the tick of a checkpoint.

        Raises:
            ConfigError: there is no such policy or checkpoint, or its algorithm has no `actor()`.
        """
        self._check_open()
        name, run = self._named(name), self._loop.run
        tick, source = None, Source(self._config, run.folder)
        if which != "last" and source.files(name):
            tick = checkpoint.ticks_of(source.checkpoint(Named(name, str(which))))
        return Player(self._policy(name, tick), name)

    def _policy(self, name: str, tick: int | None) -> Policy:
        with untouched_process(), self._origin.located():
            folder = self._loop.run.folder if self._loop.run.begun or self._loop.run.resumed else None
            return configured_policy(self._config_now(), folder, name, tick)

    def _named(self, name: str | None) -> str:
        if name is None:
            if (only := only_policy(self._config)) is None:
                raise ConfigError(f"which policy? Name one of {', '.join(self.policies)}")
            return only
        if name not in self.policies:
            raise ConfigError(f"no policy {name!r}; {nearest(str(name), self.policies)}")
        return name

    def compute_action(
        self,
        observation: Any,
        *,
        policy: str | None = None,
        info: Mapping[str, Any] | None = None,
        memory: Any = None,
        greedy: bool = True,
        entity: str | int | None = None,
    ) -> Any:
        """The action of a policy for one observation, as it is now; see `Player.act`.

        Args:
            observation: a sample of its observation space.
            policy: its name; None: the only one that learns.
            info: of the game; `action_mask` says which actions are allowed.
            memory: of a policy that remembers, its memory so far; None at the beginning of an episode.
            greedy: the best action rather than a sampled one.
            entity: see `Policy.act`.

        Returns:
            the action; of a policy that remembers, the action and the memory after it.

        Raises:
            ValueError: the observation, its mask, the memory or the entity does not fit the policy.
        """
        self._check_open()
        name = self._named(policy)
        acting = self._acting_now(name)
        with untouched_process():
            if acting.memory_size or memory is not None:
                acting.remember(memory, entity)
            if not acting.memory_size:
                return acting.act(observation, info, greedy=greedy, entity=entity)
            return acting.act(observation, info, greedy=greedy, entity=entity), acting.memories[entity]

    def _acting_now(self, name: str) -> Policy:
        if name not in self._acting:
            self._acting[name] = self._policy(name, None)
        return self._acting[name]

    def compute_actions(
        self,
        observations: Mapping[str, Any],
        infos: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        greedy: bool = True,
    ) -> dict[str, Any]:
        """The actions for observations by entity of match 0, each of the policy in its seat.

        The memory of an entity's policy continues from call to call, until the next iteration.

        Args:
            observations: by the name of an entity, as `arena plan` prints it; a sample of its space.
            infos: of the game, by entity; `action_mask` says which actions are allowed.
            greedy: the best actions rather than sampled ones.

        Raises:
            ConfigError: an entity that the match has not.
        """
        seats = self._seated
        unknown = next((name for name in observations if str(name) not in seats), None)
        if unknown is not None:
            raise ConfigError(f"match 0 has no entity {unknown!r}; {nearest(str(unknown), seats)}")
        actions = {}
        for name, observation in observations.items():
            (policy, number), memory = seats[str(name)], self._memories.get(str(name))
            info = (infos or {}).get(name)
            found = self.compute_action(
                observation, policy=policy, info=info, memory=memory, greedy=greedy, entity=number
            )
            if self._acting[policy].memory_size:
                found, self._memories[str(name)] = found
            actions[name] = found
        return actions

    @cached_property
    def _seated(self) -> dict[str, tuple[str, int]]:
        """By the name of each entity of match 0, and as it is configured, its policy and its number among the policy's.

        The game is made once.
        """
        match = self._loop.run.plan.matches[0]
        with untouched_process(), self._origin.located():
            interface = interface_of(match)
            seats = check_seats(match, interface)
        names = interface.entities
        found = {
            names[entity]: (policy, number)
            for policy, teams in teams_of(match, seats).items()
            for number, entity in enumerate(chain(*teams))
        }
        as_configured = [str(entity) for seat in match.seats for entity in seat.entities]
        return {own: found[names[entity]] for own, entity in zip(as_configured, chain(*seats), strict=True)} | found

    def state(self, policy: str) -> dict[str, Any]:
        """What a policy has learned, as its `state_dict()` has it; of a frozen policy, what it has loaded.

        Raises:
            ConfigError: it has no checkpoint yet, its algorithm has no state, or it is frozen and loads none.
        """
        name = self._named(policy)
        configured = self._config_now().policies[name]
        loads, home = configured.load if configured.frozen else None, self._loop.run.folder
        path = find_checkpoint(loads, name, home) if loads else self._checkpoint(name)
        loaded = checkpoint.load(path)
        checkpoint.check_mapping(loaded, path)
        return dict(loaded.state)

    def set_state(self, policy: str, state: Mapping[str, Any]) -> None:
        """Replaces what a policy has learned, from the next iteration on.

        Raises:
            ConfigError: the state is of another algorithm or has other shapes, or the policy is frozen; nothing is
                changed then.
        """
        configured = self._config_now().policies[self._named(policy)]
        if configured.frozen:
            raise ConfigError(
                f"{policy!r} is frozen: it plays with what `load:` names, in every leg; "
                f"change({{'policies.{policy}.frozen': False}}) lets it learn",
                path=f"policies.{policy}",
            )
        path = self._checkpoint(self._named(policy))
        loaded = checkpoint.load(path)
        difference = _difference(loaded.state, state, "")
        if difference is not None:
            raise ConfigError(f"the state does not fit {policy!r}: {difference}", path=f"policies.{policy}")
        self._acting.clear()
        checkpoint.write(path, replace(loaded, state=dict(state)))

    def _checkpoint(self, name: str) -> Path:
        self._check_open()
        run = self._loop.run
        found = boundary.newest(run.folder) if run.begun or run.resumed else None
        if found is None or name not in found.checkpoints or name not in run.leg.restore:
            why = "has no state before its first iteration"
            configured = self._config_now().policies[name]
            if not spec_of(registry.algorithm(configured.algorithm)).saves:
                why = f"has no state: its algorithm {configured.algorithm!r} has no state_dict()"
            elif configured.frozen:
                why = "is frozen and loads no checkpoint, so it has no state"
            raise ConfigError(f"{name!r} {why}", path=f"policies.{name}")
        return found.checkpoint(run.folder, name)

    # ------------------------------------------------------------------------------------------------ saving and ending

    def save(self, folder: str | Path | None = None) -> Path:
        """Saves the run as it is, as a run folder of its own that `restore` and `arena train --resume` continue.

        Args:
            folder: where to; None: `saved/<tick>` in the run folder.

        Raises:
            ConfigError: it holds files, or nothing was played yet.
        """
        self._check_open()
        run = self._loop.run
        if not run.folder.config.exists():
            raise ConfigError("nothing was played yet; call train() first", source=str(run.path))
        to = run.path / "saved" / f"{self.ticks:012d}" if folder is None else anchored(folder)
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise ConfigError("holds files already; name another folder", source=str(to))
        to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = part_of(to)
        shutil.rmtree(part, ignore_errors=True)

        def left_out(where: str, names: list[str]) -> list[str]:
            return [name for name in names if Path(where) == run.path and name in _NOT_SAVED]

        shutil.copytree(run.path, part, symlinks=True, ignore=left_out)
        make_folder(part / "logs")
        if to.exists():
            to.rmdir()
        os.replace(part, to)
        return to

    def close(self) -> None:
        """Releases the run folder; a second call does nothing. `Trainer.restore` goes on with the run."""
        if self._closed:
            return
        self._closed = True
        self._end_remote()
        memory = self._loop.state
        if memory.callbacks is not None:
            with untouched_process():
                memory.callbacks.end()
        if memory.results is not None:
            memory.results.close()
        memory.disconnect("over")
        memory.unlock()
        if not self._loop.run.folder.config.exists():
            self._loop.run.folder.remove_unbegun(self._loop.run.made_folder)

    def _check_open(self) -> None:
        if self._closed:
            again = f"Trainer.restore({str(self._loop.run.path)!r})"
            raise ConfigError(f"the Trainer is closed; {again} goes on with its run")

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be ending
            self.close()

    def __repr__(self) -> str:
        head = f"Trainer({str(self.folder)!r}, ticks={self.ticks}, done={self.done})"
        return "\n".join([head, *map(_line, self.results[-3:])])

    def _repr_html_(self) -> str:
        """The folder, the ticks, and the newest results as a table, for notebooks."""
        head = "".join(f"<th>{escape(name)}</th>" for name in _SHOWN)
        rows = "".join(
            f"<tr>{''.join(f'<td>{_shown(result[name])}</td>' for name in _SHOWN)}</tr>" for result in self.results[-5:]
        )
        title = f"{escape(str(self.folder))}: tick {self.ticks} of {self._loop.run.plan.horizon}"
        return f"<p>{title}</p><table><tr>{head}</tr>{rows}</table>"


class _Silent(Output):
    """Shows nothing."""

    def display(self, run: Run) -> Display:
        return silent_display()

    def say(self, text: str) -> None: ...

    def complain(self, text: str) -> None: ...

    def fail(self, failure: Failed) -> None: ...


def _error_of(failure: Failed) -> ConfigError | RunFailed:
    """The exception that a failure of a run is for a program."""
    if failure.exit_code == MISTAKE:
        return failure.mistake or ConfigError(failure.message)
    return RunFailed(f"{failure.who}\n{failure.message}", who=failure.who, trace=failure.message)


def _check_resumable(config: Config) -> None:
    """Refuses wrong options, and policies that learn and cannot be saved and loaded between two legs."""
    for name, policy in config.policies.items():
        cls, _ = registry.configured_algorithm(
            policy.algorithm, policy.options, acts=policy.frozen, path=f"policies.{name}", any_device=policy.frozen
        )
        if policy.learns and not spec_of(cls).resumable:
            raise ConfigError(
                f"what it learns cannot be saved and loaded between two iterations: {cls.__name__} has no "
                "state_dict() and load_state_dict()",
                path=f"policies.{name}",
            )


def _loading(plan: Plan, restore: Mapping[str, Path]) -> Plan:
    """A plan whose policies load what they have learned with the algorithm that they have there."""
    policies = {
        name: replace(policy, config=msgspec.structs.replace(policy.config, load=str(restore[name])))
        for name, policy in plan.policies.items()
        if name in restore and checkpoint.algorithm_of(restore[name]) == policy.config.algorithm
    }
    return replace(plan, policies={**plan.policies, **policies})


def _overrides(values: Mapping[str, Any] | None, *, ticks: int | None, every: int | None) -> list[overriding.Override]:
    if not isinstance(found := from_python({} if values is None else values), dict):
        raise ConfigError(f"found {values!r:.80}; expected a mapping of key paths to values", path="overrides")
    if ticks is not None:
        found["ticks"] = from_python(ticks, "ticks")
    if every is not None:
        found |= dict.fromkeys(("checkpoint_every", "results.every"), from_python(every, "every"))
    return [overriding.Override(str(key), value, f"{key}={show(value)}") for key, value in found.items()]


def _difference(known: Any, state: Any, path: str) -> str | None:
    """Where two states differ in form; None if they do not."""
    if isinstance(known, Mapping):
        if not isinstance(state, Mapping) or known.keys() != state.keys():
            found = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            return f"{path or 'it'} has {found}, expected {', '.join(map(str, known))}"
        parts = (_difference(known[key], state[key], f"{path}/{key}" if path else str(key)) for key in known)
        return next((part for part in parts if part is not None), None)
    if isinstance(known, (list, tuple)):
        if not isinstance(state, (list, tuple)) or len(known) != len(state):
            return f"{path} has another length"
        parts = (_difference(*pair, f"{path}[{number}]") for number, pair in enumerate(zip(known, state, strict=True)))
        return next((part for part in parts if part is not None), None)
    if hasattr(known, "shape"):
        shape = tuple(getattr(state, "shape", ())) if hasattr(state, "shape") else None
        is_file = len(known.shape) == len(shape or ()) == 1 and str(known.dtype) == str(state.dtype) == "uint8"
        fits = is_file or shape == tuple(known.shape)  # a file, as sb3's, may have another length
        return None if fits else f"{path} has the shape {shape}, expected {tuple(known.shape)}"
    return None


def _line(result: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(result[name])}" for name in _SHOWN if name in result)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
