"""Splits the overrides of the command line, `key=text`, and the values of sweeps."""

import difflib
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal

from syncline.config.checks import ConfigError

CLOSING = {"[": "]", "{": "}", "(": ")"}


def split(word: str) -> tuple[str, str]:
    """Key and text. A `+` before the key is ignored, as the schema has every key.

    Raises:
        ConfigError: it is not an override.
    """
    key, equals, text = word.lstrip("+").partition("=")
    if key.startswith("~"):
        raise ConfigError(f"{word}: nothing can be deleted; write {key[1:]}=VALUE, or leave it out for the default")
    if not (key and equals):
        raise ConfigError(f"{word!r} is not key=value, such as seed=1")
    return key, text.strip()


def pieces(text: str) -> list[str]:
    """The values of a sweep: split at commas outside of brackets and quotes.

    A quote counts only at the beginning of a value; within a word it is an apostrophe.
    """
    found, begin, closing, quote, at_begin = [], 0, [], "", True
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and at_begin:
            quote = char
        elif char in CLOSING:
            closing.append(CLOSING[char])
        elif closing and char == closing[-1]:
            closing.pop()
        elif char == "," and not closing:
            found.append(text[begin:place].strip())
            begin = place + 1
        at_begin = char in ",:([{" or (at_begin and char.isspace())
    return [*found, text[begin:].strip()]


def is_swept(text: str) -> bool:
    """Whether it has several values: `a,b`, `choice(a,b)` or `range(0,3)`."""
    return len(pieces(text)) > 1 or _inside("choice", text) is not None or _inside("range", text) is not None


def swept(key: str, text: str) -> tuple[int, Callable[[int], str]]:
    """The number of values in a text, and a function from their index to their text; a range is not expanded.

    Raises:
        ConfigError: a value is missing, or the range is invalid.
    """
    span = _inside("range", text)
    if span is None:
        chosen = _inside("choice", text)
        values = pieces(text if chosen is None else chosen)
        if len(values) > 1 and "" in values:
            raise ConfigError(f"{key}={text}: a value is missing beside a comma")
        return len(values), values.__getitem__
    try:
        numbers = [Decimal(number) for number in pieces(span)]
        first, end, step = {1: (Decimal(0), *numbers, Decimal(1)), 2: (*numbers, Decimal(1))}.get(len(numbers), numbers)
        num = math.ceil(max(Decimal(0), min((end - first) / step, Decimal(10**12))))
    except (ArithmeticError, ValueError):
        rule = "a range is range(FIRST,END) or range(FIRST,END,STEP) of numbers, STEP not 0"
        raise ConfigError(f"{key}={text}: {rule}") from None
    return num, lambda place: f"{(first + place * step).normalize():f}"


def _inside(name: str, text: str) -> str | None:
    """The content of `name(...)`; None if the text has another form."""
    call = re.fullmatch(rf"{name}\((.*)\)", text, flags=re.DOTALL)
    return call and call.group(1)


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
