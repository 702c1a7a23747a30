"""Networks: plain nn.Module, chosen by name. Nothing of ours is imported here."""

from collections.abc import Callable
from typing import Any

from torch import nn

from .alexnet import AlexNetSmall
from .lenet import LeNet
from .resnet import CifarResNet

MODELS: dict[str, Callable[..., nn.Module]] = {
    "lenet": LeNet,
    "alexnet_small": AlexNetSmall,
    "resnet": CifarResNet,
}


def build(name: str, **options: Any) -> nn.Module:
    """A freshly initialised network; its weights come from torch's global generator.

    Args:
        name: a key of MODELS.
        options: what its class takes: first what the data look like (images: in_channels, image_size, num_classes).

    Raises:
        ValueError: an unknown name, or sizes that the network cannot work with.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; choose one of {', '.join(sorted(MODELS))}")
    return MODELS[name](**options)
