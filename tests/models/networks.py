"""What tests ask of networks: their size, their maps."""

from collections.abc import Iterable

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
