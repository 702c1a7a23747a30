"""Local steps: what a worker does between two pushes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.checks import Checked, ConfigError, check, check_numbers, ranged
from syncline.config import own
from syncline.config.folders import folders
from syncline.config.optimizers import OPTIMIZERS, OptimizerConfig, ScheduleConfig

if TYPE_CHECKING:
    OptionalOptimizer = OptimizerConfig | None
else:  # OmegaConf has no type for it: a config holds {name: ..., options} until its __post_init__ converts that
    OptionalOptimizer = Any

KEY = "local.optimizer"


@dataclass(frozen=True)
class LocalStepsConfig(Checked):
    """A push is the result of `steps` local steps; `optimizer` of the run makes the update of it."""

    name: str = "none"
    steps: int = ranged(1, "in 1 .. 1,000,000")  # H, mini-batches of a push
    by_speed: bool = False  # a slower worker makes fewer, so that all pushes take about as long: at least one
    after_epochs: float = ranged(0.0, ">= 0")  # of the worker's own share: until then a push is of one mini-batch
    keep: float = ranged(0.0, "in [0, 1)")  # the share of its own weights that a worker keeps when it is sent new ones
    fragments: int = ranged(1, "in 1 .. 1,000")  # P, of the weights: a push is of one, in turn, and so is its answer
    overlap: bool = False  # of several fragments: a worker makes the next steps while a push and its answer are sent
    # null: steps of plain SGD at the run's rate, and the sum of their gradients is pushed. Else {name: ..., options} of
    # an optimizer, and the change of the weights is pushed.
    optimizer: OptionalOptimizer = None

    _where = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.optimizer, str):
            object.__setattr__(self, "optimizer", {"name": self.optimizer})
        if isinstance(self.optimizer, Mapping):
            object.__setattr__(self, "optimizer", _optimizer(self.optimizer))
        check(
            self.optimizer is None or isinstance(self.optimizer, OptimizerConfig),
            f"{KEY} must be {_RULE}",
            self.optimizer,
        )
        needs = {"local.keep > 0": self.keep > 0, "local.fragments > 1": self.fragments > 1}
        needs[f"local={self.name}, which is your own"] = isinstance(self, own.OwnPart)
        for key, is_set in needs.items():
            check(not is_set or self.optimizer is not None, f"{KEY} must be set with {key}", None)
        rule = "local.fragments must be > 1 with local.overlap"
        check(not self.overlap or self.fragments > 1, rule, self.fragments)


_RULE = "{name: " + " | ".join(OPTIMIZERS) + ", ...}, {_target_: ..., ...} or null"


def _own(options: Mapping[str, Any]) -> OptimizerConfig:
    """One of the user's own, from words or, with the hash of its source, from a record."""
    base: dict[str, type[Any]] = {"optimizer": OptimizerConfig}
    if "_source_" in options:
        kind, values = own.restored("optimizer", options, base)
    else:
        folder = next(iter(folders()), Path())
        name = str(options["_target_"]).rpartition(".")[2]
        kind, values = own.declared("optimizer", name, folder, options, base)
    schedule = values["schedule"]
    if isinstance(schedule, Mapping):
        values["schedule"] = ScheduleConfig(**schedule)
    made: OptimizerConfig = kind(**values)
    check_numbers(made, KEY)
    return made


def _optimizer(options: Mapping[str, Any]) -> OptimizerConfig:
    from syncline.config.hydra_adapter import built, node_of
    from syncline.config.parts import Part, filled  # imports this module

    if "_target_" in options:
        return _own(options)
    name = options.get("name")
    check(isinstance(name, str) and name in OPTIMIZERS, f"{KEY} must be {_RULE}", name)
    kind = OPTIMIZERS[str(name)]
    try:
        made: OptimizerConfig = built(filled(Part("optimizer", kind, node_of(kind)), options).node)
    except ConfigError as error:
        raise ConfigError(re.sub(r"\boptimizer\b", KEY, str(error))) from None
    check_numbers(made, KEY)
    return made
