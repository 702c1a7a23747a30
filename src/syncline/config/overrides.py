"""The overrides of the command line, in Hydra's grammar: one by one, and the runs of a sweep."""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from syncline.checks import ConfigError
from syncline.config.hydra_adapter import parse

if TYPE_CHECKING:
    from syncline.config.hydra_adapter import Override


def split(word: str) -> tuple[str, str]:
    """The key of an override, without its + or ~, and the text of its value."""
    key, _, text = word.lstrip("+~").partition("=")
    return key, text.strip()


def parsed(word: str) -> "Override":
    """An override. Of a path the grammar has neither ~, which is the home folder as in a shell, nor letters such as é.

    Raises:
        ConfigError: the word is no override.
    """
    key, equals, text = word.partition("=")
    text = os.path.expanduser(text)
    if not text.isascii() and not set(text) & set("()[]{},='\"\\$"):
        text = f"'{text}'"
    try:
        override = parse(f"{key}{equals}{text}")
    except ValueError as error:
        raise _unreadable(word, str(error)) from None
    if not override.key_or_group:
        raise _unreadable(word, "")
    if override.is_hydra_override():
        rule = "results= is the folder of the records, launcher= says who starts runs, and -m makes sweeps itself"
        raise ConfigError(f"{word}: Hydra's own settings cannot be set; {rule}")
    return override


def _unreadable(word: str, error: str) -> ConfigError:
    key, text = split(word)
    if not key or "=" not in word:
        return ConfigError(f"{word!r} is not key=value, such as seed=1")
    if " while evaluating " in error:  # a function, such as choice(a,b)
        return ConfigError(f"{word}: {' '.join(error.partition(': ')[2].split())}")
    rule = "brackets must be closed, and text with other characters than letters, digits and /-\\+.$%*@?|: quoted"
    return ConfigError(f"{word} cannot be read: {rule}, as in {key}=\"'{text}'\"")


def refers(word: str) -> bool:
    """Whether the value of an override has an interpolation."""
    return "${" in str(parsed(word).value())


def is_swept(word: str) -> bool:
    """Whether an override has several values: `a,b`, `choice(a,b)`, `range(0,3)`, `glob(*)`."""
    return parsed(word).is_sweep_override()


def swept(word: str, choices: Callable[[str], list[str]]) -> Iterator[str]:
    """An override for each value of this one.

    Args:
        choices: of a group.

    Raises:
        ConfigError: there are no values, or no end of them.
    """
    override = parsed(word)
    key, value = override.get_key_element(), cast(Any, override.value())
    if not override.is_sweep_override():
        yield word
    elif override.is_interval_sweep():
        raise ConfigError(f"{word}: an interval has no single values; write range(FIRST,END,STEP) or choice(A,B)")
    elif hasattr(value, "filter"):  # a glob
        known = choices(split(word)[0])
        found = value.filter(known)
        if not found:
            raise ConfigError(f"{word} must match some of {', '.join(known) or 'the choices of a group'}")
        yield from (f"{key}={each}" for each in found)
    else:
        try:
            yield from (f"{key}={text}" for text in override.sweep_string_iterator())
        except (ValueError, ArithmeticError):
            rule = "a range is range(FIRST,END) or range(FIRST,END,STEP) of numbers, STEP not 0"
            raise ConfigError(f"{word}: {rule}") from None
