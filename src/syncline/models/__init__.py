"""Networks: plain nn.Module, chosen by name. Nothing of ours is imported here."""

from collections.abc import Callable

from torch import nn

from .alexnet import AlexNetSmall
from .lenet import LeNet
from .resnet import CifarResNet

MODELS: dict[str, Callable[..., nn.Module]] = {
    "lenet": LeNet,
    "alexnet_small": AlexNetSmall,
    "resnet": CifarResNet,
}


def build(name: str, *, in_channels: int, image_size: int, num_classes: int, **options: int) -> nn.Module:
    """A freshly initialised network; its weights come from torch's global generator.

    Args:
        name: a key of MODELS.
        in_channels: image channels.
        image_size: height and width of the images in pixels.
        num_classes: length of the logits.
        options: what that network takes besides (resnet: depth, width).

    Raises:
        ValueError: an unknown name, or sizes that the network cannot work with.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; choose one of {', '.join(sorted(MODELS))}")
    return MODELS[name](in_channels=in_channels, image_size=image_size, num_classes=num_classes, **options)
