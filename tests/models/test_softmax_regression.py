"""Softmax regression: linear in the pixels, from a known start."""

import math

import pytest
import torch
from torch.nn import functional as F

from syncline.models.softmax_regression import SoftmaxRegression


def test_it_starts_with_uniform_predictions() -> None:
    """For any seed, every image has the loss log(number of classes)."""
    torch.manual_seed(3)
    logits = SoftmaxRegression(1, 4, 5)(torch.randn(7, 1, 4, 4))
    assert F.cross_entropy(logits, torch.arange(7) % 5).item() == pytest.approx(math.log(5))


def test_logits_are_linear_in_the_pixels() -> None:
    torch.manual_seed(1)
    network, (one, other) = SoftmaxRegression(3, 2, 4), torch.randn(2, 40, 3, 2, 2)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    torch.testing.assert_close(2 * network((one + other) / 2), network(one) + network(other))
