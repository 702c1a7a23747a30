"""The one door from Hydra: `compose` gives frozen objects or one ConfigError; nothing else sees a DictConfig."""

import copy
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from syncline.config.checks import ConfigError, check
from syncline.config.launchers import LAUNCHERS, HereConfig, SlurmConfig
from syncline.config.run import TABLES, RunConfig
from syncline.timing.cluster import ClusterConfig, ScenarioConfig

CONF = Path(__file__).parents[3] / "conf"


@dataclass(frozen=True)
class ScaleConfig:
    """How large an artefact is made; each experiment says what that means for its own runs."""

    name: str = "laptop"
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])  # every run of the grid is made with each

    def __post_init__(self) -> None:
        check(bool(self.seeds) and len(set(self.seeds)) == len(self.seeds), "scale.seeds must differ", self.seeds)


@dataclass(frozen=True)
class Invocation:
    """How to go about one or many runs; never part of what a run is."""

    scale: ScaleConfig = field(default_factory=ScaleConfig)
    launcher: Any = field(default_factory=HereConfig)  # who starts the runs
    experiment: Any = None  # conf/experiment/<paper>/<artefact>.yaml
    results: str = "results"  # folder of the records
    rerun: bool = False  # repeat what is finished
    jobs: int | None = None  # runs at a time; None: one a core
    fail_fast: bool = False  # the first failure stops the others
    debug: bool = False  # show tracebacks

    def __post_init__(self) -> None:
        check(self.jobs is None or self.jobs >= 1, "jobs must be >= 1 or null", self.jobs)


@dataclass(frozen=True)
class _Root(RunConfig, Invocation):
    """All keys of the command line.

    A group whose choices have different fields must start empty, or Hydra holds it to the fields of the first.
    """

    model: Any = None
    dataset: Any = None
    optimizer: Any = None
    strategy: Any = None
    runner: Any = None
    tracker: Any = None
    launcher: Any = None

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)
        Invocation.__post_init__(self)


GROUPS: dict[str, Mapping[str, type[Any]]] = {
    **TABLES,
    "cluster": {"cluster": ClusterConfig},
    "scenario": {"scenario": ScenarioConfig},
    "scale": {"scale": ScaleConfig},
    "launcher": LAUNCHERS,
}


def choices(group: str) -> list[str]:
    """What a group can be set to: the files of conf/<group>."""
    folder = CONF / group
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def compose(overrides: Sequence[str]) -> tuple[RunConfig, Invocation]:
    """One config from the defaults of conf/ and these overrides (Hydra's grammar, no sweeps).

    Raises:
        ConfigError: an unknown group, choice or key, or a value of the wrong type or out of range.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    cfg = _compose(overrides)
    try:
        root = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise _one_line(error) from None
    except ValueError as error:
        raise ConfigError(str(error)) from None
    assert isinstance(root, _Root)
    return _part(RunConfig, root), _part(Invocation, root)


def compose_yaml(overrides: Sequence[str]) -> str:
    """The composed config as YAML, before any check of ranges."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(_compose(overrides), resolve=True)


def sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The product of the sweeps (`seed=0,1`, `seed=range(0,3)`) among overrides, as lists of plain overrides."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        return [runs for batch in BasicSweeper.split_arguments(parsed, max_batch_size=None) for runs in batch]
    except HydraException as error:
        raise _one_line(error) from None


def _compose(overrides: Sequence[str]) -> Any:
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    overrides = [plain for override in launched(overrides) for plain in _plain(override)]
    _check_choices(overrides)
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
        chosen = [word for word in parsed if word.key_or_group in (*GROUPS, "experiment") or word.is_sweep_override()]
        cfg = copy.deepcopy(_chosen(tuple(str(word.input_line) for word in chosen)))
        # As Hydra does it: what sets keys comes after all that chooses groups, wherever it stands.
        ConfigLoaderImpl._apply_overrides_to_config([word for word in parsed if word not in chosen], cfg)
        return cfg
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        unknown = re.match(r"Could not (?:override|append to config|delete from config)[. ]*'\+*([^']+?)'", str(error))
        if unknown:
            raise ConfigError(_unknown_key(unknown.group(1), overrides)) from None
        raise _one_line(error.__cause__ or error) from None


@lru_cache(maxsize=512)
def _chosen(overrides: tuple[str, ...]) -> Any:
    """The config of these choices of groups: it takes Hydra a tenth of a second, and runs of a plan share them."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    if not GlobalHydra.instance().is_initialized():
        _register()
        initialize_config_dir(str(CONF), version_base="1.3")
    return hydra_compose("config", overrides=list(overrides))


def launched(overrides: Sequence[str]) -> list[str]:
    """`runner=slurm`, as users of other systems write it, is short for `launcher=slurm`: who starts a run does not
    change what it is. `runner.partition=gpu` and its like follow it.
    """
    words = [override.lstrip("+") for override in overrides]
    if "runner=slurm" not in words:
        return list(overrides)
    moved = {f"runner.{entry.name}" for entry in dataclasses.fields(SlurmConfig)}
    return [
        word.replace("runner", "launcher", 1) if word == "runner=slurm" or word.partition("=")[0] in moved else word
        for word in words
    ]


def _plain(override: str) -> list[str]:
    """One override as Hydra is to see it.

    `from=` is short for `runner.source=`, `hosts=` for `runner.hosts=`. `+` may stand or not: the schema holds every
    key, so nothing can be added but the experiment. A whole distribution (`cluster.jitter={name: ...}`) takes the place
    of the one that is there; Hydra alone would mix the two.
    """
    override = re.sub("^from=", "runner.source=", override.lstrip("+"))
    override = re.sub("^hosts=", "runner.hosts=", override)
    if override.startswith("experiment="):
        return [f"+{override}"]
    if re.match(r"[\w.]+=\{(.*,)?\s*name:", override):
        return [f"{override.partition('=')[0]}=null", override]
    return [override]


def _register() -> None:
    """Put the schema into Hydra's store. A frozen dataclass makes its node read-only, so the flag is taken off."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    store = ConfigStore.instance()
    store.store(name="schema", node=_writable(OmegaConf.structured(_Root)))
    for group, table in GROUPS.items():
        for name, kind in table.items():
            store.store(group=group, name=f"{name}_schema", node=_writable(OmegaConf.structured(kind)))


def _writable(node: Any) -> Any:
    from omegaconf import DictConfig, OmegaConf

    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none():
            _writable(child)
            if OmegaConf.get_type(child) is dict:
                OmegaConf.set_struct(child, False)
    return node


def _check_choices(overrides: Sequence[str]) -> None:
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if re.match(r"hydra\b", key):
            raise ConfigError(f"{key}: unknown key")
        if not key:
            raise ConfigError(f"{override!r} is no key=value")
        if key in (*GROUPS, "experiment") and value not in choices(key):
            raise ConfigError(f"{key} must be one of {', '.join(choices(key))}; got {value!r}")


def _unknown_key(key: str, overrides: Sequence[str]) -> str:
    from omegaconf import DictConfig, OmegaConf

    rest = [override for override in overrides if override.lstrip("+~").partition("=")[0] != key]
    parent, _, _ = key.rpartition(".")
    node = _compose(rest)
    if parent:
        node = OmegaConf.select(node, parent)
    allowed = ", ".join(str(name) for name in node) if isinstance(node, DictConfig) else "no keys"
    return f"{key}: unknown key; {parent or 'the top level'} takes {allowed}"


def _one_line(error: BaseException) -> ConfigError:
    """Hydra's and OmegaConf's messages without their extra lines, the key in front."""
    if str(error).startswith("Ambiguous value"):
        return ConfigError(str(error).splitlines()[0] + "; -m runs all of them")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    key = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    first = lines[0] if lines else type(error).__name__
    return ConfigError(f"{key}: {first}" if key and key not in first else first)


def _part(kind: type[Any], root: _Root) -> Any:
    return kind(**{entry.name: getattr(root, entry.name) for entry in dataclasses.fields(kind)})
