"""Options of the optimizers and of the learning rate's schedule."""

from dataclasses import dataclass, field
from typing import Any

from syncline.config.checks import check


@dataclass(frozen=True)
class ScheduleConfig:
    factor: float = 0.1  # on the rate at each of at_epochs, > 0
    at_epochs: list[float] = field(default_factory=list)  # epochs of the whole training set, ascending

    def __post_init__(self) -> None:
        check(self.factor > 0, "optimizer.schedule.factor must be > 0", self.factor)
        check(self.at_epochs == sorted(self.at_epochs), "optimizer.schedule.at_epochs must ascend", self.at_epochs)


@dataclass(frozen=True)
class SgdConfig:
    name: str = "sgd"
    lr: float = 0.05  # > 0
    momentum: float = 0.9  # in [0, 1)
    weight_decay: float = 0.0  # >= 0
    clip_norm: float | None = None
    average_decay: float | None = None
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def __post_init__(self) -> None:
        check(self.lr > 0, "optimizer.lr must be > 0", self.lr)
        check(0 <= self.momentum < 1, "optimizer.momentum must be in [0, 1)", self.momentum)
        check(self.weight_decay >= 0, "optimizer.weight_decay must be >= 0", self.weight_decay)


OPTIMIZERS: dict[str, type[Any]] = {"sgd": SgdConfig}
