"""The downsized AlexNet of the DSSP paper."""

import torch
from torch import Tensor, nn

CONV_WIDTHS = (64, 128, 256)
HIDDEN = 1024
SMALLEST_MAP = 4  # pixels; a map of this size is not pooled further


class AlexNetSmall(nn.Module):
    """Three convolutions and two fully connected layers; no dropout, no batch normalisation.

    conv 64@5x5, conv 128@3x3, conv 256@3x3, each with ReLU and a 2x2 max pool, then fully connected 1024, num_classes.

    Args:
        in_channels: image channels C, >= 1.
        image_size: height and width in pixels, >= 8. A map of 4x4 or less is not pooled further, so that the fully
            connected layers hold most of the parameters at every size.
        num_classes: >= 1.

    Raises:
        ValueError: image_size below 8.

    Source: Zhao et al. 2019 (DSSP), section V-A.3: "3 convolutional layers and 2 fully connected layers". The paper
    gives no widths, kernels or pooling: those here are ours, chosen so that (section V-C) the fully connected layers
    hold most of the parameters: 4,205,578 of 4,579,466 (92 %) for 32x32x3 images and 10 classes.
    """

    def __init__(self, in_channels: int, image_size: int, num_classes: int) -> None:
        super().__init__()
        if image_size < 8:
            raise ValueError(f"alexnet_small needs images of at least 8x8 pixels, got image_size={image_size}")
        layers: list[nn.Module] = []
        channels, side = in_channels, image_size
        for width, kernel in zip(CONV_WIDTHS, (5, 3, 3), strict=True):
            layers += [nn.Conv2d(channels, width, kernel, padding=kernel // 2), nn.ReLU()]
            channels = width
            if side > SMALLEST_MAP:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
                side = (side + 1) // 2
        self.features = nn.Sequential(*layers)
        inputs = channels * side * side
        self.classifier = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Float images [B, C, S, S] -> logits [B, num_classes]."""
        logits: Tensor = self.classifier(torch.flatten(self.features(images), 1))
        return logits
