"""Options of the networks; `task` is what each learns (a key of TASKS)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from syncline.config.checks import check


@dataclass(frozen=True)
class ModelConfig:
    """A network without options of its own."""

    name: str = "lenet"

    task: ClassVar[str] = "classification"


@dataclass(frozen=True)
class ResnetConfig(ModelConfig):
    name: str = "resnet"
    depth: int = 20  # 6 n + 2
    width: int = 16  # channels of the first stage, >= 1

    def __post_init__(self) -> None:
        check(self.depth >= 8 and self.depth % 6 == 2, "model.depth must be 6 n + 2 (8, 14, 20, ...)", self.depth)
        check(self.width >= 1, "model.width must be >= 1", self.width)


@dataclass(frozen=True)
class WideResnetConfig(ModelConfig):
    name: str = "wide_resnet"
    depth: int = 28  # 6 n + 4 or 6 n + 2
    width: int = 10  # >= 1
    dropout: float = 0.0  # within each block, in [0, 1)

    def __post_init__(self) -> None:
        fits = self.depth >= 8 and self.depth % 6 in (2, 4)
        check(fits, "model.depth must be 6 n + 4 or 6 n + 2 (8, 10, 14, 16, ...)", self.depth)
        check(self.width >= 1, "model.width must be >= 1", self.width)
        check(0 <= self.dropout < 1, "model.dropout must be in [0, 1)", self.dropout)


@dataclass(frozen=True)
class BertConfig(ModelConfig):
    name: str = "bert"
    hidden_size: int = 128  # >= 1, a multiple of num_heads
    num_layers: int = 2  # >= 1
    num_heads: int = 2  # >= 1
    intermediate_size: int = 512  # >= 1
    dropout: float = 0.1  # in [0, 1)
    pretrained: str = ""  # '' (a random start), minilm, a folder or a repository of the Hugging Face hub
    root: str = "data"  # <root>/<pretrained> comes first
    download: bool = False

    task: ClassVar[str] = "qa"

    def __post_init__(self) -> None:
        for key in ("hidden_size", "num_layers", "num_heads", "intermediate_size"):
            check(getattr(self, key) >= 1, f"model.{key} must be >= 1", getattr(self, key))
        fits = self.hidden_size % self.num_heads == 0
        check(fits, f"model.hidden_size must be a multiple of num_heads ({self.num_heads})", self.hidden_size)
        check(0 <= self.dropout < 1, "model.dropout must be in [0, 1)", self.dropout)


MODELS: dict[str, type[Any]] = {
    "alexnet_small": ModelConfig,
    "bert": BertConfig,
    "inception_small": ModelConfig,
    "inception_v3": ModelConfig,
    "lenet": ModelConfig,
    "resnet": ResnetConfig,
    "resnet50": ModelConfig,
    "resnet50_bottleneck_cifar": ModelConfig,
    "wide_resnet": WideResnetConfig,
    "wide_resnet50_2": ModelConfig,
}
