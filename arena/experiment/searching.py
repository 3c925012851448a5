"""Searches and pruning: how values are suggested, and which trials are not worth their time.

`random` draws the values of each trial by itself. The samplers and pruners of Optuna (extra `search`) are used by ask
and tell alone: the study lives in memory, and is made again from what is on record of the trials. So there is no
database and no second record, and an experiment that is resumed suggests what it would have suggested.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from arena.config.decode import convert, joined, show
from arena.config.fields import Count
from arena.errors import ConfigError, nearest
from arena.experiment.variation import Choice, Range, VariedPlace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from arena.experiment.trials import Variant

_SAMPLERS = {"tpe": "TPESampler", "qmc": "QMCSampler", "gp": "GPSampler"}
_PRUNERS = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "successive_halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
    "threshold": "ThresholdPruner",
}
_OURS = ("self", "seed", "independent_sampler")  # parameters of a sampler that no file sets
_STUDY = "experiment"

RANDOM = "random"


class RandomConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `search: {random: ...}`."""

    trials: Count  # draws; grids multiply them


class Search(NamedTuple):
    """How values are suggested."""

    kind: str  # `random`, or a sampler of Optuna
    trials: int  # suggestions in all
    options: Mapping[str, Any]  # of the sampler

    @property
    def adaptive(self) -> bool:
        """Whether a suggestion depends on what earlier ones have reached, so that trials are not known before."""
        return self.kind != RANDOM


def read_search(search: Mapping[str, Mapping[str, Any]]) -> Search:
    """The search of an experiment.

    Raises:
        ConfigError: an unknown sampler or option, or the extra is missing.
    """
    ((kind, options),) = search.items()
    place = joined("search", kind)
    if kind != RANDOM and kind not in _SAMPLERS:
        raise ConfigError(f"unknown search {kind!r}; {nearest(kind, (RANDOM, *_SAMPLERS))}", path="search")
    if not isinstance(options, Mapping):
        raise ConfigError(f"found {show(options)}; expected a mapping with the number of trials", path=place)
    trials = convert(RandomConfig, {name: value for name, value in options.items() if name == "trials"}, place).trials
    rest = {name: value for name, value in options.items() if name != "trials"}
    if kind == RANDOM:
        for name in rest:
            raise ConfigError(f"unknown key {name!r}; known: trials", path=joined(place, name))
        return Search(kind, trials, rest)
    for name in rest:
        if name in _OURS:
            raise ConfigError(f"is not allowed here: {name!r} follows from the run's seed", path=joined(place, name))
    _made("samplers", _SAMPLERS[kind], {**rest, "seed": 0}, place)
    return Search(kind, trials, rest)


def check_search(search: Search | None, variant: Variant, *, variants: bool) -> None:
    """Refuses a search that does not fit what varies.

    Raises:
        ConfigError: there is nothing to search, forms of a search without one, or grids and variants beside a sampler.
    """
    searched = variant.searched
    if search is None and searched:
        raise ConfigError(
            "is searched, but the experiment has no `search`; add search: {random: {trials: 20}}, or write grid_search",
            path=variant.place_of(searched[0].path),
        )
    if search is None:
        return
    if not searched:
        text = "there is nothing to search; give a key a range, such as {loguniform: [1e-4, 1e-2]}, or leave it out"
        raise ConfigError(text, path="search")
    if search.adaptive and len(searched) < len(variant.varied):
        grids = next(each.path for each in variant.varied if each not in searched)
        text = f"a grid, as {grids} has, goes with `random` alone; write choice in its place"
        raise ConfigError(text, path=f"search.{search.kind}")
    if search.adaptive and variants:
        text = "variants go with `random` alone; make an experiment of each of them"
        raise ConfigError(text, path=f"search.{search.kind}")


def draws(search: Search, varied: Sequence[VariedPlace], seed: int) -> list[dict[str, Any]]:
    """The values of a random search: those of draw n come from `SeedSequence([seed, n])`, in the order of the keys."""
    from numpy.random import PCG64, Generator, SeedSequence

    found = []
    for number in range(search.trials):
        rng = Generator(PCG64(SeedSequence([seed, number])))
        found.append({each.path: each.form.draw(rng) for each in varied if isinstance(each.form, (Choice, Range))})
    return found


class Suggestion(NamedTuple):
    """A suggestion and its outcome."""

    params: Mapping[str, Any]  # the values
    state: str  # `running`, `complete`, `pruned` or `fail`
    value: float | None  # the mean of its trials; None without one
    points: Sequence[tuple[int, float]] = ()  # `training_iteration` and value of each result of a single trial


def suggest(
    search: Search, space: Sequence[VariedPlace], known: Sequence[Suggestion], *, number: int, seed: int, mode: str
) -> dict[str, Any]:
    """The values of a suggestion: of a study of what is known, with a sampler that is made for this suggestion."""
    from numpy.random import SeedSequence

    optuna, place = _optuna(), f"search.{search.kind}"
    of_this, of_all = (int(SeedSequence([seed, of]).generate_state(1)[0]) for of in (number, 0))
    if search.kind == "qmc":  # one sequence of points for all suggestions; before it has begun, a random point
        options = {**search.options, "seed": of_all, "independent_sampler": optuna.samplers.RandomSampler(seed=of_this)}
    else:
        options = {**search.options, "seed": of_this}
    sampler = _made("samplers", _SAMPLERS[search.kind], options, place)
    distributions: dict[str, BaseDistribution] = {}
    for path, form in space:
        if isinstance(form, Range):
            kind = optuna.distributions.IntDistribution if form.integer else optuna.distributions.FloatDistribution
            distributions[path] = kind(form.low, form.high, log=form.log)
        else:
            numbers = range(len(form.values))  # a value may be a list
            distributions[path] = optuna.distributions.CategoricalDistribution(numbers)
    direction = "maximize" if mode == "max" else "minimize"
    study = optuna.create_study(study_name=_STUDY, sampler=sampler, direction=direction)
    for one in known:
        values = ((path, form, one.params[path]) for path, form in space)
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState[one.state.upper()],
                value=one.value if one.state in ("complete", "pruned") else None,
                params={path: x if isinstance(form, Range) else form.values.index(x) for path, form, x in values},
                distributions=distributions,
                intermediate_values=dict(one.points),
            )
        )
    if search.kind == "qmc":
        for _ in range(number - 1):  # the study counts how far the sequence is
            study.ask(distributions)
    suggested = study.ask(distributions).params
    return {path: suggested[path] if isinstance(form, Range) else form.values[suggested[path]] for path, form in space}


class Pruning:
    """Says which trials are not worth their time, from their results.

    Raises:
        ConfigError: an unknown pruner or option, or the extra is missing.
    """

    def __init__(self, prune: Mapping[str, Mapping[str, Any]], mode: str) -> None:
        ((kind, options),) = prune.items()
        if kind not in _PRUNERS:
            raise ConfigError(f"unknown pruner {kind!r}; {nearest(kind, _PRUNERS)}", path="prune")
        if not isinstance(options, Mapping):
            raise ConfigError(f"found {show(options)}; expected a mapping of options", path=joined("prune", kind))
        pruner = _made("pruners", _PRUNERS[kind], options, joined("prune", kind))
        optuna = _optuna()
        self._study = optuna.create_study(
            study_name=_STUDY,  # the brackets of hyperband depend on it
            direction="maximize" if mode == "max" else "minimize",
            pruner=pruner,
            sampler=optuna.samplers.RandomSampler(0),
        )
        self._of_optuna: dict[int, Any] = {}  # by trial, Optuna's

    def report(self, trial: int, points: Sequence[tuple[int, float]]) -> bool:
        """Takes results of a trial, step and value each; returns whether it is to be pruned."""
        if trial not in self._of_optuna:
            self._of_optuna[trial] = self._study.ask()
        is_unpromising = False
        for step, value in points:  # all of them: the pruner compares later trials with them
            self._of_optuna[trial].report(value, step)
            is_unpromising = is_unpromising or self._of_optuna[trial].should_prune()
        return is_unpromising

    def end(self, trial: int, value: float | None, *, pruned: bool) -> None:
        """Takes the end of a trial: its value, None if it has none."""
        states, found = _optuna().trial.TrialState, self._of_optuna.pop(trial, None)
        if found is None:
            return  # it had no result
        if pruned or value is None:
            self._study.tell(found, state=states.PRUNED if pruned else states.FAIL)
        else:
            self._study.tell(found, value)


def can_prune(prune: Mapping[str, Mapping[str, Any]], *, trials: int, last: int) -> bool:
    """Whether `trials` trials whose last result is number `last` reach what a pruner waits for before it ends any."""
    ((kind, options),) = prune.items()
    startup = {"threshold": 0, "median": 5, "percentile": 5}.get(kind, 1)  # Optuna's defaults
    trials_first = max(options.get("n_startup_trials", startup), options.get("n_min_trials", 0))
    step = options.get("n_warmup_steps", options.get("min_resource", "auto"))
    rung = options.get("reduction_factor", 4) ** options.get("min_early_stopping_rate", 0)
    return bool(trials > trials_first and last >= (1 if step == "auto" else step * rung))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        text = "needs the package optuna; install it by pip install 'mpi-policy-arena[search]', or search with random"
        raise ConfigError(text, path="search") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _made(module: str, name: str, options: Mapping[str, Any], place: str) -> Any:
    """A sampler or pruner of Optuna with these options."""
    cls = getattr(getattr(_optuna(), module), name)
    known = [option for option in inspect.signature(cls.__init__).parameters if option not in _OURS]
    for option in options:
        if option not in known and option not in _OURS:
            raise ConfigError(f"unknown option {option!r}; {nearest(option, known)}", path=joined(place, option))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of features that the library calls experimental
            return cls(**options)
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"{name} of Optuna refuses its options: {error}", path=place) from error
