"""Residual networks against He et al. 2015, section 4.2."""

import pytest
import torch
from models.networks import check_start_of_he, maps, num_parameters
from torch import nn

from syncline.models.resnet import BasicBlock, CifarResNet


def cifar_resnet(depth: int) -> CifarResNet:
    return CifarResNet(in_channels=3, image_size=32, num_classes=10, depth=depth)


@pytest.mark.parametrize(
    ("depth", "published_millions", "exact"),
    [
        (20, 0.27, 269_722),
        (50, 0.76, 755_802),  # not in the paper; n = 8
        (110, 1.7, 1_727_962),
    ],
)
def test_published_parameter_counts(depth: int, published_millions: float, exact: int) -> None:
    """Table 6."""
    with torch.device("meta"):
        counted = num_parameters(cifar_resnet(depth))
    assert counted == exact
    assert counted / 1e6 == pytest.approx(published_millions, rel=0.02)


def test_shortcuts_have_no_parameters() -> None:
    """4.2: "we use identity shortcuts in all cases (i.e., option A)"."""
    block = BasicBlock(in_channels=4, channels=8, stride=2).eval()
    assert {name.partition(".")[0] for name, _ in block.named_parameters()} == {"conv1", "norm1", "conv2", "norm2"}
    nn.init.zeros_(block.conv2.weight)  # what is left is the shortcut
    images = torch.rand(3, 4, 6, 6)
    with torch.no_grad():
        out = block(images)
    assert torch.equal(out[:, :4], images[:, :, ::2, ::2])
    assert torch.equal(out[:, 4:], torch.zeros(3, 4, 3, 3))


def test_maps_halve_where_the_width_doubles() -> None:
    """4.2: map sizes 32, 16, 8 with 16, 32, 64 filters."""
    with torch.device("meta"):
        network = cifar_resnet(20)
    blocks = [module for module in network.modules() if isinstance(module, BasicBlock)]
    assert maps(network, blocks, 32) == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


def test_convolutions_start_with_the_variance_of_he() -> None:
    torch.manual_seed(0)
    check_start_of_he(cifar_resnet(20), rel=0.15)
