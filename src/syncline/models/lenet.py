"""LeNet-5 with rectifiers and max pooling."""

import torch
from torch import Tensor, nn


class LeNet(nn.Module):
    """conv 6@5x5, pool, conv 16@5x5, pool, then fully connected 120, 84, num_classes.

    Args:
        in_channels: image channels C, >= 1.
        image_size: height and width in pixels, >= 4. Below 28 both convolutions are padded by 2 and keep the size.
        num_classes: >= 1.

    Raises:
        ValueError: an image too small for two poolings.

    Source: LeCun et al. 1998, "Gradient-based learning applied to document recognition", section II-B. Departures, all
    usual today: ReLU for tanh, max pooling for trained subsampling, every second-layer map sees all first-layer maps, a
    linear output layer. With 32x32x3 images and 10 classes: 62,006 parameters.
    """

    def __init__(self, in_channels: int, image_size: int, num_classes: int) -> None:
        super().__init__()
        if image_size < 4:
            raise ValueError(f"lenet needs images of at least 4x4 pixels, got image_size={image_size}")
        padding = 2 if image_size < 28 else 0
        shrink = 4 - 2 * padding  # pixels that one convolution removes
        side = ((image_size - shrink) // 2 - shrink) // 2
        self.features = nn.Sequential(
            *(nn.Conv2d(in_channels, 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
        )
        full = (nn.Linear(16 * side * side, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes))
        self.classifier = nn.Sequential(*full)

    def forward(self, images: Tensor) -> Tensor:
        """Float images [B, C, S, S] -> logits [B, num_classes]."""
        logits: Tensor = self.classifier(torch.flatten(self.features(images), 1))
        return logits
