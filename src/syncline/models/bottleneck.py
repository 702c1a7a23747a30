"""Bottleneck residual networks (He et al. 2015, section 4.1) as built by torchvision, randomly initialised.

torchvision's blocks halve the map in their 3x3 convolution, where the paper's do it in the first 1x1 convolution; the
number of parameters is the same. Convolutions start with He's normal in its fan-out form, batch norms with scale 1, the
last of a block too. torchvision is imported when a model is built, as that takes seconds.

In training, batch norm refuses a batch of one image if the last map is a single pixel, at the smallest size.
"""

from torch import nn

from syncline.torchvision_compat import import_torchvision


def photograph_resnet(kind: str, in_channels: int, image_size: int, num_classes: int) -> nn.Module:
    """A network of fifty layers for ImageNet.

    Args:
        kind: resnet50, with 25,557,032 parameters for 1000 classes, or wide_resnet50_2 (WRN-50-2), whose inner
            convolutions are twice as wide, with 68,883,240.
        in_channels: 3.
        image_size: height and width in pixels, >= 32: after five halvings one pixel is left. 224 in the paper.
        num_classes: >= 1.

    Returns:
        Float images [B, 3, S, S] -> logits [B, num_classes].

    Raises:
        ValueError: images of another kind.

    Source: He et al. 2015, "Deep residual learning", table 1; Zagoruyko and Komodakis 2016, "Wide residual networks",
    WRN-50-2-bottleneck (68.9 M).
    """
    check_photographs(kind, in_channels, image_size, 32)
    network: nn.Module = getattr(import_torchvision().models, kind)(weights=None, num_classes=num_classes)
    return network


def resnet50_bottleneck_cifar(in_channels: int, image_size: int, num_classes: int) -> nn.Module:
    """ResNet-50 for small images: 23,520,842 parameters with 3 channels and 10 classes.

    A 3x3 convolution of stride 1 takes the place of the 7x7 one of stride 2 and of the max pooling, so that the four
    stages turn 32x32 images into maps of 32, 16, 8 and 4 pixels.

    Args:
        in_channels: image channels C, >= 1.
        image_size: height and width in pixels, >= 8: after three halvings one pixel is left.
        num_classes: >= 1.

    Returns:
        Float images [B, C, S, S] -> logits [B, num_classes].

    Raises:
        ValueError: an image too small.

    Source: ours, as usual for CIFAR: He et al. 2015 have no bottleneck network for images of this size.
    """
    if image_size < 8:
        raise ValueError(f"resnet50_bottleneck_cifar needs images of at least 8x8 pixels, got image_size={image_size}")
    network: nn.Module = import_torchvision().models.resnet50(weights=None, num_classes=num_classes)
    network.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.Identity()
    return network


def check_photographs(name: str, in_channels: int, image_size: int, smallest: int) -> None:
    """Raises ValueError unless images have 3 channels and at least `smallest` pixels a side."""
    if in_channels != 3 or image_size < smallest:
        needs, got = f"at least {smallest}x{smallest} pixels", f"in_channels={in_channels}, image_size={image_size}"
        raise ValueError(f"{name} needs images of 3 channels and {needs}, got {got}")
