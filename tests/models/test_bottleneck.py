"""Bottleneck residual networks against He et al. 2015 and Zagoruyko and Komodakis 2016."""

import pytest
import torch
from models.networks import check_start_of_he, maps, num_parameters
from torch import nn

from syncline.models.bottleneck import photograph_resnet, resnet50_bottleneck_cifar


def stages(network: nn.Module) -> list[nn.Module]:
    return [network.get_submodule(f"layer{number}") for number in (1, 2, 3, 4)]


@pytest.fixture(scope="module")
def narrow() -> nn.Module:
    with torch.device("meta"):
        return photograph_resnet("resnet50", in_channels=3, image_size=224, num_classes=1000)


MAPS = [(256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7)]


def test_resnet50_for_imagenet(narrow: nn.Module) -> None:
    """He et al., table 1."""
    assert maps(narrow, stages(narrow), 224) == MAPS
    assert num_parameters(narrow) == 25_557_032


def test_wide_resnet50_2_widens_the_inner_convolutions_alone(narrow: nn.Module) -> None:
    with torch.device("meta"):
        wide = photograph_resnet("wide_resnet50_2", in_channels=3, image_size=224, num_classes=1000)
    assert maps(wide, stages(wide), 224) == MAPS
    assert num_parameters(wide) == 68_883_240
    inner = {"conv1": (2, 1), "conv2": (2, 2), "conv3": (1, 2)}  # factors of output and input channels
    for name, module in wide.named_modules():
        stage, _, rest = name.partition(".")
        if stage.startswith("layer") and isinstance(module, nn.Conv2d):
            out_factor, in_factor = inner.get(rest.rpartition(".")[2], (1, 1))  # otherwise a shortcut
            before = narrow.get_submodule(name)
            assert (module.out_channels, module.in_channels) == (
                before.out_channels * out_factor,
                before.in_channels * in_factor,
            )


def test_resnet50_for_cifar() -> None:
    """Fifty weighted layers beside four shortcuts; without 990 classes and 49 - 9 weights a filter of ImageNet's."""
    with torch.device("meta"):
        network = resnet50_bottleneck_cifar(in_channels=3, image_size=32, num_classes=10)
    assert maps(network, stages(network), 32) == [(256, 32, 32), (512, 16, 16), (1024, 8, 8), (2048, 4, 4)]
    assert num_parameters(network) == 23_520_842 == 25_557_032 - 990 * (2048 + 1) - 64 * 3 * (7 * 7 - 3 * 3)
    assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in network.modules()) == 50 + 4


@pytest.mark.slow
def test_initial_weights_are_those_published() -> None:
    """He's normal in its fan-out form; every batch norm starts at scale 1, the last of a block too."""
    torch.manual_seed(0)
    check_start_of_he(resnet50_bottleneck_cifar(in_channels=3, image_size=32, num_classes=10), rel=0.1)
