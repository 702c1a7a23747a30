"""From the command line to frozen objects: `compose` returns them or raises one ConfigError."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any, TypeVar

from syncline.checks import ConfigError, check
from syncline.config.hydra_adapter import InterpolationError, built, joined, put, to_yaml, value_at
from syncline.config.invocation import Invocation
from syncline.config.keys import Kinds, fields
from syncline.config.overrides import is_swept, refers, split, swept
from syncline.config.parts import (
    GROUPS,
    Part,
    check_key,
    checked_choice,
    choices,
    default_choices,
    experiment,
    filled,
    kind_of,
    part,
    preset,
    topmost,
    unfit,
)
from syncline.config.run import RunConfig, with_content
from syncline.config.runners import ReplayConfig, SlurmConfig

if TYPE_CHECKING:
    from syncline.config.hydra_adapter import DictConfig

MOST_RUNS = 100_000  # of a sweep; all are composed and written to a plan before the first starts
OF_REPLAY = ("runner", "tracker")  # whose keys a replay has of its own
SHORT = {"from": "runner.source", "hosts": "runner.hosts"}

Study = TypeVar("Study")
Asked = Mapping[Part, tuple[str, ...]]  # the parts of a config -> the overrides of their keys


def compose(overrides: Sequence[str]) -> tuple[RunConfig, Invocation]:
    """One config from the defaults of conf/ and these overrides, without sweeps.

    Raises:
        ConfigError: an unknown group, choice or key, or a value of the wrong type or out of range.
    """
    asked, content = _asked(overrides)
    try:
        values = {**_values(asked), "experiment": content}
        config = RunConfig(**{name: values[name] for name in fields(RunConfig)})
        invocation = Invocation(**{name: values[name] for name in fields(Invocation) if name in values})
        if any(split(word)[0] == "cluster.gradient_s" for word in overrides):  # that of a profile may be longer
            num, workers = len(config.cluster.gradient_s), config.cluster.workers
            rule = f"cluster.gradient_s must have at most cluster.workers = {workers} entries (fewer repeat)"
            check(num <= workers, rule, num)
        if isinstance(config.runner, ReplayConfig):
            others = [word for word in divided(overrides)[0] if split(word)[0].partition(".")[0] not in OF_REPLAY]
            rule = "with runner=replay, which has the config of its source, keys of a run must be of runner or tracker"
            check(not others, rule, " ".join(others))
        return with_content(config), invocation
    except ValueError as error:
        raise ConfigError(str(error)) from None


def compose_study(
    kind: type[Study], group: str, name: str, overrides: Sequence[str], declared: Mapping[str, Any] | None = None
) -> Study:
    """A study's config from a preset in conf/<group> and the overrides whose keys begin with the group.

    Args:
        name: of the preset, unless an override `<group>=<name>` names another one.
        overrides: of this group.
        declared: values that stand above the preset's and below the overrides'.

    Raises:
        ConfigError: an unknown preset or key, or a value of the wrong type or out of range.
    """
    words = list[str]()
    for word in overrides:
        if split(word)[0] == group:
            name = checked_choice(word)
        else:
            check_key({group: kind}, word)
            words.append(word)
    try:
        study: Study = built(filled(preset(group, name, kind), declared or {}).changed(words).node)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return study


def compose_yaml(overrides: Sequence[str]) -> str:
    """The composed config as YAML, before any check of ranges. Raises ConfigError as `compose`."""
    return to_yaml(_whole(_asked(overrides)[0]))


def sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The product of the sweeps (`seed=0,1`, `seed=range(0,3)`) among overrides, as lists of plain overrides.

    Of a key the last override counts.

    Raises:
        ConfigError: an invalid override, or more than MOST_RUNS runs.
    """
    values: dict[str, list[str]] = {}
    for word in overrides:
        key, text = split(word)
        if is_swept(word) and _is_of_all_runs(key):
            raise ConfigError(f"{key} must have one value, which all runs share, got {text}")
        values[key] = list(islice(swept(word, choices), MOST_RUNS + 1))
    if math.prod(map(len, values.values())) > MOST_RUNS:
        raise ConfigError(f"{' '.join(overrides)}: a sweep must have {MOST_RUNS:,} runs at most, got more")
    return [list(run) for run in product(*values.values())]


def divided(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides that are part of what a run is, and those of how runs are chosen and made; both in full."""
    words = _in_full(overrides)
    of_run = [word for word in words if not _is_of_all_runs(split(word)[0])]
    return of_run, [word for word in words if _is_of_all_runs(split(word)[0])]


def apart(group: str, overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides of a group, and the others."""
    own = [word for word in overrides if split(word)[0].partition(".")[0] == group]
    return own, [word for word in overrides if word not in own]


def _is_of_all_runs(key: str) -> bool:
    """Whether a key is not part of a run, so that it cannot be swept."""
    return key.partition(".")[0] in fields(Invocation)


def _in_full(overrides: Sequence[str]) -> list[str]:
    """The overrides with abbreviations expanded.

    `runner=slurm`, as in other systems, stands for `launcher=slurm`, since who starts a run does not change its
    identity; `runner.partition=gpu` and the like accordingly.
    """
    of_slurm = {f"runner.{name}" for name in fields(SlurmConfig)} if "runner=slurm" in overrides else set()

    def in_full(word: str) -> str:
        key = split(word)[0]
        if word == "runner=slurm" or key in of_slurm:
            return word.replace("runner", "launcher", 1)
        return word.replace(key, SHORT[key], 1) if key in SHORT else word

    return [in_full(word) for word in overrides]


def _asked(overrides: Sequence[str]) -> tuple[Asked, dict[str, Any] | None]:
    """The parts that overrides choose, with the overrides of their keys, and the content of an experiment.

    Keys are set after all choices, in any order of words.

    Raises:
        ConfigError: a word is no override of one value, its key is unknown, or it chooses what is not there.
    """
    chosen, words = dict(default_choices()), list[str]()
    for word in _in_full(overrides):
        key = split(word)[0]
        if key in (*GROUPS, "experiment") and not is_swept(word):
            chosen[key] = checked_choice(word)
        else:
            words.append(word)
    content = experiment(chosen.pop("experiment")) if "experiment" in chosen else None
    parts = [topmost(), *(part(group, name) for group, name in chosen.items())]
    kinds: Kinds = {key: kind for each in parts for key, kind in each.kinds.items()}
    for word in words:
        check_key(kinds, word)
    return {each: tuple(word for word in words if each.has(split(word)[0])) for each in parts}, content


def _values(asked: Asked) -> dict[str, Any]:
    """The value of each topmost key. Raises ConfigError: one is not of the type of its key, or refers to nothing."""
    words = chain.from_iterable(asked.values())
    if any(map(refers, words)) or any(each.refers and each.is_users for each in asked):
        whole = _whole(asked)
        return {str(key): built(whole[key]) for key in whole}
    return {key: value for each, words in asked.items() for key, value in each.values(words).items()}


def _whole(asked: Asked) -> "DictConfig":
    """The node of all keys, whose interpolations may refer to each other. Raises ConfigError: as `_values`."""
    whole = joined({each.group: each.changed(words).node for each, words in asked.items()})
    for each, words in asked.items():
        for word in words:
            key, text = split(word)
            if not refers(word):
                continue
            try:
                put(whole, key, value_at(whole, key))
            except InterpolationError:
                allowed = "${KEY} of another key, or ${oc.env:NAME} of a variable that is set"
                raise ConfigError(f"{word} cannot be resolved; write {allowed}") from None
            except ValueError:
                raise unfit(key, kind_of(each.kinds, key, text), text) from None
    return whole
