"""How messages are compressed (learning/compression.py): frozen dataclasses that check their own ranges."""

from collections.abc import Mapping
from dataclasses import dataclass

from syncline.checks import Checked, ranged


@dataclass(frozen=True)
class CompressConfig(Checked):
    _where = "compress"

    name: str = "none"


@dataclass(frozen=True)
class FeedbackConfig(CompressConfig):
    """Options of every compression."""

    feedback: bool = True  # what a push leaves out is added to the worker's next one
    pulls: bool = False  # a worker is sent how its block has changed, compressed, too; else the block as it is
    consensus: float = ranged(1.0, "in (0, 1]")  # where replicas differ: step towards the mean of what a group knows


@dataclass(frozen=True)
class SparseConfig(FeedbackConfig):
    """Of topk and randk."""

    name: str = "topk"
    consensus: float = ranged(0.1, "in (0, 1]")
    density: float = ranged(0.01, "in (0, 1]")  # share of a block's elements that is pushed


@dataclass(frozen=True)
class RandkConfig(SparseConfig):
    name: str = "randk"
    consensus: float = ranged(0.03, "in (0, 1]")


@dataclass(frozen=True)
class Int8Config(FeedbackConfig):
    name: str = "int8"


@dataclass(frozen=True)
class SignConfig(FeedbackConfig):
    name: str = "sign"
    consensus: float = ranged(0.3, "in (0, 1]")


COMPRESSIONS: Mapping[str, type[CompressConfig]] = {
    "none": CompressConfig,
    "topk": SparseConfig,
    "randk": RandkConfig,
    "int8": Int8Config,
    "sign": SignConfig,
}
