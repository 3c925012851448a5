"""The interface of external games as a configuration writes it: `entities`, or `like` another environment.

entities: {hero: {observation: SPACE, action: SPACE, masks: false}}     SPACE as in `arena.records.space_json`
like: {make: "gymnasium:CartPole-v1", kwargs: {}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Space

from arena import registry
from arena.errors import ConfigError, located, nearest
from arena.game.api import Interface
from arena.game.spaces import mask_size
from arena.records.space_json import space_from_json

_REQUIRED = {"box": ("shape",), "discrete": ("n",), "multi_discrete": ("nvec",), "multi_binary": ("n",)}
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "box": {"dtype": "float32", "low": "-inf", "high": "inf"},
    "discrete": {"dtype": "int64", "start": 0},
    "multi_discrete": {"dtype": "int64"},
    **{"multi_binary": {}, "dict": {}, "tuple": {}},
}
"""The kinds of spaces, and what may be left out of each."""


def declared_interface(
    entities: Mapping[str, Any] | Interface | None = None, like: Mapping[str, Any] | None = None
) -> Interface:
    """The interface that a configuration declares: by `entities`, or `like` an environment, which is made once.

    Raises:
        ConfigError: neither or both are given, or one does not describe an interface; the error names the place.
    """
    if entities is None and like is None:
        text = "is missing, and `like` too: one of them has to describe the games"
        raise ConfigError(text, path="entities")
    if entities is not None and like is not None:
        raise ConfigError("found beside `entities`; one of them describes the games", path="like")
    if isinstance(entities, Interface):
        return entities
    if like is None:
        if not isinstance(entities, Mapping) or not entities:
            raise ConfigError(f"{entities!r} is no mapping of entities to their spaces", path="entities")
        observations, actions, sizes = [], [], []
        for entity, written in entities.items():
            at = f"entities.{entity}"
            if not isinstance(written, Mapping) or not {"observation", "action"} <= set(written):
                raise ConfigError(f"{written!r}; expected {{observation: SPACE, action: SPACE}}", path=at)
            if unknown := set(written) - {"observation", "action", "masks"}:
                raise ConfigError(f"unknown keys {sorted(unknown)}; known: observation, action, masks", path=at)
            observations.append(_space(written["observation"], f"{at}.observation"))
            actions.append(action := _space(written["action"], f"{at}.action"))
            masks, size = written.get("masks", False), mask_size(action)
            if not isinstance(masks, bool):
                raise ConfigError(f"{masks!r}; expected true or false", path=f"{at}.masks")
            if masks and not size:
                raise ConfigError(f"{action} takes no action masks; Discrete and MultiDiscrete do", path=f"{at}.masks")
            sizes.append(size if masks else 0)
        return Interface(tuple(map(str, entities)), tuple(observations), tuple(actions), tuple(sizes))
    if not isinstance(like, Mapping) or "make" not in like or not set(like) <= {"make", "kwargs"}:
        raise ConfigError(f"{like!r}; expected {{make: ..., kwargs: {{...}}}}", path="like")
    with located(path="like"):
        env = registry.adapt_environment(like["make"], like.get("kwargs") or {}, 1)
    interface = env.interface
    env.close()
    return interface


def _space(written: Any, at: str) -> Space[Any]:
    try:
        return space_from_json(_complete(written))
    except ValueError as error:
        fault = str(error).removeprefix("no space: ")
        message = f"{written!r} is no space: {fault}; an example: {{box: {{shape: [4]}}}}"
        raise ConfigError(message, path=at) from error


def _complete(written: Any) -> Any:
    """A space as written by hand, with the keys that may be left out."""
    if not isinstance(written, Mapping) or len(written) != 1:
        raise ValueError(f"expected one of {', '.join(_LEFT_OUT)}, and its content")
    ((kind, content),) = written.items()
    if kind not in _LEFT_OUT:
        raise ValueError(f"unknown kind {kind!r}; {nearest(str(kind), _LEFT_OUT)}")
    if kind in ("dict", "tuple") and not isinstance(content, (Mapping, list, tuple)):
        raise ValueError(f"{kind} has spaces in it")
    if kind == "dict":
        parts = content.items() if isinstance(content, Mapping) else content
        return {kind: [[key, _complete(part)] for key, part in parts]}
    if kind == "tuple":
        return {kind: [_complete(part) for part in content]}
    if not isinstance(content, Mapping):
        raise ValueError(f"the content of {kind} is a mapping")
    known = {*_REQUIRED[kind], *_LEFT_OUT[kind], *(["start"] if kind == "multi_discrete" else [])}
    for key in content:
        if key not in known:
            raise ValueError(f"unknown key {key!r} of {kind}; {nearest(str(key), known)}")
    for key in _REQUIRED[kind]:
        if key not in content:
            raise ValueError(f"{kind} lacks {key!r}")
        if key != "n" and not isinstance(content[key], (list, tuple)):
            raise ValueError(f"{key!r} of {kind} is a list, such as [4]")
    whole = {**_LEFT_OUT[kind], **content}
    if kind == "multi_discrete" and isinstance(whole.get("nvec"), list):
        whole.setdefault("start", [0] * len(whole["nvec"]))
    return {kind: whole}
