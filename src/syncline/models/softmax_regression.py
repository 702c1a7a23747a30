"""Softmax regression: one linear layer, whose cross-entropy is convex in its weights."""

import torch
from torch import Tensor, nn


class SoftmaxRegression(nn.Module):
    """One linear layer from pixels to logits, initialised with zeros.

    The mean cross-entropy is convex. Where no weights separate the classes (images many, noisy and small, as
    `dataset=glyphs10 dataset.image_size=8`) it has a minimum, around which it is strongly convex except for a
    constant added to all logits, along which every gradient vanishes.

    Args:
        in_channels: image channels C, >= 1.
        image_size: height and width in pixels, >= 1.
        num_classes: >= 1.

    Raises:
        ValueError: no pixels.

    With 32x32x3 images and 10 classes: 30,730 parameters.
    """

    def __init__(self, in_channels: int, image_size: int, num_classes: int) -> None:
        super().__init__()
        if image_size < 1:
            raise ValueError(f"softmax_regression needs images of at least 1x1 pixels, got image_size={image_size}")
        self.linear = nn.Linear(in_channels * image_size**2, num_classes)
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        """Float images [B, C, S, S] -> logits [B, num_classes]."""
        logits: Tensor = self.linear(torch.flatten(images, 1))
        return logits
