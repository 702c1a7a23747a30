"""Residual networks for small images (He et al. 2015, section 4.2)."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut without parameters (option A).

    If the block halves the map and widens it, the shortcut takes every second pixel and appends zero channels.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.new_channels = channels - in_channels
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """[B, in_channels, S, S] -> [B, channels, ceil(S / stride), ceil(S / stride)]."""
        out: Tensor = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.new_channels or self.stride > 1:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(out + x)


class CifarResNet(nn.Module):
    """3x3 convolution, three stages of n blocks with width, 2 width, 4 width channels, global average, linear.

    Args:
        in_channels: image channels C, >= 1.
        image_size: height and width in pixels, >= 4 (two halvings); it does not change the parameters.
        num_classes: >= 1.
        depth: 6n + 2 weighted layers, n >= 1.
        width: channels of the first stage; 16 in the paper.

    Raises:
        ValueError: an image too small.

    Source: He et al. 2015, "Deep residual learning", section 4.2 and table 6 (0.27 M parameters at depth 20, 0.46 M at
    32, 0.85 M at 56, 1.7 M at 110). Initialisation: He et al. 2015, "Delving deep into rectifiers", in the fan-out form
    of the authors' code. The convolution's bias is left out, since batch normalisation follows.
    """

    def __init__(self, in_channels: int, image_size: int, num_classes: int, depth: int, width: int = 16) -> None:
        super().__init__()
        if image_size < 4:
            raise ValueError(f"resnet needs images of at least 4x4 pixels, got image_size={image_size}")
        self.conv = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        channels = [width * 2**stage for stage in range(3) for _ in range((depth - 2) // 6)]  # of each block
        pairs = pairwise([width, *channels])
        self.stages = nn.Sequential(*(BasicBlock(before, own, 1 if own == before else 2) for before, own in pairs))
        self.linear = nn.Linear(4 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Float images [B, C, S, S] -> logits [B, num_classes]."""
        maps = self.stages(F.relu(self.norm(self.conv(images))))
        logits: Tensor = self.linear(maps.mean(dim=(2, 3)))
        return logits
