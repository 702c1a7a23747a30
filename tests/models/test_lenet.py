"""LeNet: its published size and the image sizes it takes."""

import pytest
import torch

from syncline.models import build
from syncline.models.lenet import LeNet


def num_parameters(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_62006_parameters_for_cifar10() -> None:
    assert num_parameters(LeNet(in_channels=3, image_size=32, num_classes=10)) == 62_006


def test_the_original_input_needs_61706_parameters() -> None:
    """One channel of 32x32; the trained pooling of 1998 is replaced, and every map is connected to all maps."""
    assert num_parameters(LeNet(in_channels=1, image_size=32, num_classes=10)) == 61_706


@pytest.mark.parametrize("image_size", [4, 5, 7, 8, 16, 27, 28, 29, 32, 64])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_logits_for_every_size(image_size: int, in_channels: int) -> None:
    network = build("lenet", in_channels=in_channels, image_size=image_size, num_classes=7)
    assert network(torch.zeros(2, in_channels, image_size, image_size)).shape == (2, 7)


def test_an_image_too_small_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^lenet needs images of at least 4x4 pixels, got image_size=3$"):
        LeNet(in_channels=1, image_size=3, num_classes=10)
