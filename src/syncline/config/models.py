"""Options of the models; `task` is a key of TASKS."""

from dataclasses import dataclass, field
from typing import ClassVar

from syncline.config.checks import check


@dataclass(frozen=True)
class AnyModelConfig:
    """Options of every model."""

    name: str = ""

    task: ClassVar[str] = ""  # of one of the user's own: any


@dataclass(frozen=True)
class ModelConfig(AnyModelConfig):
    """A model without options."""

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
    pretrained: str = ""  # '' (randomly initialised), minilm, a folder or a repository of the Hugging Face hub
    root: str = "data"  # <root>/<pretrained> is tried first
    download: bool = False

    task: ClassVar[str] = "qa"

    def __post_init__(self) -> None:
        for key in ("hidden_size", "num_layers", "num_heads", "intermediate_size"):
            check(getattr(self, key) >= 1, f"model.{key} must be >= 1", getattr(self, key))
        fits = self.hidden_size % self.num_heads == 0
        check(fits, f"model.hidden_size must be a multiple of num_heads ({self.num_heads})", self.hidden_size)
        check(0 <= self.dropout < 1, "model.dropout must be in [0, 1)", self.dropout)


@dataclass(frozen=True)
class CharLstmConfig(ModelConfig):
    name: str = "char_lstm"
    embedding_size: int = 64  # >= 1
    hidden_size: int = 256  # units of a layer, >= 1
    num_layers: int = 1  # >= 1
    dropout: float = 0.0  # in [0, 1)

    task: ClassVar[str] = "language"

    def __post_init__(self) -> None:
        for key in ("embedding_size", "hidden_size", "num_layers"):
            check(getattr(self, key) >= 1, f"model.{key} must be >= 1", getattr(self, key))
        check(0 <= self.dropout < 1, "model.dropout must be in [0, 1)", self.dropout)


@dataclass(frozen=True)
class DeepfmConfig(ModelConfig):
    name: str = "deepfm"
    embedding_size: int = 10  # >= 1
    hidden: list[int] = field(default_factory=lambda: [400, 400, 400])  # units of the layers, each >= 1
    dropout: float = 0.5  # in [0, 1)
    batch_norm: bool = True

    task: ClassVar[str] = "ctr"

    def __post_init__(self) -> None:
        check(self.embedding_size >= 1, "model.embedding_size must be >= 1", self.embedding_size)
        check(all(units >= 1 for units in self.hidden), "model.hidden must be layers of >= 1 units", self.hidden)
        check(0 <= self.dropout < 1, "model.dropout must be in [0, 1)", self.dropout)


@dataclass(frozen=True)
class DrawConfig(ModelConfig):
    name: str = "draw"
    glimpses: int = 64  # >= 1
    hidden_size: int = 256  # >= 1
    latent_size: int = 100  # >= 1
    read_size: int = 2  # pixels a side of the patch that it reads, >= 1
    write_size: int = 5  # pixels a side of the patch that it writes, >= 1
    attention: bool = True

    task: ClassVar[str] = "generation"

    def __post_init__(self) -> None:
        for key in ("glimpses", "hidden_size", "latent_size", "read_size", "write_size"):
            check(getattr(self, key) >= 1, f"model.{key} must be >= 1", getattr(self, key))


@dataclass(frozen=True)
class MlpConfig(AnyModelConfig):
    name: str = "mlp"
    hidden: list[int] = field(default_factory=lambda: [128, 128])  # units of the layers, each >= 1

    def __post_init__(self) -> None:
        check(all(units >= 1 for units in self.hidden), "model.hidden must be layers of >= 1 units", self.hidden)


MODELS: dict[str, type[AnyModelConfig]] = {
    "alexnet_small": ModelConfig,
    "bert": BertConfig,
    "char_lstm": CharLstmConfig,
    "deepfm": DeepfmConfig,
    "draw": DrawConfig,
    "inception_small": ModelConfig,
    "inception_v3": ModelConfig,
    "lenet": ModelConfig,
    "mlp": MlpConfig,
    "resnet": ResnetConfig,
    "resnet50": ModelConfig,
    "resnet50_bottleneck_cifar": ModelConfig,
    "softmax_regression": ModelConfig,
    "wide_resnet": WideResnetConfig,
    "wide_resnet50_2": ModelConfig,
}
