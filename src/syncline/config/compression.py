"""How messages are compressed (learning/compression.py): frozen dataclasses that check their own ranges."""

from collections.abc import Mapping
from dataclasses import dataclass

from syncline.config.checks import check


@dataclass(frozen=True)
class CompressConfig:
    name: str = "none"


@dataclass(frozen=True)
class FeedbackConfig(CompressConfig):
    """Options of every compression."""

    feedback: bool = True  # what a push leaves out is added to the worker's next one
    pulls: bool = False  # a worker is sent how its block has changed, compressed, too; else the block as it is
    consensus: float = 1.0  # where replicas differ: step towards the mean of what a group knows, in (0, 1]

    def __post_init__(self) -> None:
        check(0 < self.consensus <= 1, "compress.consensus must be in (0, 1]", self.consensus)


@dataclass(frozen=True)
class SparseConfig(FeedbackConfig):
    """Of topk and randk."""

    name: str = "topk"
    consensus: float = 0.1
    density: float = 0.01  # share of a block's elements that is pushed, in (0, 1]

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 < self.density <= 1, "compress.density must be in (0, 1]", self.density)


@dataclass(frozen=True)
class RandkConfig(SparseConfig):
    name: str = "randk"
    consensus: float = 0.03


@dataclass(frozen=True)
class Int8Config(FeedbackConfig):
    name: str = "int8"


@dataclass(frozen=True)
class SignConfig(FeedbackConfig):
    name: str = "sign"
    consensus: float = 0.3


COMPRESSIONS: Mapping[str, type[CompressConfig]] = {
    "none": CompressConfig,
    "topk": SparseConfig,
    "randk": RandkConfig,
    "int8": Int8Config,
    "sign": SignConfig,
}
