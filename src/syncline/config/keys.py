"""The declared keys of a config: their types, what they may hold, and those that are like a misspelt one."""

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
EXAMPLES = {int: "1", float: "1.5", str: "abc"}

Kinds = Mapping[str, Any]  # key -> declared type


def fields(kind: Any) -> Kinds:
    """The declared types of a dataclass."""
    return _fields(kind)


@cache
def _fields(kind: Any) -> Kinds:
    hints = get_type_hints(kind)
    return MappingProxyType({each.name: hints[each.name] for each in dataclasses.fields(kind)})


def leaves(kinds: Kinds, above: str = "") -> Iterator[str]:
    """The dotted keys below which nothing is declared."""
    for name, kind in kinds.items():
        if dataclasses.is_dataclass(kind):
            yield from leaves(fields(kind), f"{above}{name}.")
        else:
            yield f"{above}{name}"


def required(kind: Any) -> Any:
    """The type without None."""
    return next(arg for arg in get_args(kind) if arg is not type(None)) if isinstance(kind, UnionType) else kind


def described(kind: Any) -> str:
    """A description of the values of this type, for errors."""
    inner = required(kind)
    if inner is Any:
        return "text, a number, [a list] or {name: value}"
    if dataclasses.is_dataclass(inner):
        noun = "{" + ", ".join(f"{each.name}: ..." for each in dataclasses.fields(inner)) + "}"
    elif get_origin(inner) in (list, tuple):
        noun = f"a list such as [{EXAMPLES[get_args(inner)[0]]}, ...]"
    elif get_origin(inner) is dict:
        noun = "a mapping such as {{{}: {}}}".format(*(EXAMPLES[arg] for arg in get_args(inner)))
    else:
        noun = NOUNS[inner]
    return noun if inner is kind else f"{noun} or null"


def nearest(given: str, known: Iterable[str]) -> list[str]:
    """The known names closest to the given one, the closest first."""
    return difflib.get_close_matches(given, list(known), n=2)


def nearest_keys(key: str, known: Iterable[str]) -> list[str]:
    """The one or two known dotted keys closest to this one; the part before the last dot may be missing or differ."""

    def likeness(each: str) -> float:
        pairs = ((key, each), (key.rpartition(".")[2], each.rpartition(".")[2]))
        return sum(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs) / 2

    by_likeness = {each: likeness(each) for each in known}
    least = max(0.6, max(by_likeness.values()) - 0.1)
    return [each for each in sorted(by_likeness, key=lambda each: -by_likeness[each]) if by_likeness[each] >= least][:2]


def meant(near: Iterable[str]) -> str:
    """The suggestion at the end of an error; empty without one."""
    names = " or ".join(near)
    return f"; did you mean {names}?" if names else ""
