"""The schema of a run: frozen dataclasses that check their own ranges, name -> class tables, the one door from Hydra.

Nothing below the door sees a DictConfig: `compose` gives frozen objects or one ConfigError.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast, get_type_hints

from syncline.learning.schedule import LR_CLOCKS
from syncline.strategies import STRATEGIES
from syncline.strategies.dssp import DsspOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig

CONF = Path(__file__).parents[2] / "conf"


class ConfigError(ValueError):
    """What the user asked for cannot be run; the message is one line: what was given, what is allowed."""


@dataclass(frozen=True)
class LenetConfig:
    name: str = "lenet"


@dataclass(frozen=True)
class AlexnetSmallConfig:
    name: str = "alexnet_small"


@dataclass(frozen=True)
class ResnetConfig:
    name: str = "resnet"
    depth: int = 20  # 6 n + 2
    width: int = 16  # channels of the first stage, >= 1

    def __post_init__(self) -> None:
        _check(self.depth >= 8 and self.depth % 6 == 2, "model.depth must be 6 n + 2 (8, 14, 20, ...)", self.depth)
        _check(self.width >= 1, "model.width must be >= 1", self.width)


MODELS: dict[str, type[Any]] = {"alexnet_small": AlexnetSmallConfig, "lenet": LenetConfig, "resnet": ResnetConfig}


@dataclass(frozen=True)
class DatasetConfig:
    """Sizes are images; None takes all there are."""

    name: str = "digits"
    train_size: int | None = None
    test_size: int | None = None
    augment: bool = False  # pad-crop and flip

    full_train_size: ClassVar[int] = 1437

    def __post_init__(self) -> None:
        for key in ("train_size", "test_size"):
            size = getattr(self, key)
            _check(size is None or size >= 1, f"dataset.{key} must be >= 1 or null", size)

    # A timing-only run counts epochs and bytes by these two, without loading anything.

    @property
    def num_train(self) -> int:
        """Training images."""
        return self.train_size or self.full_train_size

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, pixels a side, classes)."""
        return 1, 8, 10


@dataclass(frozen=True)
class GlyphsConfig(DatasetConfig):
    name: str = "glyphs10"
    train_size: int | None = 10_000
    test_size: int | None = 2_000
    image_size: int = 32  # pixels a side, >= 8
    seed: int = 0  # of the drawing, >= 0

    full_train_size: ClassVar[int] = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self.image_size >= 8, "dataset.image_size must be >= 8", self.image_size)
        _check(self.seed >= 0, "dataset.seed must be >= 0", self.seed)

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.image_size, 100 if self.name == "glyphs100" else 10


@dataclass(frozen=True)
class CifarConfig(DatasetConfig):
    name: str = "cifar10"
    root: str = "data"  # holds cifar10.npz / cifar100.npz, or torchvision's own folders
    download: bool = False

    full_train_size: ClassVar[int] = 50_000

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, 32, 100 if self.name == "cifar100" else 10


DATASETS: dict[str, type[DatasetConfig]] = {"cifar": CifarConfig, "digits": DatasetConfig, "glyphs": GlyphsConfig}


@dataclass(frozen=True)
class ScheduleConfig:
    factor: float = 0.1  # on the rate at each of at_epochs, > 0
    at_epochs: list[float] = field(default_factory=list)  # epochs of the whole training set, ascending

    def __post_init__(self) -> None:
        _check(self.factor > 0, "optimizer.schedule.factor must be > 0", self.factor)
        _check(self.at_epochs == sorted(self.at_epochs), "optimizer.schedule.at_epochs must ascend", self.at_epochs)


@dataclass(frozen=True)
class SgdConfig:
    name: str = "sgd"
    lr: float = 0.05  # > 0
    momentum: float = 0.9  # in [0, 1)
    weight_decay: float = 0.0  # >= 0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def __post_init__(self) -> None:
        _check(self.lr > 0, "optimizer.lr must be > 0", self.lr)
        _check(0 <= self.momentum < 1, "optimizer.momentum must be in [0, 1)", self.momentum)
        _check(self.weight_decay >= 0, "optimizer.weight_decay must be >= 0", self.weight_decay)


OPTIMIZERS: dict[str, type[Any]] = {"sgd": SgdConfig}


@dataclass(frozen=True)
class SimulateConfig:
    """Virtual time, in one process."""

    name: str = "simulate"
    events: bool = True  # write events.arrow

    time_kind: ClassVar[str] = "virtual"


@dataclass(frozen=True)
class LocalConfig:
    """Real processes on this machine, started by torchrun."""

    name: str = "local"
    events: bool = True  # write events.arrow
    transport: str = "auto"  # one of TRANSPORTS; auto: unix where there is one
    pace: str = "relative"  # one of PACES: how the cluster's gradient_s is kept
    evaluate: str = "after"  # after, during: when snapshots are evaluated
    checkpoint_every_epochs: float = 1.0  # > 0
    hang_s: float = 30.0  # a worker that is silent so long is named, > 0
    leave_s: float = 300.0  # and after so long treated as gone, > 0
    start_timeout_s: float = 300.0  # for all processes to be there, > 0
    max_restarts: int = 3  # of the whole run, from its checkpoint, >= 0
    tls_cert: str = ""  # PEM files; empty: no TLS
    tls_key: str = ""

    time_kind: ClassVar[str] = "wall"

    def __post_init__(self) -> None:
        for key, allowed in (("transport", TRANSPORTS), ("pace", PACES), ("evaluate", ("after", "during"))):
            given = getattr(self, key)
            _check(given in allowed, f"runner.{key} must be one of {', '.join(allowed)}", given)
        for key in ("checkpoint_every_epochs", "hang_s", "leave_s", "start_timeout_s"):
            _check(getattr(self, key) > 0, f"runner.{key} must be > 0", getattr(self, key))
        _check(self.max_restarts >= 0, "runner.max_restarts must be >= 0", self.max_restarts)
        _check(
            bool(self.tls_cert) == bool(self.tls_key),
            "runner.tls_cert and runner.tls_key go together",
            f"{self.tls_cert!r} and {self.tls_key!r}",
        )


TRANSPORTS = ("auto", "unix", "tcp")
# relative: a worker is as many times slower than the fastest as gradient_s says; absolute: a gradient takes
# gradient_s, if the machine is quick enough.
PACES = ("relative", "absolute")


@dataclass(frozen=True)
class ReplayConfig:
    """A run of real processes, computed again from its event log."""

    name: str = "replay"
    source: str = ""  # identity of the run

    events: ClassVar[bool] = False  # the source's log is the log
    time_kind: ClassVar[str] = "wall"


RUNNERS: dict[str, type[Any]] = {"local": LocalConfig, "replay": ReplayConfig, "simulate": SimulateConfig}


@dataclass(frozen=True)
class NoTrackerConfig:
    name: str = "none"


@dataclass(frozen=True)
class WandbConfig:
    name: str = "wandb"
    project: str = "syncline"
    mode: str = "offline"  # offline, online

    def __post_init__(self) -> None:
        _check(self.mode in ("offline", "online"), "tracker.mode must be offline or online", self.mode)


TRACKERS: dict[str, type[Any]] = {"none": NoTrackerConfig, "wandb": WandbConfig}


@dataclass(frozen=True)
class TargetConfig:
    """Ends a run early, at the first evaluation that reaches `value`."""

    metric: str = "accuracy"
    value: float | None = None  # None: never

    def __post_init__(self) -> None:
        _check(self.metric in METRICS, f"target.metric must be one of {', '.join(METRICS)}", self.metric)


METRICS = ("accuracy", "top5", "loss")
LOWER_IS_BETTER = frozenset({"loss"})
ASYNC_GRADIENTS = ("mean", "mean_over_workers")
MOMENTUM_FORMS = ("torch", "lr_inside")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class RunConfig:
    """One run, complete."""

    model: Any = field(default_factory=LenetConfig)
    dataset: Any = field(default_factory=DatasetConfig)
    optimizer: Any = field(default_factory=SgdConfig)
    strategy: Any = field(default_factory=DsspOptions)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    scenario: ScenarioConfig = field(default_factory=ScenarioConfig)
    runner: Any = field(default_factory=SimulateConfig)
    tracker: Any = field(default_factory=NoTrackerConfig)
    seed: int = 0  # 0 .. 2^32 - 1; of weights, data order, compute times and delays, each its own stream
    batch_size: int = 32  # of one worker, >= 1
    epochs: float | None = None  # of the whole training set; a run ends at the first limit it reaches
    max_updates: int | None = None  # of the (first) shard
    max_time_s: float | None = None  # virtual or wall seconds
    target: TargetConfig = field(default_factory=TargetConfig)
    eval_every_epochs: float = 1.0  # > 0
    gradients: bool = True  # False: times alone, nothing is learned
    lr_clock: str = "samples"  # one of LR_CLOCKS: what the schedule counts as an epoch
    async_gradient: str = "mean"  # one of ASYNC_GRADIENTS: an update of d pushes from P workers divides by d, or by P
    momentum: str = "torch"  # one of MOMENTUM_FORMS: whether the rate is kept inside the momentum buffer
    device: str = "auto"  # one of DEVICES
    threads: int = 1  # of one process, >= 1

    def __post_init__(self) -> None:
        _check(0 <= self.seed < 2**32, "seed must be in 0 .. 2^32 - 1", self.seed)
        _check(self.batch_size >= 1, "batch_size must be >= 1", self.batch_size)
        for key in ("epochs", "max_updates", "max_time_s"):
            limit = getattr(self, key)
            _check(limit is None or 0 < limit < float("inf"), f"{key} must be > 0 or null", limit)
        limits = (self.epochs, self.max_updates, self.max_time_s)
        _check(any(limits), "one of epochs, max_updates, max_time_s must be set", "none")
        _check(self.eval_every_epochs > 0, "eval_every_epochs must be > 0", self.eval_every_epochs)
        _check(self.threads >= 1, "threads must be >= 1", self.threads)
        for key, allowed in _CHOICES.items():
            _check(getattr(self, key) in allowed, f"{key} must be one of {', '.join(allowed)}", getattr(self, key))
        try:
            self.strategy.check_cluster(self.cluster.workers, self.cluster.shards)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        for key, delay in {
            "scenario.push_delay": self.scenario.push_delay,
            "scenario.pull_delay": self.scenario.pull_delay,
            "scenario.slow_shards": self.scenario.slow_shards,
            "cluster.network.jitter": self.cluster.network.jitter,
        }.items():
            _check(
                not delay or self.strategy.has_server,
                f"{key} must be empty: strategy={self.strategy.name} has no server here to push to or pull from",
                delay,
            )
        if isinstance(self.runner, LocalConfig):
            _check(self.gradients, "runner=local learns: gradients must be true", self.gradients)
            _check(
                self.target.value is None or self.runner.evaluate == "during",
                "a target needs runner.evaluate=during",
                self.runner.evaluate,
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain nested types, as config.yaml holds them."""
        return dataclasses.asdict(self)

    @property
    def identity(self) -> str:
        """Names what the run computes: the same for two configs that must give the same result."""
        plain = self.as_dict()
        for key in NOT_IN_IDENTITY:
            group, _, name = key.rpartition(".")
            (plain[group] if group else plain).pop(name, None)
        digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]
        model = f"{self.model.name}{getattr(self.model, 'depth', '')}" if self.gradients else "timing"
        return f"{self.strategy.name}-{model}-{self.dataset.name}-s{self.seed}-{digest}"


_CHOICES = {"lr_clock": LR_CLOCKS, "async_gradient": ASYNC_GRADIENTS, "momentum": MOMENTUM_FORMS, "device": DEVICES}

NOT_IN_IDENTITY = (
    "dataset.download",
    "dataset.root",  # where the data lies, not what it is
    "device",  # where it is computed; environment.json names the machine
    "runner.checkpoint_every_epochs",
    "runner.evaluate",  # when, not what
    "runner.events",  # what is written down
    "runner.hang_s",
    "runner.leave_s",
    "runner.max_restarts",
    "runner.start_timeout_s",
    "runner.tls_cert",
    "runner.tls_key",
    "threads",
    "tracker",  # only mirrors the record
)


@dataclass(frozen=True)
class ScaleConfig:
    """How large an artefact is made; each experiment says what that means for its own runs."""

    name: str = "laptop"
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])  # every run of the grid is made with each

    def __post_init__(self) -> None:
        _check(bool(self.seeds) and len(set(self.seeds)) == len(self.seeds), "scale.seeds must differ", self.seeds)


@dataclass(frozen=True)
class Invocation:
    """How to go about one or many runs; never part of what a run is."""

    scale: ScaleConfig = field(default_factory=ScaleConfig)
    experiment: Any = None  # conf/experiment/<paper>/<artefact>.yaml
    results: str = "results"  # folder of the records
    rerun: bool = False  # repeat what is finished
    jobs: int | None = None  # runs at a time; None: one a core
    fail_fast: bool = False  # the first failure stops the others
    debug: bool = False  # show tracebacks

    def __post_init__(self) -> None:
        _check(self.jobs is None or self.jobs >= 1, "jobs must be >= 1 or null", self.jobs)


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

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)
        Invocation.__post_init__(self)


GROUPS: dict[str, Mapping[str, type[Any]]] = {
    "model": MODELS,
    "dataset": DATASETS,
    "optimizer": OPTIMIZERS,
    "strategy": STRATEGIES,
    "cluster": {"cluster": ClusterConfig},
    "scenario": {"scenario": ScenarioConfig},
    "runner": RUNNERS,
    "tracker": TRACKERS,
    "scale": {"scale": ScaleConfig},
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
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    overrides = [plain for override in overrides for plain in _plain(override)]
    _check_choices(overrides)
    if not GlobalHydra.instance().is_initialized():
        _register()
        initialize_config_dir(str(CONF), version_base="1.3")
    try:
        return hydra_compose("config", overrides=overrides)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        unknown = re.match(r"Could not (?:override|append to config|delete from config)[. ]*'\+*([^']+?)'", str(error))
        if unknown:
            raise ConfigError(_unknown_key(unknown.group(1), overrides)) from None
        raise _one_line(error.__cause__ or error) from None


def _plain(override: str) -> list[str]:
    """One override as Hydra is to see it.

    `from=` is short for `runner.source=`. `+` may stand or not: the schema holds every key, so nothing can be added but
    the experiment. A whole distribution (`cluster.jitter={name: ...}`) takes the place of the one that is there; Hydra
    alone would mix the two.
    """
    override = re.sub("^from=", "runner.source=", override.lstrip("+"))
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


def from_plain(plain: Mapping[str, Any]) -> RunConfig:
    """The config that `as_dict` gave, also after it was written as YAML.

    Raises:
        ConfigError: it is of another version.
    """
    try:
        return cast(RunConfig, _from_plain(RunConfig, plain))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ConfigError(f"a config of another version: {error}") from None


def _from_plain(kind: type[Any], plain: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    values = dict(plain)
    for key, value in plain.items():
        if dataclasses.is_dataclass(hints[key]):
            values[key] = _from_plain(cast(type[Any], hints[key]), value)
        elif kind is RunConfig and key in GROUPS:
            table = GROUPS[key]  # of several choices of one class, the name says which: cifar10, cifar100
            name = value["name"]
            values[key] = _from_plain(table.get(name) or table[name.rstrip("0123456789")], value)
        elif isinstance(value, Mapping) and "source" in value:  # an occasional delay
            values[key] = {**value["source"], "probability": value["probability"]}
    return kind(**values)


def _check(condition: bool, rule: str, given: object) -> None:
    if not condition:
        raise ConfigError(f"{rule}, got {given}")
