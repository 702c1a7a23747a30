"""Checks of a config: its error, single rules, ranges and choices of fields, and the bounds of all numbers.

A class declares the range of a field with it (`ranged`, `one_of`), and checks by itself what concerns several. The
bounds hold for every number of every class: it is finite, and within what a machine can build or count to.
"""

import dataclasses
from collections.abc import Iterator
from math import inf
from typing import Any, get_args

LARGEST = 10**9  # unless the field has a largest number of its own: 32 years of seconds, a billion samples
SMALLEST = 1e-30  # unless 0: it and its inverse are finite as float32
SEEDS = "in 0 .. 4,294,967,295"


class ConfigError(ValueError):
    """An invalid config; the message is one line: what was given, what is allowed."""

    def __init__(self, line: str) -> None:
        super().__init__("".join(char if char.isprintable() else repr(char)[1:-1] for char in line))


def check(condition: bool, rule: str, given: object) -> None:
    if not condition:
        raise ConfigError(f"{rule}, got {given}")


def check_choice(key: str, given: object, allowed: tuple[str, ...]) -> None:
    check(given in allowed, f"{key} must be one of {', '.join(allowed)}", given)


def ranged(default: Any, rule: str) -> Any:
    """A field with this default whose number must be in a range, and finite.

    Args:
        default: dataclasses.MISSING for none.
        rule: `> 0`, `>= 1`, `in [0, 1)`, `in 68 .. 512`. Null is allowed where the type of the field allows it. A field
            whose list must have such numbers has it as `range` in its metadata.
    """
    return dataclasses.field(default=default, metadata={"range": rule})


def one_of(default: str, allowed: tuple[str, ...]) -> Any:
    """A field with this default whose text must be one of these."""
    return dataclasses.field(default=default, metadata={"choices": allowed})


class Checked:
    """Base of dataclasses that check their fields of `ranged` and `one_of`."""

    __slots__ = ()

    @property
    def _where(self) -> str:
        """Its own key."""
        return ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            key, value = f"{self._where}.{field.name}".lstrip("."), getattr(self, field.name)
            if choices := field.metadata.get("choices"):
                check_choice(key, value, choices)
            elif rule := field.metadata.get("range"):
                may_be_null = type(None) in get_args(field.type)
                numbers = value if isinstance(value, list) else [] if value is None and may_be_null else [value]
                allowed = f"{rule} or null" if may_be_null else rule
                check(all(_is_within(number, rule) for number in numbers), f"{key} must be {allowed}", value)


def _is_within(number: float, rule: str) -> bool:
    match rule.replace(",", "").split():
        case [">", low]:
            return float(low) < number < inf
        case [">=", low]:
            return float(low) <= number < inf
        case ["in", low, "..", high]:
            return float(low) <= number <= float(high)
        case ["in", low, high]:
            is_above = number >= float(low[1:]) if low[0] == "[" else number > float(low[1:])
            return is_above and (number <= float(high[:-1]) if high[-1] == "]" else number < float(high[:-1]))
    raise AssertionError(rule)


def check_numbers(config: Any, where: str = "") -> None:
    """Check that all numbers in a dataclass and its parts are within their bounds; `where` is its own key.

    Raises:
        ConfigError: one is not.
    """
    for key, value, most in _numbers(where, config, LARGEST):
        check(abs(value) < inf, f"{key} must be a finite number", value)  # nan is not, either
        check(abs(value) <= most, f"{key} must be <= {most:,}", value)
        check(value == 0 or abs(value) >= SMALLEST, f"{key} must be >= {SMALLEST:g} where it is not 0", value)


def _numbers(key: str, value: Any, most: float) -> Iterator[tuple[str, int | float, float]]:
    """(dotted key, number, its upper bound) of all in a value; those in a list or a mapping have the key of that."""
    if isinstance(value, bool | str | None):
        return
    if isinstance(value, int | float):
        yield key, value, most
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(key, item, most)
    elif isinstance(value, dict):
        yield from _numbers(key, [*value, *value.values()], most)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            # In a config, the parameters of an occasional delay are next to its probability.
            below = key if field.name == "source" else f"{key}.{field.name}" if key else field.name
            has_own = field.metadata.get("range", "").startswith("in ")  # which its class has checked
            yield from _numbers(below, getattr(value, field.name), inf if has_own else LARGEST)
