"""Softmax regression: a convex loss from a known start."""

import math

import pytest
import torch
from torch.nn import functional as F

from syncline.models.softmax_regression import SoftmaxRegression


def test_30730_parameters_for_cifar10() -> None:
    network = SoftmaxRegression(in_channels=3, image_size=32, num_classes=10)
    assert sum(parameter.numel() for parameter in network.parameters()) == 30_730


def test_it_starts_with_uniform_predictions() -> None:
    """For any seed, every image has the loss log(number of classes)."""
    torch.manual_seed(3)
    logits = SoftmaxRegression(1, 4, 5)(torch.randn(7, 1, 4, 4))
    assert F.cross_entropy(logits, torch.arange(7) % 5).item() == pytest.approx(math.log(5))


def test_the_loss_is_convex_along_every_line() -> None:
    torch.manual_seed(1)
    network, images, labels = SoftmaxRegression(3, 2, 4), torch.randn(40, 3, 2, 2), torch.randint(4, (40,))

    def loss(weights: torch.Tensor) -> float:
        torch.nn.utils.vector_to_parameters(weights, network.parameters())
        return F.cross_entropy(network(images), labels).item()

    size = sum(parameter.numel() for parameter in network.parameters())
    for _ in range(20):
        one, other = torch.randn(2, size)
        assert loss((one + other) / 2) < (loss(one) + loss(other)) / 2
