"""Inception networks: v3 for ImageNet (Szegedy et al. 2015), and the small one of Zhang et al. 2017."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.torchvision_compat import import_torchvision

from .bottleneck import check_photographs

V3_SMALLEST = 299  # pixels: the auxiliary head's 5x5 average of stride 3 and 5x5 convolution need a map of 17x17


def inception_v3(in_channels: int, image_size: int, num_classes: int) -> nn.Module:
    """torchvision's Inception v3 with its auxiliary head: 27,161,264 parameters with 1000 classes.

    In training the forward pass is random (dropout 0.5 before the last layer), and the batch norm of the auxiliary
    head, whose map is a single pixel, refuses a batch of one image.

    Args:
        in_channels: 3.
        image_size: height and width in pixels, >= 299, as in the paper: what the auxiliary head needs in training.
        num_classes: >= 1.

    Returns:
        Float images [B, 3, S, S] -> in training a pair (logits, aux_logits) of [B, num_classes], else logits.

    Raises:
        ValueError: images of another kind.

    Source: Szegedy et al. 2015, "Rethinking the inception architecture for computer vision", table 1 and section 4 (the
    auxiliary head). Initialisation as in torchvision: normal, deviation 0.1, and 0.001 in the auxiliary head's
    linear layer.
    """
    check_photographs("inception_v3", in_channels, image_size, V3_SMALLEST)
    network: nn.Module = import_torchvision().models.inception_v3(
        weights=None, num_classes=num_classes, aux_logits=True, transform_input=False, init_weights=True
    )
    return network


class ConvModule(nn.Module):
    """Convolution, batch norm with a shift but no scale, ReLU; padded, so that stride 1 keeps the map's size."""

    def __init__(self, in_channels: int, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """[B, in_channels, S, S] -> [B, channels, ceil(S / stride), ceil(S / stride)]."""
        return F.relu(self.norm(self.conv(x)) + self.shift)


class InceptionModule(nn.Module):
    """A 1x1 and a 3x3 convolution side by side."""

    def __init__(self, in_channels: int, channels1: int, channels3: int) -> None:
        super().__init__()
        self.conv1 = ConvModule(in_channels, channels1, 1)
        self.conv3 = ConvModule(in_channels, channels3, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[B, in_channels, S, S] -> [B, channels1 + channels3, S, S]."""
        return torch.cat((self.conv1(x), self.conv3(x)), dim=1)


class DownsampleModule(nn.Module):
    """A 3x3 convolution and a 3x3 max pooling side by side, both of stride 2."""

    def __init__(self, in_channels: int, channels3: int) -> None:
        super().__init__()
        self.conv3 = ConvModule(in_channels, channels3, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """[B, in_channels, S, S] -> [B, channels3 + in_channels, ceil(S / 2), ceil(S / 2)]."""
        return torch.cat((self.conv3(x), F.max_pool2d(x, 3, stride=2, padding=1)), dim=1)


class InceptionSmall(nn.Module):
    """3x3 convolution of 96 channels, eight inception modules with two downsamplings between, global average, linear.

    Args:
        in_channels: image channels C, >= 1.
        image_size: height and width in pixels, >= 4 (two halvings); it does not change the parameters.
        num_classes: >= 1.

    Raises:
        ValueError: an image too small.

    Source: Zhang et al. 2017, "Understanding deep learning requires rethinking generalization", appendix A and figure 3
    ("Inception (small)"), there on the central 28x28 pixels of CIFAR's images. Table 1 counts 1,649,402 parameters with
    10 classes: one for each channel besides the weights, so batch norm has no scale. Initialisation, which the paper
    does not give: He's normal in its fan-in form.
    """

    def __init__(self, in_channels: int, image_size: int, num_classes: int) -> None:
        super().__init__()
        if image_size < 4:
            raise ValueError(f"inception_small needs images of at least 4x4 pixels, got image_size={image_size}")
        self.features = nn.Sequential(
            ConvModule(in_channels, 96, 3),
            InceptionModule(96, 32, 32),
            InceptionModule(64, 32, 48),
            DownsampleModule(80, 80),
            InceptionModule(160, 112, 48),
            InceptionModule(160, 96, 64),
            InceptionModule(160, 80, 80),
            InceptionModule(160, 48, 96),
            DownsampleModule(144, 96),
            InceptionModule(240, 176, 160),
            InceptionModule(336, 176, 160),
        )
        self.linear = nn.Linear(336, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Float images [B, C, S, S] -> logits [B, num_classes]."""
        logits: Tensor = self.linear(self.features(images).mean(dim=(2, 3)))
        return logits
