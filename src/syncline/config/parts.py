"""The choices of all groups, each as a node of its dataclass, in which keys are set or refused in one line."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

from syncline.checks import ConfigError
from syncline.config import own
from syncline.config.folders import files as users_files
from syncline.config.hydra_adapter import built, compose_file, delete, node_of, put, read_yaml, value_at
from syncline.config.invocation import Invocation, ScaleConfig
from syncline.config.keys import Kinds, described, fields, leaves, meant, nearest, nearest_keys, required
from syncline.config.local_steps import LocalStepsConfig
from syncline.config.overrides import is_swept, parsed, split
from syncline.config.run import OWN_BASES, TABLES, RunConfig
from syncline.config.runners import LAUNCHERS
from syncline.config.studies import STUDIES
from syncline.installation import shipped
from syncline.timing.cluster import ClusterConfig, ScenarioConfig

if TYPE_CHECKING:
    from syncline.config.hydra_adapter import DictConfig

CONF = shipped("conf")
GROUPS: dict[str, Mapping[str, type[Any]]] = {
    **TABLES,
    "cluster": {"cluster": ClusterConfig},
    "scenario": {"scenario": ScenarioConfig},
    "local": {"local": LocalStepsConfig},
    "scale": {"scale": ScaleConfig},
    "launcher": LAUNCHERS,
}
_OF_NO_GROUP = [
    (each.name, each.type, copy(each))
    for kind in (RunConfig, Invocation)
    for each in dataclasses.fields(kind)
    if each.name not in (*GROUPS, "experiment")
]
_Topmost = dataclasses.make_dataclass("_Topmost", _OF_NO_GROUP)


def choices(group: str) -> list[str]:
    """The choices of a group: the files of conf/<group>, and of <group> in the user's folders.

    Raises:
        ConfigError: a choice is given twice.
    """
    ours, users = _shipped(group), users_files(group)
    if taken := sorted(ours & {*users}):
        raise ConfigError(f"{users[taken[0]]} needs another name: {group}={taken[0]} is a choice of Syncline's")
    return sorted({*ours, *users})


@cache
def _shipped(group: str) -> set[str]:
    folder = CONF / group
    return {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml")}


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A choice of a group, or with group "" the keys that belong to none."""

    group: str
    kind: Any
    node: "DictConfig"
    refers: bool = False  # whether a value is an interpolation
    is_users: bool = False

    @property
    def kinds(self) -> Kinds:
        """The types of its topmost keys."""
        return {self.group: self.kind} if self.group else fields(_Topmost)

    def has(self, key: str) -> bool:
        """Whether a dotted key is one of its."""
        return key.partition(".")[0] in self.kinds

    def set(self, key: str, value: Any, text: str) -> None:
        """Set a dotted key, or those below it that a mapping names.

        Args:
            text: of the value, as it was given.

        Raises:
            ConfigError: an unknown key, or a value that is not of its type.
        """
        kind = kind_of(self.kinds, key, text)
        if dataclasses.is_dataclass(kind) and isinstance(value, dict):
            for name, each in value.items():
                self.set(f"{key}.{name}", each, text)
            return
        try:
            put(self.node, self._within(key), value)
        except ValueError:
            raise unfit(key, kind, text) from None

    def _within(self, key: str) -> str:
        """A dotted key, as its node has it."""
        return key.removeprefix(f"{self.group}.")

    def changed(self, words: Iterable[str]) -> "Part":
        """The part with these overrides; this one stays as it is.

        Raises:
            ConfigError: as `set`, or a sign does not go with its key.
        """
        made = dataclasses.replace(self, node=deepcopy(self.node))
        for word in words:
            made._override(word)
        return made

    def _override(self, word: str) -> None:
        override, (key, text) = parsed(word), split(word)
        value: Any = override.value()
        if value == "???":  # OmegaConf's sign of a missing value
            raise unfit(key, kind_of(self.kinds, key, text), text)
        is_set_anew = override.is_delete() or (override.is_add() and not isinstance(value, list | dict))
        before = value_at(self.node, self._within(key)) if is_set_anew else None
        if override.is_delete():
            if text and value != before:
                raise ConfigError(f"{word}: {key} is {before}; ~{key} returns it to the default of its class")
            delete(self.node, self._within(key))
        elif before is not None:
            raise ConfigError(f"{word}: + adds a key that is not set, and {key} is {before}; write {key}={text}")
        else:
            self.set(key, value, text)

    def values(self, words: tuple[str, ...]) -> dict[str, Any]:
        """The values of its topmost keys with these overrides, none of which refers to another key."""
        reads_more = self.refers or any("path" in word for word in words)  # the environment, measured durations
        made = built(self.changed(words).node) if reads_more else _built(self, words)
        return {self.group: made} if self.group else vars(made)


@lru_cache(10_000)
def _built(part: Part, words: tuple[str, ...]) -> Any:
    """The frozen object of a part with these overrides."""
    return built(part.changed(words).node)


def part(group: str, name: str) -> Part:
    """A choice of a group. Raises ConfigError: it is of the user's, and its file does not fit."""
    file = users_files(group).get(name)
    return _ours(group, name) if file is None else _users(group, name, file)


@cache
def _ours(group: str, name: str) -> Part:
    is_default = default_choices().get(group) == name
    values = (_defaults() if is_default else compose_file(CONF, f"{group}/{name}"))[group]
    kind = _kind_by_name(group, values)
    return filled(Part(group, kind, node_of(kind), refers="${" in str(values)), values)


@cache
def topmost() -> Part:
    """The keys that belong to no group."""
    values = {key: value for key, value in _defaults().items() if key not in GROUPS}
    return filled(Part("", _Topmost, node_of(_Topmost)), values)


@cache
def _defaults() -> dict[str, Any]:
    return compose_file(CONF, "config")


@cache
def default_choices() -> Mapping[str, str]:
    """Group -> the choice unless another is made."""
    listed = read_yaml(CONF / "config.yaml")["defaults"]
    return {group: name for each in listed if isinstance(each, dict) for group, name in each.items()}


def _kind_by_name(group: str, values: Mapping[str, Any]) -> Any:
    """The class of a choice, by its name where the group has several; None without one."""
    table = GROUPS[group]
    return table.get(str(values.get("name"))) if len(table) > 1 else next(iter(table.values()))


def filled(made: Part, values: Mapping[str, Any]) -> Part:
    """The same part, with these values of a file."""
    for key, value in values.items():
        if key == "name" or key in own.ABOUT:
            put(made.node, key, value)
        else:
            made.set(f"{made.group}.{key}" if made.group else key, value, str(value))
    return made


def _users(group: str, name: str, file: Path) -> Part:
    """A choice of the user's; keys that its file leaves out have the defaults of their class.

    Raises:
        ConfigError: the file is no YAML of the group, or as `own.declared`.
    """
    values = _of_group(group, name)
    for content in _written(group, file):
        _replace_named(values, content)
    kind = _kind_by_name(group, values)
    if "_target_" in values:
        folder = Path(str(file).removesuffix(f"{group}/{name}.yaml"))
        kind, values = own.declared(group, name, folder, values, OWN_BASES)
    elif kind is None:
        rule = f"{file} must have a _target_, or a name, one of {', '.join(GROUPS[group])}"
        raise ConfigError(f"{rule}; got {values.get('name', 'neither')}")
    elif len(GROUPS[group]) == 1:
        values = {**values, "name": name.replace("/", "-")}
    return filled(Part(group, kind, node_of(kind), "${" in str(values), is_users=True), values)


def _of_group(group: str, name: str) -> dict[str, Any]:
    """The keys in a file of the user's. Raises ConfigError: it has none, or those of another group."""
    file = users_files(group)[name]
    try:
        found = compose_file(CONF, f"{group}/{name}")
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    if set(found) != {group}:
        raise ConfigError(f"{file} must have keys of {group} only, got {', '.join(found) or 'none'}")
    values: dict[str, Any] = found[group]
    return values


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


def preset(group: str, name: str, kind: type[Any]) -> Part:
    """The keys of a study, with the values of a file of conf/<group> or of the user's.

    Raises:
        ConfigError: the file is of the user's, and does not fit.
    """
    file = users_files(group).get(name) or CONF / group / f"{name}.yaml"
    try:
        return filled(Part(group, kind, node_of(kind)), read_yaml(file))
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def experiment(name: str) -> dict[str, Any]:
    """The content of an experiment's file. Raises ConfigError: it is of the user's, and does not fit."""
    return _of_group("experiment", name) if name in users_files("experiment") else deepcopy(_experiment(name))


@cache
def _experiment(name: str) -> dict[str, Any]:
    content: dict[str, Any] = compose_file(CONF, f"experiment/{name}")["experiment"]
    return content


# Keys, and errors that name them.


def kind_of(kinds: Kinds, key: str, text: str) -> Any:
    """The declared type of a key; Any below a key without declared fields.

    Raises:
        ConfigError: an unknown key, or the name of a choice.
    """
    names, above, places = kinds, "", key.split(".")
    for place, name in enumerate(places, 1):
        if name in own.ABOUT:
            raise ConfigError(f"{key} cannot be set: it belongs to the file of the chosen {above}")
        if name == "name" and above in GROUPS:
            raise ConfigError(f"{key} cannot be set; write {above}={text}")
        if name not in names:
            raise _unknown(kinds, key, text, above, names)
        kind, above = names[name], ".".join(places[:place])
        if kind is Any and all(re.fullmatch(r"\w+", below) for below in places[place:]):
            return Any
        if place < len(places) and not dataclasses.is_dataclass(kind):
            raise ConfigError(f"{key}: unknown key; {above} must be {described(kind)}")
        names = fields(kind) if dataclasses.is_dataclass(kind) else {}
    return kind


def check_key(kinds: Kinds, word: str) -> None:
    """Check that an override sets one value of a key that there is.

    Args:
        kinds: of all topmost keys.

    Raises:
        ConfigError: as `kind_of`, or there are several values.
    """
    has_several, (key, text) = is_swept(word), split(word)
    kind = Any if key in (*GROUPS, "experiment") else kind_of(kinds, key, text)
    if has_several:
        as_one = {list: f"[{text}]", str: f"\"'{text}'\""}.get(get_origin(kind) or required(kind))
        otherwise = f", or write {key}={as_one} for one" if as_one and "(" not in text else ""
        raise ConfigError(f"{word} holds several values; run -m makes a run of each{otherwise}")


def _unknown(kinds: Kinds, key: str, text: str, above: str, names: Iterable[str]) -> ConfigError:
    """An error that lists the keys at this place, and where the key or a similar one exists."""
    here = [*filter(_can_be_set, leaves(kinds)), *GROUPS, "experiment"]
    every = {each for group, table in GROUPS.items() for kind in table.values() for each in leaves({group: kind})}
    near = nearest_keys(key, dict.fromkeys([*here, *sorted(filter(_can_be_set, every))]))
    first = key.partition(".")[0]
    if not above and first in STUDIES:
        return ConfigError(f"{key}: unknown key; it is one of syncline {first}")
    names = names if above else dict.fromkeys([*names, *GROUPS, "experiment"])
    line = f"{key}: unknown key"
    if not above and not near and first not in names and (similar := nearest(first, names)):
        return ConfigError(line + meant(similar))
    if above or not near:
        line += f"; {above or 'the top level'} takes {', '.join(filter(_can_be_set, names)) or 'no keys'}"
    is_own = isinstance(kind := kinds.get(above), type) and issubclass(kind, own.OwnPart)
    if is_own and not set(near) & set(here):
        return ConfigError(f"{line}, as its file does; a further argument of its target must stand in its file first")
    if key in every:
        return ConfigError(f"{line}; {key} needs {_owners(key)}")
    hint = meant(f"{_chosen(each, text)}{'' if each in here else f' with {_owners(each)}'}" for each in near)
    return ConfigError(line + hint)


def _chosen(key: str, text: str) -> str:
    """An override of a key or a group; + is for an experiment, of which none is the default."""
    return f"+{key}={text}" if key == "experiment" else f"{key}={text}"


def _can_be_set(key: str) -> bool:
    return key.rpartition(".")[2] not in ("name", *own.ABOUT)


def _owners(key: str) -> str:
    """The choices of its group that have the key."""
    group = key.partition(".")[0]
    tables = [name for name, kind in GROUPS[group].items() if key in leaves({group: kind})]
    named = rf"^name: ({'|'.join(tables)})\b"
    ours = sorted(set(choices(group)) - set(users_files(group)))
    found = [name for name in ours if re.search(named, (CONF / group / f"{name}.yaml").read_text(), re.M)]
    return _chosen(group, f"{', '.join(found[:3])}{', ...' if found[3:] else ''}")


def unfit(key: str, kind: Any, text: str) -> ConfigError:
    """A value that is not of the type of its key."""
    return ConfigError(f"{key} must be {described(kind)}, got {text or repr(text)}")


def checked_choice(word: str) -> str:
    """The choice that an override of a group makes.

    Raises:
        ConfigError: there is no such choice, or the sign does not go with the group.
    """
    group, choice = split(word)
    known, right = choices(group), _chosen(group, choice)
    if word.startswith("~"):
        raise ConfigError(f"{word}: a choice cannot be deleted; leave it out for the default")
    if choice not in known:
        raise ConfigError(f"{group} must be one of {', '.join(known)}; got {choice!r}{meant(nearest(choice, known))}")
    if word != right:
        raise ConfigError(f"{word}: + is for experiments, and for all of these; write {right}")
    return choice
