"""All contact with Hydra and OmegaConf, in plain types: files of conf/, interpolations, literals, YAML.

Both take half a second to import, so each function does it when it is called.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.config.folders import folders

USER = "user"  # who provides a folder of Hydra's search path


class InterpolationError(ValueError):
    """An interpolation that cannot be resolved; `key` is where it stands."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def compose_file(
    conf: Path, file: str, root: type[Any], groups: Mapping[str, Mapping[str, type[Any]]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A file of conf/ or of the user's folders, merged with those in its defaults list.

    Returns:
        The values of all keys, and the types of its groups.

    Args:
        conf: the folder.
        file: within one of them, without its ending.
        root: schema of the topmost keys, a dataclass.
        groups: group -> name -> schema of a choice, a dataclass.

    Raises:
        ValueError: the file is no YAML, or it does not fit its schema.
    """
    from hydra import compose
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    if "schema.yaml" not in ConfigStore.instance().repo:
        _register(root, groups)
    _search(conf)
    try:
        cfg = compose(file)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    values: Any = OmegaConf.to_container(cfg)
    types: dict[str, Any] = {group: OmegaConf.get_type(cfg, group) for group in groups if group in values}
    return values, types


def read_yaml(path: Path) -> dict[str, Any]:
    """What a file itself says, its defaults list included. Raises ValueError: it is no YAML of keys."""
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        content = OmegaConf.load(path)
    except (OmegaConfBaseException, YAMLError, OSError) as error:
        raise ValueError(" ".join(str(error).split())) from None
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
    initialize_config_dir(str(conf), version_base="1.3")


def _register(root: type[Any], groups: Mapping[str, Mapping[str, type[Any]]]) -> None:
    """Store the schemas and the user's folders with Hydra."""
    from hydra.conf import HydraConf
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.config_store import ConfigStore
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin
    from omegaconf import OmegaConf

    class UsersFolders(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            for folder in folders():
                search_path.append(USER, f"file://{folder}")

    Plugins.instance().register(UsersFolders)
    store = ConfigStore.instance()
    # Each composition would else load Hydra's own choices (how it logs, where it writes), which are not used here, and
    # copy the store, which it does not change: three quarters of its time.
    store.store(group="hydra", name="config", node=HydraConf(defaults=[]), provider="hydra")
    ConfigStore.__deepcopy__ = lambda itself, memo: itself  # type: ignore[attr-defined]
    store.store(name="schema", node=_writable(OmegaConf.structured(root)))
    for group, table in groups.items():
        for name, kind in table.items():
            store.store(group=group, name=f"{name}_schema", node=_writable(OmegaConf.structured(kind)))


def _writable(node: Any) -> Any:
    """A frozen dataclass makes its node read-only: take the flag off. Mappings accept any keys."""
    from omegaconf import DictConfig, OmegaConf

    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none():
            _writable(child)
            if OmegaConf.get_type(child) is dict:
                OmegaConf.set_struct(child, False)
    return node


def resolve(values: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Dotted key -> value of the interpolations at these keys, in this order; each may refer to the whole config.

    Raises:
        InterpolationError: one cannot be resolved.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    key, found = "", {}
    try:
        whole: Any = OmegaConf.create(dict(values))
        for key in keys:
            value = OmegaConf.select(whole, key)
            found[key] = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException as error:
        broken = error.full_key
        raise InterpolationError(broken if broken is not None and broken in keys else key) from None
    return found


def parse_literal(text: str) -> Any:
    """A list, a mapping, a quoted text or a range in the grammar of Hydra's overrides.

    Raises:
        ValueError: it is none of these.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(f"key={text}").value()
    except (HydraException, RecursionError) as error:
        raise ValueError(str(error)) from None


def to_yaml(values: Mapping[str, Any]) -> str:
    """A config as YAML; interpolations stay as they are."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(dict(values)))
