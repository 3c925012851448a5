"""Extension of Griffe: the fields of structs, tuples and data classes as a table, described by their comments.

A field such as `gamma: float = 0.99  # discount per step` is described by its comment, which the command line shows
too; mkdocstrings reads docstrings alone.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Class, Docstring, DocstringParameter, DocstringSectionParameters, Extension, Module

_GIVEN = re.compile(
    r"arena\.(seat\..*Proxy|group\..*Group|opened\.Run|serving\..*|trainer\.player\..*|experiment\..*\.(Outcome|Trial)"
    r"|external\.actor\.(Remote\w+|Forward)|external\.slots\.Slots|league\.view\..*)$"
)
"""Classes that no program makes objects of: how they are made is left out."""
_ALIASES = {"ListOf": "Sequence", "MapOf[": "Mapping[str, "}  # what a type checker sees
_ALIAS = re.compile(r"ListOf|MapOf\[")
_COMMENT = re.compile(r"  # (.+)$")
_KINDS = re.compile(r"\b(NamedTuple|Struct|dataclass)\b")
_NULL = re.compile(r"\bnull\b")
_SHAPE = re.compile(r"(?<!`)((?:\[[\w, *.]+\])+)")
_QUIET = {"warn_unknown_params": False, "warn_missing_types": False}


class FieldComments(Extension):
    """Describes the fields of a class; of a configuration's structs it keeps `to_yaml` and no other method."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Goes through all classes of a package that has been read."""
        modules = [pkg]
        for module in modules:
            modules += [member for member in module.modules.values() if not member.is_alias]
            for cls in module.classes.values():
                if not cls.is_alias and cls.docstring is not None:
                    _describe(cls, cls.docstring)


def _describe(cls: Class, docstring: Docstring) -> None:
    if _GIVEN.match(cls.path):
        cls.members.pop("__init__", None)
        docstring.parsed = [part for part in docstring.parse("google", **_QUIET) if part.kind.value != "parameters"]
        return
    family = [*reversed(cls.mro()), cls]
    marks = [str(mark) for one in family for mark in (*one.bases, *(found.value for found in one.decorators))]
    if not _KINDS.search(" ".join(marks)):
        return
    sections = docstring.parse("google", **_QUIET)
    given = [item for part in sections if part.kind.value == "parameters" for item in part.value]
    listed = {item.name: item.description for item in given}
    fields = {}
    for member in (member for one in family for member in one.members.values()):
        if isinstance(member, Attribute) and member.annotation is not None and member.is_public:
            if member.labels == {"class-attribute"} or "property" in member.labels:  # `ClassVar`: Griffe takes it off
                continue
            fields[member.name] = DocstringParameter(
                member.name,
                annotation=_ALIAS.sub(lambda found: _ALIASES[found[0]], str(member.annotation)),
                description=listed.get(member.name) or _comment_of(member),
                value=_default(member.value),
            )
            member.docstring = None  # shown in the table alone
    docstring.parsed = [part for part in sections if part.kind.value != "parameters"]
    docstring.parsed.append(DocstringSectionParameters([*fields.values()]))
    if cls.path.startswith("arena.config."):
        cls.members = {name: one for name, one in cls.members.items() if name in fields or name == "to_yaml"}


def _comment_of(field: Attribute) -> str:
    """The docstring below a field, or the comment behind it, with shapes as code; in Python null is None."""
    found = _COMMENT.search(field.lines_collection[field.filepath][(field.endlineno or 1) - 1])
    text = field.docstring.value if field.docstring is not None else "" if found is None else found[1]
    return _SHAPE.sub(r"`\1`", _NULL.sub("None", text))


def _default(value: Any) -> str | None:
    """The default that a field's value gives; None: it has none."""
    text = "" if value is None else str(value)
    if "field(" not in text:
        return text or None
    found = re.search(r"default(?:_factory)?=([^,)]+)", text)
    return None if found is None else found[1]
