"""The downsized AlexNet against DSSP, sections V-A.3 and V-C."""

from torch import nn

from syncline.models.alexnet import AlexNetSmall


def count(network: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(module, kind) for module in network.modules())


def test_three_convolutions_and_two_fully_connected_layers() -> None:
    """V-A.3: "a network with 3 convolutional layers and 2 fully connected layers"."""
    network = AlexNetSmall(in_channels=3, image_size=32, num_classes=10)
    assert (count(network, nn.Conv2d), count(network, nn.Linear)) == (3, 2)
    assert count(network, nn.Dropout) + count(network, nn.BatchNorm2d) == 0
