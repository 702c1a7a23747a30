"""Options of the models; `tasks` are keys of TASKS, of which a run has the first that its data support."""

from dataclasses import dataclass, field
from typing import ClassVar

from syncline.checks import Checked, check, ranged


@dataclass(frozen=True)
class AnyModelConfig(Checked):
    """Options of every model."""

    name: str = ""

    _where = "model"
    tasks: ClassVar[tuple[str, ...]] = ()  # of one of the user's own: any


@dataclass(frozen=True)
class ModelConfig(AnyModelConfig):
    """A model without options."""

    name: str = "lenet"

    tasks: ClassVar[tuple[str, ...]] = ("classification",)


@dataclass(frozen=True)
class ResnetConfig(ModelConfig):
    name: str = "resnet"
    depth: int = ranged(20, "in 8 .. 2000")  # 6 n + 2
    width: int = ranged(16, "in 1 .. 4096")  # channels of the first stage

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.depth % 6 == 2, "model.depth must be 6 n + 2 (8, 14, 20, ...)", self.depth)


@dataclass(frozen=True)
class WideResnetConfig(ModelConfig):
    name: str = "wide_resnet"
    depth: int = ranged(28, "in 8 .. 2000")  # 6 n + 4 or 6 n + 2
    width: int = ranged(10, "in 1 .. 4096")
    dropout: float = ranged(0.0, "in [0, 1)")  # within each block

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "model.depth must be 6 n + 4 or 6 n + 2 (8, 10, 14, 16, ...)"
        check(self.depth % 6 in (2, 4), rule, self.depth)


def _check_heads(hidden_size: int, num_heads: int) -> None:
    check(hidden_size % num_heads == 0, f"model.hidden_size must be a multiple of num_heads ({num_heads})", hidden_size)


@dataclass(frozen=True)
class BertConfig(ModelConfig):
    name: str = "bert"
    hidden_size: int = ranged(128, "in 1 .. 65,536")  # a multiple of num_heads
    num_layers: int = ranged(2, "in 1 .. 1000")
    num_heads: int = ranged(2, "in 1 .. 65,536")
    intermediate_size: int = ranged(512, "in 1 .. 262,144")
    dropout: float = ranged(0.1, "in [0, 1)")
    pretrained: str = ""  # '' (randomly initialised), minilm, a folder or a repository of the Hugging Face hub
    root: str = "data"  # <root>/<pretrained> is tried first
    download: bool = False

    tasks: ClassVar[tuple[str, ...]] = ("qa",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_heads(self.hidden_size, self.num_heads)


@dataclass(frozen=True)
class CharLstmConfig(ModelConfig):
    name: str = "char_lstm"
    embedding_size: int = ranged(64, "in 1 .. 65,536")
    hidden_size: int = ranged(256, "in 1 .. 65,536")  # units of a layer
    num_layers: int = ranged(1, "in 1 .. 1000")
    dropout: float = ranged(0.0, "in [0, 1)")

    tasks: ClassVar[tuple[str, ...]] = ("language", "next_token")


@dataclass(frozen=True)
class DeepfmConfig(ModelConfig):
    name: str = "deepfm"
    embedding_size: int = ranged(10, "in 1 .. 65,536")
    # units of layers
    hidden: list[int] = field(default_factory=lambda: [400, 400, 400], metadata={"range": "in 1 .. 1,048,576"})
    dropout: float = ranged(0.5, "in [0, 1)")
    batch_norm: bool = True

    tasks: ClassVar[tuple[str, ...]] = ("ctr",)


@dataclass(frozen=True)
class DrawConfig(ModelConfig):
    name: str = "draw"
    glimpses: int = ranged(64, "in 1 .. 1000")
    hidden_size: int = ranged(256, "in 1 .. 65,536")
    latent_size: int = ranged(100, "in 1 .. 65,536")
    read_size: int = ranged(2, "in 1 .. 4096")  # pixels a side of the patch that it reads
    write_size: int = ranged(5, "in 1 .. 4096")  # pixels a side of the patch that it writes
    attention: bool = True

    tasks: ClassVar[tuple[str, ...]] = ("generation",)


@dataclass(frozen=True)
class GptConfig(ModelConfig):
    name: str = "gpt"
    hidden_size: int = ranged(128, "in 1 .. 65,536")  # a multiple of num_heads
    num_layers: int = ranged(4, "in 1 .. 1000")
    num_heads: int = ranged(4, "in 1 .. 65,536")
    dropout: float = ranged(0.0, "in [0, 1)")

    tasks: ClassVar[tuple[str, ...]] = ("language", "next_token")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_heads(self.hidden_size, self.num_heads)


@dataclass(frozen=True)
class MlpConfig(AnyModelConfig):
    name: str = "mlp"
    # units of layers
    hidden: list[int] = field(default_factory=lambda: [128, 128], metadata={"range": "in 1 .. 1,048,576"})


MODELS: dict[str, type[AnyModelConfig]] = {
    "alexnet_small": ModelConfig,
    "bert": BertConfig,
    "char_lstm": CharLstmConfig,
    "deepfm": DeepfmConfig,
    "draw": DrawConfig,
    "gpt": GptConfig,
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
