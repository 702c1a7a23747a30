"""Options of the optimizers: frozen dataclasses that check their own ranges, and the table of their names."""

from dataclasses import dataclass, field

from syncline.config.checks import check, check_choice
from syncline.learning.schedule import SCHEDULES

RMSPROP_FORMS = ("torch", "tensorflow")


@dataclass(frozen=True)
class ScheduleConfig:
    """Epochs are of the whole training set, from the start of the run."""

    kind: str = "step"  # one of SCHEDULES, after the warm-up
    factor: float = 0.1  # of the rate, step: at each of at_epochs; exponential: over every_epochs; > 0
    at_epochs: list[float] = field(default_factory=list)  # step: ascending, none within the warm-up
    every_epochs: float = 1.0  # exponential: > 0, from the end of the warm-up
    staircase: bool = True  # exponential: in steps, one each every_epochs
    end_epoch: float | None = None  # linear: where final_factor is reached, > warmup_epochs
    final_factor: float = 0.0  # linear: on lr at the end, >= 0
    warmup_epochs: float = 0.0  # in which the rate rises linearly to lr, >= 0
    warmup_from: float = 0.0  # factor on lr at the start of the warm-up, in [0, 1]

    def __post_init__(self) -> None:
        key = "optimizer.schedule"
        check_choice(f"{key}.kind", self.kind, SCHEDULES)
        check(self.factor > 0, f"{key}.factor must be > 0", self.factor)
        check(self.at_epochs == sorted(self.at_epochs), f"{key}.at_epochs must ascend", self.at_epochs)
        check(self.kind == "step" or not self.at_epochs, f"{key}.at_epochs goes with kind=step", self.kind)
        check(self.every_epochs > 0, f"{key}.every_epochs must be > 0", self.every_epochs)
        check(self.final_factor >= 0, f"{key}.final_factor must be >= 0", self.final_factor)
        check(0 <= self.warmup_epochs < float("inf"), f"{key}.warmup_epochs must be >= 0", self.warmup_epochs)
        check(0 <= self.warmup_from <= 1, f"{key}.warmup_from must be in [0, 1]", self.warmup_from)
        rule = f"{key}.at_epochs must not lie before the end of the warm-up ({self.warmup_epochs})"
        check(all(at >= self.warmup_epochs for at in self.at_epochs), rule, self.at_epochs)
        if self.kind == "linear":
            check(self.end_epoch is not None, f"{key}.end_epoch must be set with kind=linear", self.end_epoch)
        if self.end_epoch is not None:
            check(self.kind == "linear", f"{key}.end_epoch goes with kind=linear", self.kind)
            rule = f"{key}.end_epoch must be > warmup_epochs ({self.warmup_epochs})"
            check(self.warmup_epochs < self.end_epoch < float("inf"), rule, self.end_epoch)


@dataclass(frozen=True)
class OptimizerConfig:
    """Options of every optimizer."""

    name: str = ""
    lr: float = 0.01  # > 0
    weight_decay: float = 0.0  # >= 0
    clip_norm: float | None = None  # a worker's gradient is scaled down to this norm, > 0; null: never
    average_decay: float | None = None  # in (0, 1): evaluate this moving average of the weights; null: the weights
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def __post_init__(self) -> None:
        check(self.lr > 0, "optimizer.lr must be > 0", self.lr)
        check(self.weight_decay >= 0, "optimizer.weight_decay must be >= 0", self.weight_decay)
        clip, decay = self.clip_norm, self.average_decay
        check(clip is None or clip > 0, "optimizer.clip_norm must be > 0 or null", clip)
        check(decay is None or 0 < decay < 1, "optimizer.average_decay must be in (0, 1) or null", decay)


@dataclass(frozen=True)
class SgdConfig(OptimizerConfig):
    name: str = "sgd"
    lr: float = 0.05
    momentum: float = 0.0  # in [0, 1)
    nesterov: bool = False  # with momentum > 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.momentum < 1, "optimizer.momentum must be in [0, 1)", self.momentum)
        check(not self.nesterov or self.momentum > 0, "optimizer.nesterov needs optimizer.momentum > 0", self.momentum)


@dataclass(frozen=True)
class RmsPropConfig(OptimizerConfig):
    name: str = "rmsprop"
    alpha: float = 0.9  # decay of the mean square, in [0, 1)
    eps: float = 1e-8  # > 0
    momentum: float = 0.0  # in [0, 1)
    form: str = "torch"  # one of RMSPROP_FORMS: whether eps stands outside or inside of the root

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.alpha < 1, "optimizer.alpha must be in [0, 1)", self.alpha)
        check(self.eps > 0, "optimizer.eps must be > 0", self.eps)
        check(0 <= self.momentum < 1, "optimizer.momentum must be in [0, 1)", self.momentum)
        check_choice("optimizer.form", self.form, RMSPROP_FORMS)


@dataclass(frozen=True)
class AdamConfig(OptimizerConfig):
    """weight_decay is added to the gradient."""

    name: str = "adam"
    lr: float = 0.001
    beta1: float = 0.9  # in [0, 1)
    beta2: float = 0.999  # in [0, 1)
    eps: float = 1e-8  # > 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("beta1", "beta2"):
            check(0 <= getattr(self, key) < 1, f"optimizer.{key} must be in [0, 1)", getattr(self, key))
        check(self.eps > 0, "optimizer.eps must be > 0", self.eps)


@dataclass(frozen=True)
class AdamWConfig(AdamConfig):
    """weight_decay shrinks the weights."""

    name: str = "adamw"


OPTIMIZERS: dict[str, type[OptimizerConfig]] = {
    "adam": AdamConfig,
    "adamw": AdamWConfig,
    "rmsprop": RmsPropConfig,
    "sgd": SgdConfig,
}
