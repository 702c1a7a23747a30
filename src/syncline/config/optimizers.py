"""Options of the optimizers: frozen dataclasses that check their own ranges, and the table of their names."""

from dataclasses import dataclass, field

from syncline.checks import Checked, check, one_of, ranged
from syncline.learning.schedule import SCHEDULES

DECAYS = ("all", "matrices")
RMSPROP_FORMS = ("torch", "tensorflow")


@dataclass(frozen=True)
class ScheduleConfig(Checked):
    """Epochs are of the whole training set, from the start of the run."""

    kind: str = one_of("step", SCHEDULES)  # after the warm-up
    factor: float = ranged(0.1, "> 0")  # of the rate, step: at each of at_epochs; exponential: over every_epochs
    at_epochs: list[float] = field(default_factory=list)  # step: ascending, none within the warm-up
    every_epochs: float = ranged(1.0, "> 0")  # exponential: from the end of the warm-up
    staircase: bool = True  # exponential: in steps, one each every_epochs
    end_epoch: float | None = None  # linear, cosine: where final_factor is reached
    final_factor: float = ranged(0.0, ">= 0")  # linear, cosine: on lr at the end
    from_epoch: float | None = None  # linear, cosine: where the decay begins; null: at the end of the warm-up
    warmup_epochs: float = ranged(0.0, ">= 0")  # in which the rate rises linearly to lr
    warmup_from: float = ranged(0.0, "in [0, 1]")  # factor on lr at the start of the warm-up

    _where = "optimizer.schedule"

    def __post_init__(self) -> None:
        super().__post_init__()
        key = self._where
        check(self.at_epochs == sorted(self.at_epochs), f"{key}.at_epochs must ascend", self.at_epochs)
        check(self.kind == "step" or not self.at_epochs, f"{key}.at_epochs goes with kind=step", self.kind)
        rule = f"{key}.at_epochs must not lie before the end of the warm-up ({self.warmup_epochs})"
        check(all(at >= self.warmup_epochs for at in self.at_epochs), rule, self.at_epochs)
        if self.kind in ("linear", "cosine"):
            check(self.end_epoch is not None, f"{key}.end_epoch must be set with kind={self.kind}", self.end_epoch)
        for name in ("end_epoch", "from_epoch"):
            is_used = getattr(self, name) is None or self.kind in ("linear", "cosine")
            check(is_used, f"{key}.{name} goes with kind=linear and kind=cosine", self.kind)
        if self.from_epoch is not None:
            rule = f"{key}.from_epoch must not lie before the end of the warm-up ({self.warmup_epochs})"
            check(self.warmup_epochs <= self.from_epoch, rule, self.from_epoch)
        if self.end_epoch is not None:
            before = "warmup_epochs" if self.from_epoch is None else "from_epoch"
            begin = getattr(self, before)
            rule = f"{key}.end_epoch must be > {before} ({begin})"
            check(begin < self.end_epoch < float("inf"), rule, self.end_epoch)


@dataclass(frozen=True)
class OptimizerConfig(Checked):
    """Options of every optimizer."""

    name: str = ""
    lr: float = ranged(0.01, "> 0")
    weight_decay: float = ranged(0.0, ">= 0")
    decays: str = one_of("all", DECAYS)  # which weights; matrices: tensors of two or more axes, no biases, no norms
    clip_norm: float | None = ranged(None, "> 0")  # a worker's gradient is scaled down to this norm; null: never
    average_decay: float | None = ranged(None, "in (0, 1)")  # of the moving average that is evaluated; null: none is
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    _where = "optimizer"


@dataclass(frozen=True)
class SgdConfig(OptimizerConfig):
    name: str = "sgd"
    lr: float = ranged(0.05, "> 0")
    momentum: float = ranged(0.0, "in [0, 1)")
    nesterov: bool = False  # with momentum > 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check(not self.nesterov or self.momentum > 0, "optimizer.nesterov needs optimizer.momentum > 0", self.momentum)


@dataclass(frozen=True)
class DelayedNesterovConfig(OptimizerConfig):
    """Momentum of the last `delay` updates at each of so many."""

    name: str = "delayed_nesterov"
    lr: float = ranged(0.7, "> 0")
    momentum: float = ranged(0.9, "in [0, 1)")
    delay: int = ranged(4, ">= 1")  # updates


@dataclass(frozen=True)
class RmsPropConfig(OptimizerConfig):
    name: str = "rmsprop"
    alpha: float = ranged(0.9, "in [0, 1)")  # decay of the mean square
    eps: float = ranged(1e-8, "> 0")
    momentum: float = ranged(0.0, "in [0, 1)")
    form: str = one_of("torch", RMSPROP_FORMS)  # whether eps stands outside or inside of the root


@dataclass(frozen=True)
class AdamConfig(OptimizerConfig):
    """weight_decay is added to the gradient."""

    name: str = "adam"
    lr: float = ranged(0.001, "> 0")
    beta1: float = ranged(0.9, "in [0, 1)")
    beta2: float = ranged(0.999, "in [0, 1)")
    eps: float = ranged(1e-8, "> 0")


@dataclass(frozen=True)
class AdamWConfig(AdamConfig):
    """weight_decay shrinks the weights."""

    name: str = "adamw"


OPTIMIZERS: dict[str, type[OptimizerConfig]] = {
    "adam": AdamConfig,
    "adamw": AdamWConfig,
    "delayed_nesterov": DelayedNesterovConfig,
    "rmsprop": RmsPropConfig,
    "sgd": SgdConfig,
}
