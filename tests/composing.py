"""For tests of the config: composing once, its leaves, whether what is said arrives, the line of an error."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from syncline.config import CONF, DATASETS, GROUPS, MODELS, ConfigError, Invocation, RunConfig, compose
from syncline.config.parts import default_choices
from tests.refusals import refusal


def leaves(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every leaf of nested mappings."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


NOWHERE = object()


def found(part: Any, path: str) -> Any:
    """What the dotted path leads to, through attributes and mappings, or NOWHERE."""
    for key in path.split("."):
        name = int(key) if key.isdigit() else key  # of a worker, in a mapping
        part = part.get(name, NOWHERE) if isinstance(part, dict) else getattr(part, key, NOWHERE)
    return part


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


@cache
def said(word: str) -> tuple[str, Any]:
    """Key and value of an override, in Hydra's grammar."""
    (read,) = OverridesParser.create().parse_overrides([word])
    return read.key_or_group, read.value()


@cache
def file_of(group: str, choice: str) -> dict[str, Any]:
    """What a file of conf/ says itself, without those that it builds on."""
    content: dict[str, Any] = yaml.safe_load((CONF / group / f"{choice}.yaml").read_text())
    return content


def parsed(overrides: Sequence[str]) -> dict[str, Any]:
    """What the overrides set, by dotted path: what a chosen group's file holds, then the keys; the last one wins."""
    read = [said(word) for word in overrides]
    values: dict[str, Any] = {}
    for group, choice in {key: value for key, value in read if key in GROUPS}.items():
        values |= {f"{group}.{key}": value for key, value in file_of(group, choice).items() if key != "defaults"}
    for key, value in read:
        if key not in GROUPS:
            values.pop(key, None)  # what is set last is last
            values[key] = value
    return {
        key: value
        for i, (key, value) in enumerate(values.items())
        if not any(later.startswith(f"{key}.") for later in list(values)[i + 1 :])  # changed in part, further down
    }


def agrees(wanted: Any, arrived: Any) -> bool:
    """Whether a value of a file is what the config holds: distributions by what they name, the rest by equality."""
    if isinstance(wanted, dict) and not isinstance(arrived, dict):
        inner = getattr(arrived, "source", arrived)  # a delay with a probability wraps its distribution
        return all(agrees(wanted[key], found(arrived if key == "probability" else inner, key)) for key in wanted)
    return str(wanted).startswith("${oc.env:") or bool(wanted == arrived)


def misses(overrides: Sequence[str], config: RunConfig, invocation: Invocation) -> list[str]:
    """The values among these overrides that did not arrive."""
    missed = []
    for path, wanted in parsed(overrides).items():
        arrived = found(invocation if hasattr(invocation, path.partition(".")[0]) else config, path)
        if not agrees(wanted, arrived):
            missed.append(f"{path} = {wanted!r}, but {arrived!r} arrived")
    return missed


def line_of(*overrides: str) -> str:
    """The error that these overrides give; it must be one line."""
    return refusal(ConfigError, compose, overrides)


def assert_refused(overrides: Sequence[str], key: str, *parts: str) -> None:
    """In one line, which begins with the key and has these parts: what is allowed, what was given."""
    line = line_of(*overrides)
    assert line.startswith(key), line
    assert [part for part in parts if part not in line] == [], line
