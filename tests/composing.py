"""For tests of the config: composing once, its leaves, the line of an error."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import yaml

from syncline.config import CONF, DATASETS, MODELS, ConfigError, Invocation, RunConfig, compose
from syncline.config.parts import default_choices


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
        name = int(key) if key.isdigit() else key  # of a worker, in a mapping
        config = config[name] if isinstance(config, dict) else getattr(config, key)
    return config


# A model and a data set of each task, by the names of their files; classification is the default.
PAIRS = {
    "ctr": ("deepfm", "ctr_synthetic"),
    "generation": ("draw_small", "digits"),
    "language": ("char_lstm", "pydoc_text"),
    "next_token": ("gpt_nano", "tokens"),
    "qa": ("bert_tiny", "qa_synthetic"),
    "regression": ("mlp", "arrays"),
}


def chosen(group: str, choice: str) -> str:
    """The word that chooses it; a group without a default is added."""
    return f"{'' if group in default_choices() else '+'}{group}={choice}"


def choosing(group: str, choice: str) -> tuple[str, ...]:
    """The words that choose it, with what else must be chosen so that it composes."""
    words = [chosen(group, choice)]
    if group == "cluster":
        words.append("strategy=bsp")  # the default needs one server, a cluster may have more
    if (group, choice) == ("dataset", "text"):
        words.append("dataset.path=book.txt")
    if choice == "elastic":
        words.append("local=easgd")
    if group == "task" and choice in PAIRS:
        words += [f"{key}={name}" for key, name in zip(("model", "dataset"), PAIRS[choice], strict=True)]
    if choice in ("arrays", "regression"):
        words.append("dataset.path=mine.npz")
    if choice in ("tokens", "next_token"):
        words += ["dataset.path=train.bin", "dataset.test_path=val.bin"]
    if group in ("model", "dataset"):
        name = yaml.safe_load((CONF / group / f"{choice}.yaml").read_text())["name"]
        tasks = MODELS[name].tasks if group == "model" else DATASETS[name].tasks
        if tasks and "classification" not in tasks:
            model, dataset = PAIRS[tasks[0]]
            words.append(f"dataset={dataset}" if group == "model" else f"model={model}")
    return tuple(words)


@cache
def composed(*words: str) -> tuple[RunConfig, Invocation]:
    """Composed once for all tests."""
    return compose(words)


def line_of(*overrides: str) -> str:
    """The error that these overrides give; it must be one line."""
    with pytest.raises(ConfigError) as refused:
        compose(overrides)
    line = str(refused.value)
    assert line, overrides
    assert "\n" not in line, line
    return line


def assert_refused(overrides: Sequence[str], key: str, *parts: str) -> None:
    """In one line, which begins with the key and has these parts: what is allowed, what was given."""
    line = line_of(*overrides)
    assert line.startswith(key), line
    assert [part for part in parts if part not in line] == [], line
