"""All contact with Hydra and OmegaConf: files of conf/, the grammar of overrides, typed nodes, YAML.

Both take half a second to import, so each function does it when it is called.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.config.folders import folders

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as Override
    from omegaconf import DictConfig as DictConfig

USER = "user"  # who provides a folder of Hydra's search path


class InterpolationError(ValueError):
    """An interpolation that refers to nothing."""


@contextmanager
def _told(kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Errors of Hydra, OmegaConf and of reading YAML as one of this kind, in one line."""
    from hydra.errors import HydraException
    from omegaconf.errors import InterpolationValidationError, OmegaConfBaseException
    from yaml import YAMLError

    try:
        yield
    except InterpolationValidationError as error:  # it refers to a value of another type
        raise ValueError(" ".join(str(error).split())) from None
    except (HydraException, OmegaConfBaseException, YAMLError, OSError) as error:
        raise kind(" ".join(str(error).split())) from None


def compose_file(conf: Path, file: str) -> dict[str, Any]:
    """The values of a file of conf/ or of the user's folders, merged with those in its defaults list.

    Args:
        conf: the folder.
        file: within one of them, without its ending.

    Raises:
        ValueError: the file, or one that it names, is no YAML or is not there.
    """
    from hydra import compose
    from omegaconf import OmegaConf

    _search(conf)
    with _told():
        values: Any = OmegaConf.to_container(compose(file))
    return {**values}


def read_yaml(path: Path) -> dict[str, Any]:
    """What a file itself says, its defaults list included. Raises ValueError: it is no YAML of keys."""
    from omegaconf import DictConfig, OmegaConf

    with _told():
        content = OmegaConf.load(path)
    found: Any = OmegaConf.to_container(content)
    return {**found} if isinstance(content, DictConfig) else {}


def _search(conf: Path) -> None:
    """Let Hydra search this folder and the user's, if it does not already."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    hydra = GlobalHydra.instance()
    if hydra.is_initialized():
        searched = hydra.config_loader().get_search_path().get_path()
        if [each.path for each in searched if each.provider == USER] == [f"file://{folder}" for folder in folders()]:
            return
        hydra.clear()
    _register()
    initialize_config_dir(str(conf), version_base="1.3")


@cache
def _register() -> None:
    """Tell Hydra of the user's folders.

    Its own choices (how it logs, where it writes) are not used here; loading them would be four fifths of the time of a
    composition.
    """
    from hydra.conf import HydraConf
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.config_store import ConfigStore
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class UsersFolders(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            for folder in folders():
                search_path.append(USER, f"file://{folder}")

    Plugins.instance().register(UsersFolders)
    ConfigStore.instance().store(group="hydra", name="config", node=HydraConf(defaults=[]), provider="hydra")


@lru_cache(10_000)
def parse(word: str) -> "Override":
    """A word of the command line in the grammar of Hydra's overrides. Raises ValueError: it is none."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(word)
    except (HydraException, RecursionError) as error:
        raise ValueError(str(error)) from None


def node_of(kind: type[Any]) -> "DictConfig":
    """A node that has the keys of this dataclass, holds its defaults, and accepts values of its types alone."""
    from omegaconf import OmegaConf

    with _told():
        node: DictConfig = OmegaConf.structured(kind)
    _make_writable(node)
    return node


def _make_writable(node: Any) -> None:
    """A frozen dataclass makes its node read-only: take the flag off."""
    from omegaconf import DictConfig, OmegaConf

    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none():
            _make_writable(child)


def put(node: "DictConfig", key: str, value: Any) -> None:
    """Set a dotted key. A mapping is merged with what is there, but one with a `name`, a distribution, replaces it.

    Raises:
        ValueError: the value is not of the declared type of the key.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        OmegaConf.update(node, key, value, merge=isinstance(value, dict) and "name" not in value)
    except (OmegaConfBaseException, AssertionError, OverflowError) as error:  # asserted: a number has no keys
        raise ValueError(str(error)) from None


def delete(node: "DictConfig", key: str) -> None:
    """Take a dotted key out of a node, so that the default of its class holds."""
    from omegaconf import OmegaConf, open_dict

    above, _, last = key.rpartition(".")
    parent: Any = OmegaConf.select(node, above) if above else node
    with open_dict(parent):
        parent.pop(last, None)


def value_at(node: "DictConfig", key: str) -> Any:
    """The plain value at a dotted key, with its interpolations resolved; None where there is none.

    Raises:
        InterpolationError: one refers to nothing. ValueError: its value is not of the declared type of the key.
    """
    from omegaconf import OmegaConf

    with _told(InterpolationError):
        value = OmegaConf.select(node, key)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def joined(nodes: "Mapping[str, DictConfig]") -> "DictConfig":
    """Copies of these nodes below one; that of "" gives its keys. So interpolations refer to all of them."""
    from omegaconf import OmegaConf

    whole = OmegaConf.create({})
    for group, node in nodes.items():
        for key in [group] if group else node:
            whole[key] = node if group else node._get_node(key)
    return whole


def built(node: Any) -> Any:
    """The dataclass of a node, or its plain value.

    Raises:
        InterpolationError: a value refers to nothing. ValueError: the dataclass refuses its values.
    """
    from omegaconf import OmegaConf

    with _told(InterpolationError):
        return OmegaConf.to_object(node) if OmegaConf.is_config(node) else node


def to_yaml(node: "DictConfig") -> str:
    """A config as YAML, with its interpolations resolved."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(node, resolve=True)
