"""The user's own parts: those whose file has a `_target_`, the name of a class or a function of the user's own code.

Such a part is a dataclass made for it: the options of every part of its group, then a field for each further key of its
file, which is an argument of the target.
"""

import dataclasses
import inspect
import sys
from collections.abc import Hashable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

from syncline.checks import ConfigError
from syncline.config.folders import folders
from syncline.config.keys import fields
from syncline.strategies.protocol import StrategyOptions
from syncline.targets import TargetError, fault, imported, instantiated, source_hash, targets_in

ABOUT = {"_target_": str, "_source_": str, "_folder_": str}  # the hash of its source; where its file lies
SCALARS = (bool, int, float, str)


class OwnPart:
    """A part of a run whose class or function is the user's."""

    group: ClassVar[str]
    base: ClassVar[type[Any]]
    name: str
    _target_: str
    _source_: str
    _folder_: str

    def found(self) -> Any:
        """What the target names, imported.

        Raises:
            TargetError: it cannot be imported here, or its source is not that of the config.
        """
        found = _found(self.group, self.name, self._folder_, self._target_)
        source = sources([self._target_, *targets_in(list(self.arguments.values()))])
        if source != self._source_:
            raise TargetError(
                f"{self.group}={self.name}: the source of {self._target_} must be that of the run ({self._source_}), "
                f"got another one here ({source})"
            )
        return found

    def made(self, **available: Any) -> Any:
        """What the target returns for its arguments, and for those of `available` that its signature names.

        Raises:
            TargetError: as `found`, or the signature does not fit.
        """
        return self.called(self.arguments, **available)

    def called(self, arguments: Mapping[str, Any], **available: Any) -> Any:
        """As `made`, with other arguments than those of the config."""
        return called(self.found(), f"{self.group}={self.name}: {self._target_}", arguments, available)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the target, from the config."""
        shared = {*fields(self.base), *ABOUT}
        return {key: value for key, value in vars(self).items() if key not in shared}

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return _restored, (self.group, self.base, values)


def users_fault(strategy: StrategyOptions, error: Exception) -> str | None:
    """One line on an error of the user's own code, or on one to which this strategy, if it is the user's, led a server.

    None for other errors, and for those that are one line themselves.
    """
    told = fault(error)
    if told is None and isinstance(strategy, OwnPart) and not isinstance(error, ValueError | OSError):
        name, what = strategy.name, f"{type(error).__name__}: {error}"
        return f"strategy={name} broke its contract ({what}); syncline check strategy={name} shows the event"
    return told


def _restored(group: str, base: type[Any], values: dict[str, Any]) -> Any:
    return kind_of(group, base, values)(**values)


def called(found: Any, what: str, arguments: Mapping[str, Any], available: Mapping[str, Any]) -> Any:
    """found(**arguments), with those of `available` that its signature names.

    Raises:
        TargetError: the signature does not fit.
    """
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # of compiled code
        return found(**instantiated(arguments))
    takes = {name: each for name, each in available.items() if name in signature.parameters and name not in arguments}
    try:
        signature.bind(**takes, **arguments)
    except TypeError as error:
        offered = f"; named in its signature it would get {', '.join(available)}" if available else ""
        raise TargetError(f"{what}{signature} does not take its config's keys: {error}{offered}") from None
    return found(**takes, **instantiated(arguments))


def declared(
    group: str, choice: str, folder: Path, values: Mapping[str, Any], bases: Mapping[str, type[Any]]
) -> tuple[type[Any], dict[str, Any]]:
    """The class of a part that a file with a `_target_` declares, and its values; those of shared options unchecked.

    Args:
        values: of the file.
        bases: group -> class with the options that every part of the group has.

    Raises:
        ConfigError: parts of this group have no targets, or a key is missing. TargetError: the target is not usable.
    """
    if group not in bases:
        raise ConfigError(f"{group}={choice}: _target_ goes with {', '.join(bases)}")
    given, name = dict(values), choice.replace("/", "-")
    target = str(given.pop("_target_"))
    found, base = _found(group, name, str(folder), target), bases[group]
    if group == "strategy":
        base = _strategy(name, target, found)
        if unknown := set(given) - set(fields(base)):
            takes = ", ".join(key for key in fields(base) if key != "name")
            raise ConfigError(f"strategy.{min(unknown)}: unknown key; {target} takes {takes or 'no keys'}")
    arguments = [value for key, value in given.items() if key not in fields(base)]
    about = {"_target_": target, "_source_": sources([target, *targets_in(arguments)]), "_folder_": str(folder)}
    whole = {**defaults(base), **given, **about, "name": name}
    if group == "optimizer":
        whole = {**whole, **_shared_defaults(name, target, found, given)}
    if taken := [key for key in given if key not in fields(base) and hasattr(kind_of(group, base, {}), key)]:
        raise ConfigError(
            f"{group}={choice}: key {taken[0]} must have another name: every {group} has an attribute of it"
        )
    if missing := set(fields(base)) - set(whole):
        raise ConfigError(f"{group}={choice}: key {min(missing)} must be set")
    return kind_of(group, base, whole), whole


def _shared_defaults(name: str, target: str, found: Any, given: Mapping[str, Any]) -> dict[str, float]:
    """What an optimizer itself takes for the keys that all optimizers have, of those that its file leaves out.

    Raises:
        ConfigError: that is no number.
    """
    parameters = inspect.signature(found).parameters
    chosen: dict[str, float] = {}
    for key in ("lr", "weight_decay"):
        if key in parameters and key not in given:
            default = parameters[key].default
            if not isinstance(default, int | float):
                said = "none" if default is inspect.Parameter.empty else default
                raise ConfigError(f"optimizer={name}: {key} must be set in its file; the default of {target} is {said}")
            chosen[key] = float(default)
    return chosen


def restored(group: str, plain: Mapping[str, Any], bases: Mapping[str, type[Any]]) -> tuple[type[Any], dict[str, Any]]:
    """The class of a part, and its values, from a record's config; without importing it, unless it is a strategy."""
    base = bases[group]
    if group == "strategy":
        name, target = plain["name"], plain["_target_"]
        base = _strategy(name, target, _found(group, name, plain["_folder_"], target))
    return kind_of(group, base, plain), dict(plain)


def sources(targets: list[str]) -> str:
    """The hash of the user's code that these targets need; empty if all are in installed packages."""
    return "-".join(dict.fromkeys(filter(None, map(source_hash, targets))))


def _found(group: str, name: str, folder: str, target: str) -> Any:
    """What the target names; the user's folders are on Python's path, behind all others."""
    for each in (*map(str, folders()), folder):
        if each not in sys.path:
            sys.path.append(each)
    try:
        found = _imported(group, target)
    except TargetError as error:
        raise TargetError(f"{group}={name}: {error}") from None
    top = target.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    mine = [path for path in (Path(folder, f"{top}.py"), Path(folder, top, "__init__.py")) if path.exists()]
    if mine and file is not None and Path(file).resolve() != mine[0].resolve():
        raise TargetError(f"{group}={name}: {mine[0]} needs another name: {top} is {file} already")
    if not callable(found):
        raise TargetError(f"{group}={name}: _target_ must name a class or a function; {target} is {found!r}")
    return found


def _imported(group: str, target: str) -> Any:
    """As `imported`; with a torchvision that lacks its operators, too."""
    try:
        return imported(target)
    except TargetError:
        if group == "strategy":
            raise
        from syncline.torchvision_compat import import_torchvision  # imports torch

        with suppress(ImportError):
            import_torchvision()
        return imported(target)


def _strategy(name: str, target: str, found: Any) -> type[StrategyOptions]:
    """The user's class of options, checked."""
    is_class = isinstance(found, type) and issubclass(found, StrategyOptions) and dataclasses.is_dataclass(found)
    if not is_class or not found.__dataclass_params__.frozen:
        rule = "must be a dataclass(frozen=True) derived from syncline.strategies.protocol.StrategyOptions"
        raise TargetError(f"strategy={name}: {target} {rule}")
    options: type[StrategyOptions] = found
    if "name" not in fields(options):
        raise TargetError(f"strategy={name}: {target} must have a field `name: str`")
    return options


def defaults(base: type[Any]) -> dict[str, Any]:
    """The default of each field that has one, in plain types."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(base):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
            is_part = dataclasses.is_dataclass(value) and not isinstance(value, type)
            found[field.name] = dataclasses.asdict(value) if is_part else value
    return found


def kind_of(group: str, base: type[Any], values: Mapping[str, Any]) -> type[Any]:
    """The class of a part with these values: the fields beyond those of the base have types that follow from them."""
    own = tuple((key, ABOUT.get(key) or _type(value)) for key, value in values.items() if key not in fields(base))
    kind: type[Any] = _kind(group, cast(Hashable, base), own)
    return kind


def _type(value: Any) -> Any:
    if type(value) in SCALARS:
        return type(value)
    if isinstance(value, list | tuple) and value:
        kinds = {type(each) for each in value}
        if kinds == {int, float}:
            return list[float]
        if len(kinds) == 1 and kinds <= set(SCALARS):
            return list[kinds.pop()]  # type: ignore[misc]
    return Any


@cache
def _kind(group: str, base: Any, own: tuple[tuple[str, Any], ...]) -> type[Any]:
    """The dataclass of a part; the same for the same base and fields."""
    namespace = {"group": group, "base": base, "__reduce__": OwnPart.__reduce__}
    more = [(key, kind, dataclasses.field(kw_only=True)) for key, kind in own]
    return dataclasses.make_dataclass(
        f"Own{base.__name__}", more, bases=(OwnPart, base), namespace=namespace, frozen=True
    )
