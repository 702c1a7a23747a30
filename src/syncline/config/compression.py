"""How pushes are compressed (learning/compression.py): frozen dataclasses that check their own ranges."""

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


@dataclass(frozen=True)
class SparseConfig(FeedbackConfig):
    """Of topk and randk."""

    name: str = "topk"
    density: float = 0.01  # share of a block's elements that is pushed, in (0, 1]

    def __post_init__(self) -> None:
        check(0 < self.density <= 1, "compress.density must be in (0, 1]", self.density)


@dataclass(frozen=True)
class RandkConfig(SparseConfig):
    name: str = "randk"


@dataclass(frozen=True)
class Int8Config(FeedbackConfig):
    name: str = "int8"


@dataclass(frozen=True)
class SignConfig(FeedbackConfig):
    name: str = "sign"


COMPRESSIONS: Mapping[str, type[CompressConfig]] = {
    "none": CompressConfig,
    "topk": SparseConfig,
    "randk": RandkConfig,
    "int8": Int8Config,
    "sign": SignConfig,
}
