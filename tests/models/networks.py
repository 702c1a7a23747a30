"""What tests ask of networks: their size, their maps, their initial weights."""

from collections.abc import Iterable

import pytest
import torch
from torch import nn


def num_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def maps(network: nn.Module, modules: Iterable[nn.Module], image_size: int) -> list[tuple[int, ...]]:
    """Channels and pixels of what these modules of a network on the meta device give for colour images, in order."""
    shapes: list[tuple[int, ...]] = []
    for module in modules:
        module.register_forward_hook(lambda _module, _args, out: shapes.append(tuple(out.shape[1:])))
    network(torch.empty(2, 3, image_size, image_size, device="meta"))
    return shapes


def check_start_of_he(network: nn.Module, rel: float, is_fan_out: bool = True) -> None:
    """Convolutions start with He's variance, for their outputs or their inputs; batch norms with scale 1, shift 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            channels = module.out_channels if is_fan_out else module.in_channels
            fan = channels * module.kernel_size[0] * module.kernel_size[1]
            assert module.weight.std().item() == pytest.approx((2 / fan) ** 0.5, rel=rel)
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()
