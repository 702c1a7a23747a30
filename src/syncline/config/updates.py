"""Rules for the pushes of an update (learning/update.py): frozen dataclasses that check their own ranges."""

from collections.abc import Mapping
from dataclasses import dataclass

from syncline.checks import Checked, ranged


@dataclass(frozen=True)
class UpdateConfig(Checked):
    """The mean of the pushes, or their sum where the strategy says so."""

    _where = "update"

    name: str = "mean"


@dataclass(frozen=True)
class StalenessAwareConfig(UpdateConfig):
    """A push of staleness tau counts 1 / max(1, tau + shift)^power."""

    name: str = "staleness_aware"
    shift: int = ranged(0, ">= 0")
    power: float = ranged(1.0, ">= 0")


@dataclass(frozen=True)
class DelayCompensatedConfig(UpdateConfig):
    name: str = "delay_compensated"
    strength: float = ranged(2.0, ">= 0")  # lambda_0
    adaptive: bool = True  # divided by the root of the gradients' mean square
    decay: float = ranged(0.95, "in [0, 1)")  # of that mean


@dataclass(frozen=True)
class GapAwareConfig(UpdateConfig):
    name: str = "gap_aware"
    decay: float = ranged(0.99, "in [0, 1)")  # of the mean step, in pushes


@dataclass(frozen=True)
class ElasticConfig(UpdateConfig):
    """The shard moves towards the weights of the worker by this share of the distance."""

    name: str = "elastic"
    strength: float = ranged(0.1, "in (0, 1]")  # alpha


UPDATES: Mapping[str, type[UpdateConfig]] = {
    "mean": UpdateConfig,
    "staleness_aware": StalenessAwareConfig,
    "delay_compensated": DelayCompensatedConfig,
    "gap_aware": GapAwareConfig,
    "elastic": ElasticConfig,
}
