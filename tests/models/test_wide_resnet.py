"""Wide residual networks against Zagoruyko and Komodakis 2016."""

from pathlib import Path

import pytest
import torch
import yaml
from models.networks import check_start_of_he, maps, num_parameters
from torch import nn
from torch.nn import functional as F

from syncline.models.wide_resnet import WideBlock, WideResNet

CONF = Path(__file__).parents[2] / "conf" / "model"


def wrn(depth: int, width: int, dropout: float = 0.0) -> WideResNet:
    return WideResNet(in_channels=3, image_size=32, num_classes=10, depth=depth, width=width, dropout=dropout)


@pytest.mark.parametrize(
    ("depth", "width", "published_millions", "exact"),
    [(16, 4, 2.7, 2_748_890), (28, 10, 36.5, 36_479_194), (40, 1, 0.6, None), (40, 4, 8.9, 8_949_210)],
)
def test_published_parameter_counts(depth: int, width: int, published_millions: float, exact: int | None) -> None:
    with torch.device("meta"):
        counted = num_parameters(wrn(depth, width))
    assert counted / 1e6 == pytest.approx(published_millions, abs=0.06)
    assert exact in (None, counted)


@pytest.mark.parametrize(("he", "theirs"), [(8, 10), (26, 28)])
def test_a_depth_of_6n_plus_2_has_the_same_n(he: int, theirs: int) -> None:
    """WRN-26-10 of the DS-Sync paper is WRN-28-10."""
    with torch.device("meta"):
        shapes = [{key: value.shape for key, value in wrn(depth, 10).state_dict().items()} for depth in (he, theirs)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("choice", ["wrn10_1", "wrn16_4", "wrn26_10", "wrn28_10"])
def test_each_file_sets_what_its_name_says(choice: str) -> None:
    values = yaml.safe_load((CONF / f"{choice}.yaml").read_text())
    assert (values["name"], values["dropout"]) == ("wide_resnet", 0.0)
    assert f"wrn{values['depth']}_{values['width']}" == choice


def test_maps_halve_where_the_width_doubles() -> None:
    with torch.device("meta"):
        network = wrn(16, 4)
    blocks = [module for module in network.modules() if isinstance(module, WideBlock)]
    assert maps(network, blocks, 32) == [(64, 32, 32)] * 2 + [(128, 16, 16)] * 2 + [(256, 8, 8)] * 2


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


def test_weights_start_as_in_the_authors_code() -> None:
    torch.manual_seed(0)
    network = wrn(16, 2)
    check_start_of_he(network, rel=0.15)
    assert network.linear.bias.eq(0).all()
