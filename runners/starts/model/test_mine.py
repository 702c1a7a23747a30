"""pytest test_mine.py"""

import pytest
import torch
from mine import Mine


@pytest.mark.parametrize(("channels", "image_size"), [(1, 8), (3, 32)])
def test_every_image_has_a_logit_for_each_class(channels: int, image_size: int) -> None:
    network = Mine(channels, image_size, num_classes=10, width=4)
    assert network(torch.rand(5, channels, image_size, image_size)).shape == (5, 10)


def test_every_parameter_has_a_gradient() -> None:
    network = Mine(in_channels=1, image_size=8, num_classes=3, width=16)
    network(torch.rand(64, 1, 8, 8)).logsumexp(1).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_a_layer_without_units_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.width must be >= 1, got 0"):
        Mine(in_channels=1, image_size=8, num_classes=10, width=0)
