"""Mutated configuration files: each is made from a shipped one, by a seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

Place = tuple[Any, Any]  # a mapping or list, and a key or index in it

STRINGS = (
    *("", " ", "x", "ppo", "random", "scripted", "touchdown", "matrix", "null", "true", "3e-4", "-", "--help", "*"),
    *("../../x", "/etc/passwd", "a;rm -rf", "$(reboot)", "`id`", "'", '"', "a\nb", "\t", "-x", "~", "x" * 5000),
    *("\0", "a\0b", "\ud800", "\u202e", "\x1b[31m", "\u00e9", "\U0001f4a5" * 20, "\ufeff", "\u2028", "%s", "{0}", "\\"),
    *(":", "::", "a:", ":b", "math:", "math:sin", "math:pi", "builtins:dict", "builtins:int", "arena:nothing", ".a:b"),
    *("gymnasium:", "gymnasium:Nope-v0", "gymnasium:../x", "pettingzoo:", "pettingzoo:..", "pettingzoo:x.y", "a.b.c:d"),
)
NUMBERS = (
    *(0, 1, -1, 2, 7, 255, 2**31, 2**31 - 1, -(2**31), 2**53, 2**63, 2**64, -(2**63) - 1, 10**12, 10**30, 10**4000),
    *(0.0, -0.0, 0.5, 1.5, -1.5, 1e6, 1e18, 1e300, 1e-320, float("nan"), float("inf"), float("-inf")),
)
WORDS = (
    *(None, True, False, [], {}, [[]], [{}], {"": ""}, {"x": None}, [None], [1, "a", None], {1: 2}, {None: 1}),
    {True: 1},
)

LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'ha'}]" for n in range(12))
MERGES = "\n".join(
    f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 9)}]}}" if n else "b0: &b0 {k: v}" for n in range(12)
)
SNIPPETS = (
    *(LAUGHS, MERGES, "a: &a [*a]", "a: &a {b: *a}", "&a a: *a", "<<: *x", "<<: 3", "<<: [1, 2]", "<<: {ticks: 3}"),
    *("a: &x {ticks: 1}\n<<: *x", "? [a, b]\n: c", "? {a: b}\n: c", "---\na: 1\n---\nb: 2", "...", "%YAML 9.9\n---"),
    "%TAG !",
    *("a: !!python/object/apply:os.system ['true']", "a: !!python/name:os.system", "a: !!binary x", "a: !!binary aGk="),
    *("a: !!timestamp x", "a: !!bool x", "a: !!float ''", "a: !!int ''", "a: !!int x", "a: !!set {b}"),
    *("a: !!omap [b: 1]", "a: !!pairs [b: 1]", "a: !!null x", "a: !!map []", "a: !!seq {}", "a: !!str [1]"),
    *("a: !x y", "!!seq", "a: *nowhere", "[" * 5000, "{a: " * 3000, "- " * 3000, "? " * 3000),
    *("a:\n" + " " * 3000 + "b: 1", "'", '"', '"\\ud800"', '"\\x00"', "ticks: 0x" + "f" * 5000),
    *("seed: " + "9" * 6000, "ticks: 1e999999999", "ticks: 1_0", "ticks: 0o17", "a: .5e", "=: =", "a: |\n  b"),
    *("a: >-\n\n\n", "a: |99\n  b", "\t", "\ttab: 1", "#" * 3000, "&a &b c", "[a, b", "{a: b", "a: b: c"),
    *("- a\nb: c", "matches: *m", "seats: [[[[[]]]]]", "\ufeff", "\x07", "\x85", "name: ../../x", "name: -x"),
    *("name: 'a;rm'", "x" * 300000),
)


def mutant(source: Path, seed: int) -> bytes:
    """A configuration made from a shipped one, with one to four mistakes; the same for the same seed."""
    draw = random.Random(f"{source.parent.name}/{source.name}/{seed}")
    if draw.random() < 0.65:
        return _tree(source.read_text(), draw)
    content = source.read_bytes()
    for _ in range(draw.choice((1, 1, 2, 4))):
        content = draw.choice(_OF_BYTES)(content, draw)
    return content


def _tree(text: str, draw: random.Random) -> bytes:
    data = yaml.safe_load(text)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(_places(data))
        if not places:
            break
        draw.choice(_OF_TREES)(data, draw.choice(places), draw)
    whole = yaml.dump(data, sort_keys=False, allow_unicode=draw.random() < 0.5)
    return whole.encode("utf-8", "surrogatepass")


def _places(node: Any, seen: set[int] | None = None) -> Iterator[Place]:
    """Every place once, even in self-referencing data."""
    seen = set() if seen is None else seen
    if not isinstance(node, (dict, list)) or id(node) in seen:
        return
    seen.add(id(node))
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        yield from _places(node[key], seen)


def _junk(draw: random.Random) -> Any:
    return copy.deepcopy(draw.choice(draw.choice((STRINGS, NUMBERS, WORDS))))


def _drop(_: Any, place: Place, __: random.Random) -> None:
    del place[0][place[1]]


def _replace(_: Any, place: Place, draw: random.Random) -> None:
    place[0][place[1]] = _junk(draw)


def _duplicate(_: Any, place: Place, draw: random.Random) -> None:
    node, key = place
    value = copy.deepcopy(node[key])
    if isinstance(node, list):
        node[key:key] = [value] * draw.choice((1, 2, 30))
    else:
        node[f"{key}{draw.choice(('', '2', '-', '/', ' '))}"] = value


def _rename(_: Any, place: Place, draw: random.Random) -> None:
    node, key = place
    if isinstance(node, dict):
        junk = _junk(draw)
        new = junk if isinstance(junk, (str, int, float, bool, type(None))) else f"{key}"[::-1]
        node[new] = node.pop(key)


def _retype(_: Any, place: Place, draw: random.Random) -> None:
    node, key = place
    value = node[key]
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: str(value),
        lambda: [value],
        lambda: {str(key): value},
        lambda: [value, value],
        lambda: list(value) if isinstance(value, (str, dict)) else [value],
        lambda: dict(enumerate(value)) if isinstance(value, list) else {"0": value},
        lambda: len(str(value)),
    )
    node[key] = draw.choice(kinds)()


def _number(_: Any, place: Place, draw: random.Random) -> None:
    node, key = place
    if isinstance(node[key], (int, float)):
        changed = (node[key] + 1, node[key] * 2, node[key] * 10**6, -node[key], node[key] + 0.5, draw.choice(NUMBERS))
        node[key] = draw.choice(changed)
    else:
        node[key] = draw.choice(NUMBERS)


def _swap(data: Any, place: Place, draw: random.Random) -> None:
    other, other_key = draw.choice(list(_places(data)))
    place[0][place[1]] = copy.deepcopy(other[other_key])


def _nest(_: Any, place: Place, draw: random.Random) -> None:
    node, key = place
    for _level in range(draw.choice((1, 5, 30, 60, 150))):
        node[key] = {"x": node[key]} if draw.random() < 0.5 else [node[key]]


def _cycle(data: Any, place: Place, draw: random.Random) -> None:
    """A container inside itself: in the text an anchor with an alias inside."""
    if draw.random() < 0.3:
        place[0][place[1]] = draw.choice((data, place[0]))


def _share(data: Any, place: Place, draw: random.Random) -> None:
    """The same object in a second place: in the text an anchor and an alias."""
    other, other_key = draw.choice(list(_places(data)))
    if isinstance(other[other_key], (dict, list)) and not isinstance(place[0][place[1]], (dict, list)):
        place[0][place[1]] = other[other_key]


def _add(_: Any, place: Place, draw: random.Random) -> None:
    node = place[0]
    if isinstance(node, list):
        node.append(_junk(draw))
    else:
        key = draw.choice(_KEYS) if draw.random() < 0.7 else draw.choice(STRINGS)
        node[key] = _junk(draw)


_KEYS = (
    *("name", "seed", "ticks", "rounds", "scale", "checkpoint_every", "transport", "watchdog_s", "env_timeout_s"),
    *("record", "on_env_error", "restarts", "kwargs", "idle_action", "wrappers", "options", "color", "frozen"),
    *("load", "sync", "max_lag", "entities", "env_kwargs", "copies", "lanes", "pipeline", "round_robin", "knockout"),
    *("matchmaking", "rule", "league", "sides", "team_size", "both_sides", "policies", "make", "players"),
    *("max_steps", "mirror", "payoffs", "game", "blue_obs", "function", "arguments", "hidden_sizes", "device"),
)
_OF_TREES = (
    *(_drop, _replace, _replace, _duplicate, _rename, _retype, _number, _number, _swap, _nest, _share, _add, _add),
    _cycle,
)


def _flip(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) + 1)
    return content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :]


def _cut(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    return content[:start] + content[start + draw.choice((1, 2, 5, 50, 5000)) :]


def _repeat(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    part = content[start : start + draw.randint(1, 60)]
    return content[:start] + part * draw.choice((2, 3, 20)) + content[start:]


def _noise(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    return content[:start] + draw.randbytes(draw.randint(1, 20)) + content[start:]


def _snippet(content: bytes, draw: random.Random) -> bytes:
    lines = content.split(b"\n")
    snippet = draw.choice(SNIPPETS).encode("utf-8", "surrogatepass")
    lines.insert(draw.randrange(len(lines) + 1), snippet)
    return b"\n".join(lines)


def _token(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    token = draw.choice(
        (b"&a ", b"*a", b"!!str ", b"? ", b": ", b"- ", b"#", b"|", b">", b"{", b"}", b"[", b"]", b"%", b"\0", b"\t")
    )
    return content[:start] + token + content[start:]


_OF_BYTES = (_flip, _cut, _repeat, _noise, _snippet, _snippet, _token)
