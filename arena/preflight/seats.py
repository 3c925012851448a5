"""Checks of an algorithm against its seats: spaces, face, teams and learners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arena.errors import ConfigError, located, nearest
from arena.game.api import Interface
from arena.plan.plan import Learner, Plan, PolicyPlan
from arena.preflight.spec import spec_of

_FACES = ("gym", "vector", "parallel")
SpaceText = tuple[str, str]
"""An entity's observation space and action space, as text."""


def space_texts(seat: Interface) -> tuple[SpaceText, ...]:
    """The spaces of a seat as text, which is cheap to send and to compare."""
    return tuple(zip(map(repr, seat.observation_spaces), map(repr, seat.action_spaces), strict=True))


def choose_face(faces: Sequence[str], *, lanes: int, entities: int, uniform_spaces: bool) -> str:
    """The first of an algorithm's faces, in the order of its preference, that a seat can give.

    `uniform_spaces`: whether all entities of the seat have equal spaces, and all or none of them have masks.

    Raises:
        ConfigError: none of them fits; says why and what helps.
    """
    reasons = []
    for face in faces:
        if face not in _FACES:
            raise ConfigError(f"the algorithm asks for the face {face!r}; {nearest(str(face), _FACES)}")
        if face == "vector" and not uniform_spaces:
            reason = "needs equal spaces of all entities of the seat, and masks of all or of none: give each entity a "
            reason += "seat of its own"
        elif face != "vector" and lanes > 1:
            reason = f"needs one lane, the match has {lanes}: set `lanes: 1` (and more `copies`)"
        elif face == "gym" and entities > 1:
            reason = f"needs one entity, the seat has {entities}: give each entity a seat of its own"
        else:
            return face
        reasons.append(f"{face!r} {reason}")
    raise ConfigError("the seat cannot give the face that the algorithm wants: " + "; ".join(reasons))


def seat_face(cls: type[Any], seat: Interface, *, lanes: int) -> str:
    """The face that a seat gives an algorithm; the algorithm's `check`, if it has one, checks the seat's spaces.

    Raises:
        ConfigError: no face fits, or the algorithm does not support a space.
    """
    pairs = list(zip(seat.observation_spaces, seat.action_spaces, strict=True))
    spec = spec_of(cls)
    face = choose_face(spec.faces, lanes=lanes, entities=len(pairs), uniform_spaces=seat.uniform)
    if spec.checks_spaces:
        for observation_space, action_space in pairs[:1] if seat.uniform else pairs:
            try:
                cls.check(observation_space, action_space)
            except (TypeError, ValueError, AssertionError) as error:  # raised by users' classes beside ConfigError
                spaces = f"observation space {observation_space}, action space {action_space}"
                raise ConfigError(f"{error} ({spaces})") from error
    return face


def check_shared(cls: type[Any], first: Sequence[SpaceText], seat: Sequence[SpaceText]) -> None:
    """Refuses a seat with other spaces than the first one: a policy has one set of weights."""
    for observations, actions in seat:
        if (observations, actions) not in first:
            raise ConfigError(
                f"observes {observations} and acts in {actions} here, in its first seat {first[0][0]} and "
                f"{first[0][1]}; a policy has one set of weights: give this seat a policy of its own"
            )


def check_teams(cls: type[Any], plan: Plan, policy: PolicyPlan) -> None:
    """Calls `check_team` of an algorithm that learns with whole teams, with the size of each team and of the first one.

    Raises:
        ConfigError: it refuses a team; or `max_lag`, although the workers of a team exchange observations.
    """
    if not spec_of(cls).checks_team or not policy.workers:
        return
    who, teams = f"policy {policy.name!r} ({policy.config.algorithm})", plan.teams[policy.name]
    places = [[policy.workers[rank] for rank in team] for team in teams]
    sizes = [sum(len(plan.matches[match].seats[seat].entities) for match, seat in team) for team in places]
    for ((match, seat), *_), size in zip(places, sizes, strict=True):
        with located(path=plan.matches[match].seat_path(seat), who=who):
            cls.check_team(size, sizes[0])
    if len(teams) < len(policy.workers) and policy.config.max_lag and not policy.config.frozen:
        raise ConfigError(
            f"found {policy.config.max_lag}: then no worker waits for another, but the workers of a team have to "
            "exchange observations; set max_lag: 0, or give the team one seat, as in seats: [[blue, blue], red]",
            path=f"policies.{policy.name}.max_lag",
        )


def check_independence(cls: type[Any], policy: PolicyPlan) -> None:
    """Refuses several workers of one policy in a round if the algorithm declares that its workers never synchronize."""
    if spec_of(cls).independent and not policy.config.frozen and len(policy.workers) > 1:
        raise ConfigError(
            f"the policy has {len(policy.workers)} workers, and {cls.__name__} has `independent = True`: they never "
            "synchronize; set `independent: true`, and each worker is a policy of its own",
            path=f"policies.{policy.name}",
        )


def learners_of(cls: type[Any], plan: Plan, policy: PolicyPlan, *, entry: int | None = None) -> tuple[Learner, ...]:
    """A policy's learners; an algorithm whose class has `learner = "team"` learns by teams.

    With `entry`, only the learners in copies of this entry of `matches`.
    """
    found = plan.learners[policy.name, spec_of(cls).learns_as == "team"]
    if entry is None:
        return found
    entries = [plan.matches[match].entry for match, _ in policy.workers]
    return tuple(learner for learner in found if entries[learner.workers[0]] == entry)
