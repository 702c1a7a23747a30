"""Checks of a config: its error, single rules, ranges and choices of fields, and the bounds of all numbers.

A class declares the range of a field with it (`ranged`, `one_of`), and checks by itself what concerns several. The
bounds hold for every number of every class: it is finite, and within what a machine can build or count to.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, ClassVar, get_args

LARGEST = 10**9  # unless BOUNDS has the key: 32 years of seconds, a billion samples
SMALLEST = 1e-30  # unless 0: it and its inverse are finite as float32
SEEDS = 2**32 - 1

BOUNDS: Mapping[str, int] = {
    "seed": SEEDS,
    "threads": 512,  # each takes 8 MB of address space
    "cluster.message_bytes": 10**12,
    "cluster.shards": 10_000,
    "cluster.workers": 100_000,
    "dataset.image_size": 4096,
    "dataset.length": 10**6,
    "dataset.loaders": 1024,
    "dataset.num_classes": 10**6,
    "dataset.seed": SEEDS,
    "dataset.split_seed": SEEDS,
    "dataset.values": 10**6,
    "dataset.vocab_size": 10**7,
    "local.steps": 10**6,
    "model.depth": 2000,
    "model.embedding_size": 2**16,
    "model.glimpses": 1000,
    "model.hidden": 2**20,
    "model.hidden_size": 2**16,
    "model.intermediate_size": 2**18,
    "model.latent_size": 2**16,
    "model.num_heads": 2**16,
    "model.num_layers": 1000,
    "model.read_size": 4096,
    "model.width": 2**12,
    "model.write_size": 4096,
    "race.tune.seeds": SEEDS,
    "runner.nodes": 10_000,
    "runner.nproc_per_node": 100_000,
    "scale.seeds": SEEDS,
    "strategy.k": 10**6,
    "strategy.k_cap": 10**6,
    "strategy.r_max": 10_000,  # DSSP's controller tries all
    "tune.seeds": SEEDS,
}


class ConfigError(ValueError):
    """An invalid config; the message is one line: what was given, what is allowed."""

    def __init__(self, line: str) -> None:
        super().__init__("".join(char if char.isprintable() else repr(char)[1:-1] for char in line))


def check(condition: bool, rule: str, given: object) -> None:
    if not condition:
        raise ConfigError(f"{rule}, got {given}")


def check_choice(key: str, given: object, allowed: tuple[str, ...]) -> None:
    check(given in allowed, f"{key} must be one of {', '.join(allowed)}", given)


def ranged(default: float | None, rule: str) -> Any:
    """A field with this default whose number must be in a range, and finite.

    Args:
        rule: `> 0`, `>= 1`, `in [0, 1)`, `in 68 .. 512`. Null is allowed where the type of the field allows it. A field
            whose list must have such numbers has it as `range` in its metadata.
    """
    return dataclasses.field(default=default, metadata={"range": rule})


def one_of(default: str, allowed: tuple[str, ...]) -> Any:
    """A field with this default whose text must be one of these."""
    return dataclasses.field(default=default, metadata={"choices": allowed})


@dataclasses.dataclass(frozen=True)
class Checked:
    """A part of a config that checks its fields of `ranged` and `one_of`."""

    _where: ClassVar[str] = ""  # its own key

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
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
    for key, value in _numbers(where, config):
        most = BOUNDS.get(key, LARGEST)
        check(abs(value) < inf, f"{key} must be a finite number", value)  # nan is not, either
        check(abs(value) <= most, f"{key} must be <= {most:,}", value)
        check(value == 0 or abs(value) >= SMALLEST, f"{key} must be >= {SMALLEST:g} where it is not 0", value)


def _numbers(key: str, value: Any) -> Iterator[tuple[str, int | float]]:
    """(dotted key, number) of every number in a value; those in a list or a mapping have the key of that."""
    if isinstance(value, bool | str | None):
        return
    if isinstance(value, int | float):
        yield key, value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(key, item)
    elif isinstance(value, dict):
        yield from _numbers(key, [*value, *value.values()])
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            # In a config, the parameters of an occasional delay are next to its probability.
            below = key if field.name == "source" else f"{key}.{field.name}" if key else field.name
            yield from _numbers(below, getattr(value, field.name))
