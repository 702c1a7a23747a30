"""Converts a text of the command line to the type that the schema declares for its key."""

import dataclasses
import os
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from syncline.config.hydra_adapter import parse_literal

NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
EXAMPLES = {int: "1", float: "1.5", str: "abc"}
BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def fields(kind: Any) -> Mapping[str, Any]:
    """The declared types of a dataclass."""
    return _fields(kind)


@cache
def _fields(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return MappingProxyType({each.name: hints[each.name] for each in dataclasses.fields(kind)})


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


def read(kind: Any, text: str) -> Any:
    """Parse a text as a value of this type; with `${` in it, it is left to be resolved.

    A string is taken literally, with `~` for the home folder; quotes prevent other interpretations. Lists and mappings
    are in Hydra's grammar.

    Raises:
        ValueError, OverflowError: it is not a value of this type.
    """
    inner, begin = required(kind), text[:1]
    if text == "???":  # OmegaConf's sign of a missing value
        raise ValueError(text)
    if (begin in ("'", '"') and text.endswith(begin)) or (begin in ("[", "{") and inner is not str):
        value = parse_literal(text)
    elif text.lower() == "null":
        value = None
    elif inner is Any:
        value = scalar(text)
    else:
        value = os.path.expanduser(text) if inner is str else text
    return value if "${" in text else converted(kind, value)


def converted(kind: Any, value: Any) -> Any:
    """Convert a plain value, or the text of one, to this type; a mapping for a dataclass is not changed.

    Raises:
        ValueError, OverflowError: it is not a value of this type.
    """
    inner, arguments = required(kind), get_args(required(kind))
    if inner is Any or (value is None and inner is not kind):
        return value
    if get_origin(inner) in (list, tuple):  # one value stands for a list of one
        return [converted(arguments[0], each) for each in (value if isinstance(value, list) else [value])]
    if isinstance(value, dict):
        if get_origin(inner) is dict:
            return {converted(arguments[0], key): converted(arguments[1], each) for key, each in value.items()}
        if dataclasses.is_dataclass(inner):
            return value
    elif inner is bool and str(value).lower() in BOOLS:
        return BOOLS[str(value).lower()]
    elif inner in (int, float, str) and isinstance(value, str | int | float) and not isinstance(value, bool):
        return whole(value) if inner is int else inner(value)
    raise ValueError(value)


def whole(value: str | float) -> int:
    """A whole number, which may be written as a float: 1e3."""
    try:
        return int(str(value))
    except ValueError:
        number = int(float(value))
        if number != float(value):
            raise
        return number


def scalar(text: str) -> Any:
    """Parse a text where no type is declared."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
