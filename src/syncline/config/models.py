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


MODELS: dict[str, type[Any]] = {
    "alexnet_small": ModelConfig,
    "lenet": ModelConfig,
    "resnet": ResnetConfig,
}
