"""A network of fully connected layers."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """Fully connected layers with ReLU between them, with PyTorch's initial weights.

    Args:
        sample_shape: of one sample, which is flattened.
        num_outputs: >= 1.
        hidden: units of the layers before the last one, each >= 1.
    """

    def __init__(self, sample_shape: Sequence[int], num_outputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for num_in, num_out in itertools.pairwise([math.prod(sample_shape), *hidden]):
            layers += [nn.Linear(num_in, num_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear([math.prod(sample_shape), *hidden][-1], num_outputs))

    def forward(self, samples: Tensor) -> Tensor:
        """Samples [B, ...] of numbers -> [B, num_outputs]."""
        outputs: Tensor = self.layers(torch.flatten(samples.float(), 1))
        return outputs


def mlp(hidden: Sequence[int], **sizes: Any) -> Mlp:
    """The network for images (in_channels, image_size, num_classes) or arrays (sample_shape, num_outputs).

    Raises:
        ValueError: other data.
    """
    if "image_size" in sizes:
        return Mlp((sizes["in_channels"], sizes["image_size"], sizes["image_size"]), sizes["num_classes"], hidden)
    if "sample_shape" not in sizes:
        raise ValueError(f"mlp needs images or arrays, got data with {', '.join(sizes)}")
    return Mlp(sizes["sample_shape"], sizes["num_outputs"], hidden)
