"""Local steps: what a worker does between two pushes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.config.checks import ConfigError, check, check_numbers
from syncline.config.optimizers import OPTIMIZERS, OptimizerConfig, ScheduleConfig
from syncline.config.reading import converted, described, fields
from syncline.config.words import meant, nearest

if TYPE_CHECKING:
    OptionalOptimizer = OptimizerConfig | None
else:  # OmegaConf has no type for it: a config holds {name: ..., options} until its __post_init__ converts that
    OptionalOptimizer = Any

KEY = "local.optimizer"


@dataclass(frozen=True)
class LocalStepsConfig:
    """A push is the result of `steps` local steps; `optimizer` of the run makes the update of it."""

    name: str = "none"
    steps: int = 1  # H >= 1, mini-batches of a push
    after_epochs: float = 0.0  # >= 0, of the worker's own share: until then a push is of one mini-batch
    # null: steps of plain SGD at the run's rate, and the sum of their gradients is pushed. Else {name: ..., options} of
    # an optimizer, and the change of the weights is pushed.
    optimizer: OptionalOptimizer = None

    def __post_init__(self) -> None:
        check(self.steps >= 1, "local.steps must be >= 1", self.steps)
        check(0 <= self.after_epochs < float("inf"), "local.after_epochs must be >= 0", self.after_epochs)
        if isinstance(self.optimizer, str):
            object.__setattr__(self, "optimizer", {"name": self.optimizer})
        if isinstance(self.optimizer, Mapping):
            object.__setattr__(self, "optimizer", _optimizer(dict(self.optimizer)))
        check(
            self.optimizer is None or isinstance(self.optimizer, OptimizerConfig),
            f"{KEY} must be {_RULE}",
            self.optimizer,
        )


_RULE = "{name: " + " | ".join(OPTIMIZERS) + ", ...} or null"


def _optimizer(options: dict[str, Any]) -> OptimizerConfig:
    name = options.get("name")
    check(isinstance(name, str) and name in OPTIMIZERS, f"{KEY} must be {_RULE}", name)
    kind = OPTIMIZERS[str(name)]
    try:
        made: OptimizerConfig = _built(kind, options, KEY)
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(KEY) else f"local.{text}") from None
    return made


def _built(kind: type[Any], options: Mapping[str, Any], key: str) -> Any:
    kinds, values = fields(kind), {}
    for name, value in options.items():
        if name not in kinds:
            raise ConfigError(f"{key}.{name}: unknown key; {key} takes {', '.join(kinds)}{meant(nearest(name, kinds))}")
        if kinds[name] is ScheduleConfig and isinstance(value, Mapping):
            values[name] = _built(ScheduleConfig, value, f"{key}.{name}")
            continue
        try:
            values[name] = converted(kinds[name], value)
        except (ValueError, OverflowError):
            raise ConfigError(f"{key}.{name} must be {described(kinds[name])}, got {value}") from None
    made = kind(**values)
    check_numbers(made, key)
    return made
