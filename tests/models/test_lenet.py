"""LeNet: its published size."""

import torch

from syncline.models.lenet import LeNet


def num_parameters(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_62006_parameters_for_cifar10() -> None:
    assert num_parameters(LeNet(in_channels=3, image_size=32, num_classes=10)) == 62_006


def test_the_original_input_needs_61706_parameters() -> None:
    """One channel of 32x32; the trained pooling of 1998 is replaced, and every map is connected to all maps."""
    assert num_parameters(LeNet(in_channels=1, image_size=32, num_classes=10)) == 61_706
