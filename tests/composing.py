"""What the tests of the config share: composing once, its leaves, the line of an error."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from syncline.config import ConfigError, Invocation, RunConfig, compose


def leaves(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every leaf of nested mappings."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def found(config: Any, path: str) -> Any:
    """What the dotted path leads to, through attributes and mappings."""
    for key in path.split("."):
        config = config[int(key)] if isinstance(config, dict) else getattr(config, key)
    return config


@cache
def composed(*words: str) -> tuple[RunConfig, Invocation]:
    """Once for all tests: composing takes a tenth of a second."""
    return compose(words)


def line_of(*overrides: str) -> str:
    """The error that these overrides give; it must be one line."""
    with pytest.raises(ConfigError) as refused:
        compose(overrides)
    line = str(refused.value)
    assert line, overrides
    assert "\n" not in line, line
    return line
