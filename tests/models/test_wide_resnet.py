"""Wide residual networks against Zagoruyko and Komodakis 2016."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from syncline.models.wide_resnet import WideBlock, WideResNet


def wrn(depth: int, width: int) -> WideResNet:
    return WideResNet(in_channels=3, image_size=32, num_classes=10, depth=depth, width=width)


@pytest.mark.parametrize(("he", "theirs"), [(8, 10), (26, 28)])
def test_a_depth_of_6n_plus_2_has_the_same_n(he: int, theirs: int) -> None:
    """WRN-26-10 of the DS-Sync paper is WRN-28-10."""
    with torch.device("meta"):
        shapes = [{key: value.shape for key, value in wrn(depth, 10).state_dict().items()} for depth in (he, theirs)]
    assert shapes[0] == shapes[1]


def test_the_shortcut_is_the_identity_where_the_channels_stay() -> None:
    """Pre-activation: nothing, not even a ReLU, is applied on the shortcut."""
    block = WideBlock(in_channels=4, channels=4, stride=1, dropout=0.0)
    nn.init.zeros_(block.conv2.weight)
    maps = torch.randn(3, 4, 6, 6)
    assert torch.equal(block(maps), maps)


def test_the_shortcut_convolves_the_activation_where_they_change() -> None:
    block = WideBlock(in_channels=4, channels=8, stride=2, dropout=0.0).eval()
    nn.init.zeros_(block.conv2.weight)
    maps = torch.randn(3, 4, 6, 6)
    assert block.shortcut is not None
    expected = F.conv2d(F.relu(block.norm1(maps)), block.shortcut.weight, stride=2)
    assert torch.equal(block(maps), expected)
    assert expected.shape == (3, 8, 3, 3)


def test_dropout_is_between_the_convolutions() -> None:
    """2.4: this part of the inputs of the second convolution is zero, beyond the half that the ReLU zeroes."""
    torch.manual_seed(0)
    zeros = []
    for dropout in (0.0, 0.4):
        block = WideBlock(in_channels=16, channels=16, stride=1, dropout=dropout)
        block.conv2.register_forward_hook(
            lambda _module, args, _out: zeros.append((args[0] == 0).double().mean().item())
        )
        block(torch.randn(8, 16, 16, 16))
    assert zeros == pytest.approx([0.5, 0.5 + 0.4 * 0.5], abs=0.02)


def test_the_last_layer_starts_without_a_bias_as_in_the_authors_code() -> None:
    assert wrn(10, 1).linear.bias.eq(0).all()
