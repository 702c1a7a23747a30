"""What the optimizers take: frozen dataclasses that check their own ranges, and the table of their names."""

from dataclasses import dataclass, field
from typing import Any

SCHEDULES = ("step", "linear", "exponential")
RMSPROP_FORMS = ("torch", "tensorflow")


@dataclass(frozen=True)
class ScheduleConfig:
    """Epochs are of the whole training set, from the run's begin."""

    kind: str = "step"  # one of SCHEDULES: what follows the warm-up
    factor: float = 0.1  # step: on the rate at each of at_epochs; exponential: in every_epochs; > 0
    at_epochs: list[float] = field(default_factory=list)  # step: ascending, none within the warm-up
    every_epochs: float = 1.0  # exponential: > 0, from the end of the warm-up
    staircase: bool = True  # exponential: all at once, whenever every_epochs are over
    end_epoch: float | None = None  # linear: where final_factor is reached, > warmup_epochs
    final_factor: float = 0.0  # linear: on lr at the end, >= 0
    warmup_epochs: float = 0.0  # in which the rate rises straight to lr, >= 0
    warmup_from: float = 0.0  # factor on lr at their begin, in [0, 1]

    def __post_init__(self) -> None:
        key = "optimizer.schedule"
        _check(self.kind in SCHEDULES, f"{key}.kind must be one of {', '.join(SCHEDULES)}", self.kind)
        _check(self.factor > 0, f"{key}.factor must be > 0", self.factor)
        _check(self.at_epochs == sorted(self.at_epochs), f"{key}.at_epochs must ascend", self.at_epochs)
        _check(self.kind == "step" or not self.at_epochs, f"{key}.at_epochs goes with kind=step", self.kind)
        _check(self.every_epochs > 0, f"{key}.every_epochs must be > 0", self.every_epochs)
        _check(self.final_factor >= 0, f"{key}.final_factor must be >= 0", self.final_factor)
        _check(0 <= self.warmup_epochs < float("inf"), f"{key}.warmup_epochs must be >= 0", self.warmup_epochs)
        _check(0 <= self.warmup_from <= 1, f"{key}.warmup_from must be in [0, 1]", self.warmup_from)
        _check(
            all(at >= self.warmup_epochs for at in self.at_epochs),
            f"{key}.at_epochs must not lie before the end of the warm-up ({self.warmup_epochs})",
            self.at_epochs,
        )
        if self.kind == "linear":
            _check(self.end_epoch is not None, f"{key}.end_epoch must be set with kind=linear", self.end_epoch)
        if self.end_epoch is not None:
            _check(self.kind == "linear", f"{key}.end_epoch goes with kind=linear", self.kind)
            _check(
                self.warmup_epochs < self.end_epoch < float("inf"),
                f"{key}.end_epoch must be > warmup_epochs ({self.warmup_epochs})",
                self.end_epoch,
            )


@dataclass(frozen=True)
class _OptimizerConfig:
    """What all optimizers take."""

    name: str = ""
    lr: float = 0.01  # > 0
    weight_decay: float = 0.0  # >= 0
    clip_norm: float | None = None  # a worker's gradient is scaled down to this norm, > 0; null: never
    average_decay: float | None = None  # of the moving average that is evaluated, in (0, 1); null: the weights are
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def __post_init__(self) -> None:
        _check(self.lr > 0, "optimizer.lr must be > 0", self.lr)
        _check(self.weight_decay >= 0, "optimizer.weight_decay must be >= 0", self.weight_decay)
        clip, decay = self.clip_norm, self.average_decay
        _check(clip is None or clip > 0, "optimizer.clip_norm must be > 0 or null", clip)
        _check(decay is None or 0 < decay < 1, "optimizer.average_decay must be in (0, 1) or null", decay)


@dataclass(frozen=True)
class SgdConfig(_OptimizerConfig):
    name: str = "sgd"
    lr: float = 0.05
    momentum: float = 0.9  # in [0, 1)
    nesterov: bool = False  # with momentum > 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(0 <= self.momentum < 1, "optimizer.momentum must be in [0, 1)", self.momentum)
        _check(not self.nesterov or self.momentum > 0, "optimizer.nesterov needs optimizer.momentum > 0", self.momentum)


@dataclass(frozen=True)
class RmsPropConfig(_OptimizerConfig):
    name: str = "rmsprop"
    alpha: float = 0.9  # decay of the mean square, in [0, 1)
    eps: float = 1e-8  # > 0
    momentum: float = 0.0  # in [0, 1)
    form: str = "torch"  # one of RMSPROP_FORMS: whether eps stands outside or inside of the root

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(0 <= self.alpha < 1, "optimizer.alpha must be in [0, 1)", self.alpha)
        _check(self.eps > 0, "optimizer.eps must be > 0", self.eps)
        _check(0 <= self.momentum < 1, "optimizer.momentum must be in [0, 1)", self.momentum)
        _check(self.form in RMSPROP_FORMS, f"optimizer.form must be one of {', '.join(RMSPROP_FORMS)}", self.form)


@dataclass(frozen=True)
class AdamConfig(_OptimizerConfig):
    """weight_decay is added to the gradient."""

    name: str = "adam"
    lr: float = 0.001
    beta1: float = 0.9  # in [0, 1)
    beta2: float = 0.999  # in [0, 1)
    eps: float = 1e-8  # > 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("beta1", "beta2"):
            _check(0 <= getattr(self, key) < 1, f"optimizer.{key} must be in [0, 1)", getattr(self, key))
        _check(self.eps > 0, "optimizer.eps must be > 0", self.eps)


@dataclass(frozen=True)
class AdamWConfig(AdamConfig):
    """weight_decay shrinks the weights."""

    name: str = "adamw"


OPTIMIZERS: dict[str, type[Any]] = {
    "adam": AdamConfig,
    "adamw": AdamWConfig,
    "rmsprop": RmsPropConfig,
    "sgd": SgdConfig,
}


def _check(condition: bool, rule: str, given: object) -> None:
    if not condition:
        raise ValueError(f"{rule}, got {given}")
