"""ResNet-50 for small images against He et al. 2015; test_image_networks.py has its form for ImageNet."""

import torch
from models.networks import maps, num_parameters
from torch import nn

from syncline.models.bottleneck import resnet50_bottleneck_cifar


def test_resnet50_for_cifar() -> None:
    """Fifty weighted layers beside four shortcuts; without 990 classes and 49 - 9 weights a filter of ImageNet's."""
    with torch.device("meta"):
        network = resnet50_bottleneck_cifar(in_channels=3, image_size=32, num_classes=10)
    stages = [network.get_submodule(f"layer{number}") for number in (1, 2, 3, 4)]
    assert maps(network, stages, 32) == [(256, 32, 32), (512, 16, 16), (1024, 8, 8), (2048, 4, 4)]
    assert num_parameters(network) == 23_520_842 == 25_557_032 - 990 * (2048 + 1) - 64 * 3 * (7 * 7 - 3 * 3)
    assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in network.modules()) == 50 + 4
