"""From the command line to frozen objects: `compose` returns them or raises one ConfigError.

Hydra merges the files of conf/ (hydra_adapter.py); the overrides of the command line are parsed and set here (words.py,
reading.py), by the declared type of their key.
"""

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeVar, get_origin

from syncline.config import own
from syncline.config.checks import ConfigError, check, check_numbers
from syncline.config.folders import files as users_files
from syncline.config.hydra_adapter import InterpolationError, compose_file, read_yaml, resolve, to_yaml
from syncline.config.local_steps import LocalStepsConfig
from syncline.config.reading import converted, described, fields, read, required
from syncline.config.run import OWN_BASES, TABLES, RunConfig, with_content
from syncline.config.runners import LAUNCHERS, HereConfig, Launcher, SlurmConfig
from syncline.config.words import is_swept, meant, nearest, nearest_keys, split, swept
from syncline.installation import shipped
from syncline.timing.cluster import ClusterConfig, ScenarioConfig

CONF = shipped("conf")
MOST_RUNS = 100_000  # of a sweep; all are composed and written to a plan before the first starts
SHORT = {"from": "runner.source", "hosts": "runner.hosts"}

Kinds = Mapping[str, Any]  # the declared types of keys
Study = TypeVar("Study")


@dataclass(frozen=True)
class ScaleConfig:
    """The size of an artefact; each experiment defines what it means for its runs."""

    name: str = "laptop"
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])  # each for every run of the grid

    def __post_init__(self) -> None:
        are_distinct = bool(self.seeds) and len(set(self.seeds)) == len(self.seeds)
        check(are_distinct, "scale.seeds must be one or more, which differ", self.seeds)
        check(min(self.seeds) >= 0, "scale.seeds must be in 0 .. 2^32 - 1", self.seeds)
        check_numbers(self, "scale")


@dataclass(frozen=True)
class Invocation:
    """How to execute one or many runs; never part of a run's identity."""

    scale: ScaleConfig = field(default_factory=ScaleConfig)
    launcher: Launcher = field(default_factory=HereConfig)  # who starts the runs
    experiment: Any = None  # conf/experiment/<paper>/<artefact>.yaml
    results: str = "results"  # folder of the records
    rerun: bool = False  # repeat what is finished
    jobs: int | None = None  # runs at a time; None: one a core
    fail_fast: bool = False  # the first failure stops the others
    debug: bool = False  # show tracebacks

    def __post_init__(self) -> None:
        check(self.results != "", "results must be a folder", "nothing")
        check(self.jobs is None or self.jobs >= 1, "jobs must be >= 1 or null", self.jobs)
        is_slurm = isinstance(self.launcher, SlurmConfig)
        check(
            not (is_slurm and self.rerun), "rerun must be false in Slurm, whose tasks leave finished runs", self.rerun
        )


@dataclass(frozen=True)
class _Root(RunConfig, Invocation):
    """All keys of the command line.

    A group whose choices have different fields must start empty, or Hydra would only accept the fields of the first.
    """

    model: Any = None
    dataset: Any = None
    task: Any = None
    optimizer: Any = None
    strategy: Any = None
    compress: Any = None
    runner: Any = None
    tracker: Any = None
    launcher: Any = None


GROUPS: dict[str, Mapping[str, type[Any]]] = {
    **TABLES,
    "cluster": {"cluster": ClusterConfig},
    "scenario": {"scenario": ScenarioConfig},
    "local": {"local": LocalStepsConfig},
    "scale": {"scale": ScaleConfig},
    "launcher": LAUNCHERS,
}


def choices(group: str) -> list[str]:
    """The choices of a group: the files of conf/<group>, and of <group> in the user's folders.

    Raises:
        ConfigError: a choice is given twice.
    """
    folder = CONF / group
    ours = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml")}
    users = users_files(group)
    if taken := sorted(ours & set(users)):
        raise ConfigError(f"{users[taken[0]]} needs another name: {group}={taken[0]} is a choice of Syncline's")
    return sorted({*ours, *users})


def compose(overrides: Sequence[str]) -> tuple[RunConfig, Invocation]:
    """One config from the defaults of conf/ and these overrides, without sweeps.

    Raises:
        ConfigError: an unknown group, choice or key, or a value of the wrong type or out of range.
    """
    values, kinds = _compose(overrides)
    try:
        config, invocation = _built(RunConfig, values, kinds), _built(Invocation, values, kinds)
        if any(split(word)[0] == "cluster.gradient_s" for word in overrides):  # that of a profile may be longer
            num, workers = len(config.cluster.gradient_s), config.cluster.workers
            rule = f"cluster.gradient_s must have at most cluster.workers = {workers} entries (fewer repeat)"
            check(num <= workers, rule, num)
        return with_content(config), invocation
    except ValueError as error:
        raise ConfigError(str(error)) from None


def compose_study(
    kind: type[Study], group: str, preset: str, overrides: Sequence[str], declared: Mapping[str, Any] | None = None
) -> Study:
    """A study's config from its preset in conf/<group> and the overrides whose keys begin with the group.

    Args:
        preset: the file that is read unless an override `<group>=<preset>` names another one.
        overrides: of this group.
        declared: values that stand above the preset's and below the overrides'.

    Raises:
        ConfigError: an unknown preset or key, or a value of the wrong type or out of range.
    """
    pairs = list(map(split, overrides))
    preset = dict(pairs).get(group, preset)
    _check_choice(group, preset)
    values: dict[str, Any] = {group: own.defaults(kind)}
    file = users_files(group).get(preset) or CONF / group / f"{preset}.yaml"
    for key, value in (read_yaml(file) | dict(declared or {})).items():
        _put(values, {group: kind}, f"{group}.{key}", value, str(value))
    for key, text in pairs:
        if key != group:
            _set_value(values, {group: kind}, key, text)
    try:
        study: Study = _built(kind, values[group], fields(kind))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return study


def compose_yaml(overrides: Sequence[str]) -> str:
    """The composed config as YAML, before any check of ranges."""
    return to_yaml(_compose(overrides)[0])


def sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The product of the sweeps (`seed=0,1`, `seed=range(0,3)`) among overrides, as lists of plain overrides.

    Raises:
        ConfigError: an invalid override, or more than MOST_RUNS runs.
    """
    sweeps: dict[str, tuple[int, Callable[[int], str]]] = {}
    for word in overrides:
        key, text = split(word)
        if key == "results" and "," in text:
            raise ConfigError(f"results must be one folder, without a comma in a sweep, got {text}")
        sweeps[key] = (1, [text].__getitem__) if _is_of_all_runs(key) else swept(key, text)
    num = math.prod(size for size, _ in sweeps.values())
    if num > MOST_RUNS:
        raise ConfigError(f"{' '.join(overrides)}: {num:,} runs; a sweep may have {MOST_RUNS:,} at most")
    return [
        [f"{key}={text_at(place)}" for (key, (_, text_at)), place in zip(sweeps.items(), places, strict=True)]
        for places in product(*(range(size) for size, _ in sweeps.values()))
    ]


def divided(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides that are part of what a run is, and those of how runs are chosen and made; both in full."""
    pairs = _in_full(overrides)
    of_run = [f"{key}={text}" for key, text in pairs if not _is_of_all_runs(key)]
    return of_run, [f"{key}={text}" for key, text in pairs if _is_of_all_runs(key)]


def apart(group: str, overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides of a group, and the others."""
    own = [word for word in overrides if split(word)[0].partition(".")[0] == group]
    return own, [word for word in overrides if word not in own]


def _is_of_all_runs(key: str) -> bool:
    """Whether a key is not part of a run: it cannot be swept, and commas in its text are literal."""
    return key.partition(".")[0] in fields(Invocation)


def _compose(overrides: Sequence[str]) -> tuple[dict[str, Any], Kinds]:
    """The nested values of all keys before any check of ranges, and the types of the topmost keys."""
    pairs = _in_full(overrides)
    chosen = {key: text for key, text in pairs if key in (*GROUPS, "experiment")}
    for group, choice in chosen.items():
        _check_choice(group, choice)
    shared, kinds = _chosen(chosen)
    values = copy.deepcopy(shared)
    for key, text in pairs:  # keys are set after all choices, in any order of words
        if key not in chosen:
            _set(values, kinds, key, text)
    _resolve(values, shared, kinds)
    return values, kinds


def _in_full(overrides: Sequence[str]) -> list[tuple[str, str]]:
    """Keys and texts with abbreviations expanded.

    `runner=slurm`, as in other systems, stands for `launcher=slurm`, since who starts a run does not change its
    identity; `runner.partition=gpu` and the like accordingly.
    """
    pairs = [(SHORT.get(key, key), text) for key, text in map(split, overrides)]
    if ("runner", "slurm") not in pairs:
        return pairs
    moved = {f"runner.{name}" for name in fields(SlurmConfig)}

    def is_moved(key: str, text: str) -> bool:
        return (key, text) == ("runner", "slurm") or key in moved

    return [(re.sub("^runner", "launcher", key) if is_moved(key, text) else key, text) for key, text in pairs]


def _chosen(choices: Mapping[str, str]) -> tuple[dict[str, Any], Kinds]:
    """The values, and the types of the topmost keys, for these choices of groups; shared, so not to be modified."""
    values, kinds = map(dict, _defaults())
    for group, name in choices.items():
        of_file, types = (
            _users_choice(group, name, file) if (file := users_files(group).get(name)) else _choice(group, name)
        )
        values |= of_file
        kinds |= types
    return values, kinds


@cache
def _defaults() -> tuple[dict[str, Any], Kinds]:
    values, types = compose_file(CONF, "config", _Root, GROUPS)
    kinds = {**fields(RunConfig), **fields(Invocation), **types}
    del kinds["experiment"]  # its file is read elsewhere
    return values, kinds


@cache
def _choice(group: str, name: str) -> tuple[dict[str, Any], Kinds]:
    """Composed alone, which is fastest: no file sets keys of other groups."""
    values, types = compose_file(CONF, f"{group}/{name}", _Root, GROUPS)
    assert set(values) == {group}, f"conf/{group}/{name}.yaml speaks of {', '.join(values)}"
    return values, types


def _users_choice(group: str, name: str, file: Path) -> tuple[dict[str, Any], Kinds]:
    """As `_choice`, of a file of the user's; keys that it leaves out have the defaults of their class.

    Raises:
        ConfigError: the file is no YAML of the group, or as `own.declared`.
    """
    try:
        values, types = compose_file(CONF, f"{group}/{name}", _Root, GROUPS)
        written = list(_written(group, file))
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    if set(values) != {group}:
        raise ConfigError(f"{file} must have keys of {group} only, got {', '.join(values) or 'none'}")
    if group == "experiment":
        return values, types
    given = values[group]
    for content in written:
        _replace_named(given, content)
    if "_target_" in given:
        folder = Path(str(file).removesuffix(f"{group}/{name}.yaml"))
        kind, whole = own.declared(group, name, folder, given, OWN_BASES)
    else:
        kind = types[group] if dataclasses.is_dataclass(types[group]) else _kind_by_name(group, file, given)
        whole = own.defaults(kind)
        if group in ("cluster", "scenario"):
            given = {**given, "name": name.replace("/", "-")}
    kinds = {group: kind}
    for key, value in given.items():
        if key == "name":
            whole["name"] = value
        elif not key.startswith("_"):
            _put({group: whole}, kinds, f"{group}.{key}", value, str(value))
    return {group: whole}, kinds


def _written(group: str, file: Path) -> Iterator[dict[str, Any]]:
    """What a file of the user's says, after what those of the user's say that its defaults name."""
    content = read_yaml(file)
    for name in content.pop("defaults", None) or []:
        if isinstance(name, str) and (base := users_files(group).get(name)):
            yield from _written(group, base)
    yield content


def _replace_named(given: dict[str, Any], written: Mapping[str, Any]) -> None:
    """A distribution that a file has (`{name: ...}`) replaces that of its defaults, as one of an override does."""
    for key, value in written.items():
        if isinstance(value, dict):
            if "name" in value:
                given[key] = value
            elif isinstance(given.get(key), dict):
                _replace_named(given[key], value)


def _kind_by_name(group: str, file: Path, given: Mapping[str, Any]) -> type[Any]:
    """The class of a part, by its name where the group has several."""
    table = GROUPS[group]
    if len(table) == 1:
        return next(iter(table.values()))
    if given.get("name") not in table:
        rule = f"{file} must have a _target_, or a name, one of {', '.join(table)}"
        raise ConfigError(f"{rule}; got {given.get('name', 'neither')}")
    return table[given["name"]]


def _set(values: dict[str, Any], kinds: Kinds, key: str, text: str) -> None:
    """Apply one override; interpolations stay as they are.

    Raises:
        ConfigError: an unknown key, or a text that is not a value of its type.
    """
    kind = _kind_of(kinds, key, text)
    if is_swept(text) and not _is_of_all_runs(key):
        as_one = {list: f"[{text}]", str: f"\"'{text}'\""}.get(get_origin(kind) or required(kind))
        raise _several(key, text, f", or write {key}={as_one} for one" if as_one else "")
    _set_value(values, kinds, key, text)


def _set_value(values: dict[str, Any], kinds: Kinds, key: str, text: str) -> None:
    kind = _kind_of(kinds, key, text)
    try:
        value = read(kind, text)
    except (ValueError, OverflowError):
        raise _unfit(key, kind, text) from None
    _put(values, kinds, key, value, text, is_raw="${" in text)


def _put(values: dict[str, Any], kinds: Kinds, key: str, value: Any, text: str, is_raw: bool = False) -> None:
    """Set a key, or the keys below it that a mapping names.

    A mapping without declared keys is merged with the existing one, but a distribution (`{name: ...}`) replaces it.
    """
    kind = _kind_of(kinds, key, text)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        for name, each in value.items():
            _put(values, kinds, f"{key}.{name}", each, text, is_raw)
        return
    if not is_raw or dataclasses.is_dataclass(kind):
        try:
            value = converted(kind, value)
        except (ValueError, OverflowError):
            raise _unfit(key, kind, text) from None
    *above, last = key.split(".")
    for name in above:
        if not isinstance(there := values.get(name), dict):  # null, or a distribution or an optimizer by its name
            values[name] = {"name": there} if isinstance(there, str) else {}
        values = values[name]
    before = values.get(last)
    if isinstance(value, dict) and isinstance(before, dict) and "name" not in value:
        value = {**before, **value}
    values[last] = value


def _resolve(values: dict[str, Any], of_files: Mapping[str, Any], kinds: Kinds) -> None:
    """Replace interpolations by their values; each may refer to the whole config.

    Those of overrides are resolved before those of conf/ (`of_files`), so that errors name the former.

    Raises:
        ConfigError: one cannot be resolved, or its value is not of the type of its key.
    """
    waiting = {key: text for key in _leaves(kinds) if "${" in (text := str(_at(values, key)))}
    if not waiting:
        return
    ordered = sorted(waiting, key=lambda key: bool(_at(values, key) == _at(of_files, key)))
    try:
        found = resolve({name: values[name] for name in kinds}, ordered)
    except InterpolationError as error:
        allowed = "${KEY} of another key, or ${oc.env:NAME} of a variable that is set"
        key = error.key if error.key in waiting else ordered[0]
        raise ConfigError(f"{key}={waiting[key]} cannot be resolved; write {allowed}") from None
    for key, value in found.items():
        _put(values, kinds, key, value, waiting[key])


def _at(values: Any, key: str) -> Any:
    for name in key.split("."):
        values = values[name]
    return values


def _built(kind: type[Any], values: Mapping[str, Any], kinds: Kinds) -> Any:
    """The dataclass with these values; `kinds` has the types of its fields."""
    parts = {name: kinds[name] for name in fields(kind) if dataclasses.is_dataclass(kinds.get(name))}
    built = {name: _built(part, values[name], fields(part)) for name, part in parts.items()}
    return kind(**{name: built.get(name, values[name]) for name in fields(kind)})


def _kind_of(kinds: Kinds, key: str, text: str) -> Any:
    """The declared type of a key; Any below a key without declared fields.

    Raises:
        ConfigError: an unknown key, or the name of a group.
    """
    names, above, parts = kinds, "", key.split(".")
    for place, part in enumerate(parts, 1):
        if part in own.ABOUT:
            raise ConfigError(f"{key} cannot be set: it belongs to the file of the chosen {above}")
        if part == "name" and above in GROUPS:
            raise ConfigError(f"{key} cannot be set; write {above}={text}")
        if part not in names:
            raise _unknown(kinds, key, text, above, names)
        kind, above = names[part], ".".join(parts[:place])
        if kind is Any and all(re.fullmatch(r"\w+", below) for below in parts[place:]):
            return Any
        if place < len(parts) and not dataclasses.is_dataclass(kind):
            raise ConfigError(f"{key}: unknown key; {above} must be {described(kind)}")
        names = fields(kind) if dataclasses.is_dataclass(kind) else {}
    return kind


def _unknown(kinds: Kinds, key: str, text: str, above: str, names: Iterable[str]) -> ConfigError:
    """An error that lists the keys at this place, and where the key or a similar one exists."""
    here = [*_leaves(kinds), *GROUPS, "experiment"]
    every = {each for group, table in GROUPS.items() for kind in table.values() for each in _leaves({group: kind})}
    near = nearest_keys(key, dict.fromkeys([*here, *sorted(every)]))
    taken = ", ".join(name for name in names if name not in ("name", *own.ABOUT)) or "no keys"
    if not above:
        taken += ", experiment"
    line = f"{key}: unknown key"
    if above or not near:
        line += f"; {above or 'the top level'} takes {taken}"
    is_own = isinstance(kind := kinds.get(above), type) and issubclass(kind, own.OwnPart)
    if is_own and not set(near) & set(here):
        return ConfigError(f"{line}, as its file does; a further argument of its target must stand in its file first")
    if key in every:
        return ConfigError(f"{line}; {key} needs {_owners(key)}")
    hint = meant(f"{each}={text}{'' if each in here else f' with {_owners(each)}'}" for each in near)
    return ConfigError(line + hint)


def _leaves(kinds: Kinds, above: str = "") -> Iterator[str]:
    """The dotted keys that can be set."""
    for name, kind in kinds.items():
        if dataclasses.is_dataclass(kind):
            yield from _leaves(fields(kind), f"{above}{name}.")
        elif name != "name" and name not in own.ABOUT:
            yield f"{above}{name}"


def _owners(key: str) -> str:
    """The choices of its group that have the key."""
    group = key.partition(".")[0]
    tables = [name for name, kind in GROUPS[group].items() if key in _leaves({group: kind})]
    named = rf"^name: ({'|'.join(tables)})\b"
    ours = sorted(set(choices(group)) - set(users_files(group)))
    found = [name for name in ours if re.search(named, (CONF / group / f"{name}.yaml").read_text(), re.M)]
    return f"{group}={', '.join(found[:3])}{', ...' if found[3:] else ''}"


def _unfit(key: str, kind: Any, text: str) -> ConfigError:
    line = f"{key} must be {described(kind)}, got {text or repr(text)}"
    if text[:1] in ("[", "{") and re.search(r"[^\x20-\x7d]", text):
        line += " (words with other letters than those of ASCII, or with ~, need quotes)"
    return ConfigError(line)


def _several(key: str, text: str, otherwise: str = "") -> ConfigError:
    return ConfigError(f"{key}={text} holds several values; add -m to make a run of each{otherwise}")


def _check_choice(group: str, choice: str) -> None:
    known = choices(group)
    if choice in known:
        return
    if is_swept(choice) and not _is_of_all_runs(group):
        raise _several(group, choice)
    raise ConfigError(f"{group} must be one of {', '.join(known)}; got {choice!r}{meant(nearest(choice, known))}")
