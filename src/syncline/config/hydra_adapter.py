"""All contact with Hydra and OmegaConf, in plain types: files of conf/, interpolations, literals, YAML.

Both take half a second to import, so each function does it when it is called.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class InterpolationError(ValueError):
    """An interpolation that cannot be resolved; `key` is where it stands."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def compose_file(
    conf: Path, file: str, root: type[Any], groups: Mapping[str, Mapping[str, type[Any]]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A file of conf/ merged with those in its defaults list: the values of all keys, and the types of its groups.

    Args:
        conf: the folder.
        file: within it, without its ending.
        root: schema of the topmost keys, a dataclass.
        groups: group -> name -> schema of a choice, a dataclass.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    if not GlobalHydra.instance().is_initialized():
        _register(root, groups)
        initialize_config_dir(str(conf), version_base="1.3")
    cfg = compose(file)
    values: Any = OmegaConf.to_container(cfg)
    types: dict[str, Any] = {group: OmegaConf.get_type(cfg, group) for group in groups if group in values}
    return values, types


def _register(root: type[Any], groups: Mapping[str, Mapping[str, type[Any]]]) -> None:
    """Store the schemas, and the resolver that conf/ uses, with Hydra."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("unless_set", lambda value, *keys: value if set(keys) == {None} else None)
    store = ConfigStore.instance()
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
