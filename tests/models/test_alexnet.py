"""The downsized AlexNet against DSSP, sections V-A.3 and V-C."""

import pytest
import torch
from torch import nn

from syncline.models import build
from syncline.models.alexnet import AlexNetSmall


def count(network: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(module, kind) for module in network.modules())


def size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_three_convolutions_and_two_fully_connected_layers() -> None:
    """V-A.3: "a network with 3 convolutional layers and 2 fully connected layers"."""
    network = AlexNetSmall(in_channels=3, image_size=32, num_classes=10)
    assert (count(network, nn.Conv2d), count(network, nn.Linear)) == (3, 2)
    assert count(network, nn.Dropout) + count(network, nn.BatchNorm2d) == 0
    assert size(network) == 4_579_466


@pytest.mark.parametrize("image_size", [8, 9, 13, 16, 28, 32])
def test_fully_connected_layers_hold_most_parameters_at_every_size(image_size: int) -> None:
    """V-C: "A fully connected layer requires more parameters than a convolutional layer"."""
    network = AlexNetSmall(in_channels=3, image_size=image_size, num_classes=10)
    assert size(network.classifier) > 0.8 * size(network)


@pytest.mark.parametrize("image_size", [8, 9, 13, 16, 28, 32])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_logits_for_every_size(image_size: int, in_channels: int) -> None:
    network = build("alexnet_small", in_channels=in_channels, image_size=image_size, num_classes=5)
    assert network(torch.zeros(2, in_channels, image_size, image_size)).shape == (2, 5)


def test_an_image_too_small_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^alexnet_small needs images of at least 8x8 pixels, got image_size=7$"):
        AlexNetSmall(in_channels=3, image_size=7, num_classes=10)
