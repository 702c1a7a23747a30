"""The downsized AlexNet against DSSP, sections V-A.3 and V-C."""

import pytest
import torch
from torch import nn

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


@pytest.mark.parametrize("image_size", [8, 13, 32])
def test_fully_connected_layers_hold_most_parameters_at_every_size(image_size: int) -> None:
    """V-C: "A fully connected layer requires more parameters than a convolutional layer"."""
    with torch.device("meta"):
        network = AlexNetSmall(in_channels=3, image_size=image_size, num_classes=10)
    assert size(network.classifier) > 0.8 * size(network)
