"""Wide residual networks for small images (Zagoruyko and Komodakis 2016)."""

from torch import Tensor, nn
from torch.nn import functional as F

STEM = 16  # channels of the first convolution, independent of the width


class WideBlock(nn.Module):
    """norm, ReLU, 3x3 convolution, norm, ReLU, dropout, 3x3 convolution; the shortcut is added unchanged.

    If the number of channels changes, the shortcut is a 1x1 convolution of the first ReLU's output.
    """

    def __init__(self, in_channels: int, channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(in_channels, channels, 1, stride, bias=False) if in_channels != channels else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, in_channels, S, S] -> [B, channels, ceil(S / stride), ceil(S / stride)]."""
        active = F.relu(self.norm1(x))
        out: Tensor = F.relu(self.norm2(self.conv1(active)))
        out = self.conv2(self.dropout(out))
        return out + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """WRN-d-k: 3x3 convolution, three stages of n blocks with 16k, 32k, 64k channels, norm, ReLU, average, linear.

    Args:
        in_channels: image channels C, >= 1.
        image_size: height and width in pixels, >= 4 (two halvings); it does not change the parameters.
        num_classes: >= 1.
        depth: d = 6n + 4 or 6n + 2, n >= 1.
        width: k >= 1.
        dropout: probability within each block, in [0, 1). Above 0 the forward pass in training is random.

    Raises:
        ValueError: an image too small.

    Source: Zagoruyko and Komodakis 2016, "Wide residual networks", table 1 and section 2.4 (dropout; 0.3 on CIFAR).
    Initialisation as in the authors' code: He's normal in its fan-out form, the linear layer's bias 0. They count the
    convolutions including 1x1 shortcuts: d = 6n + 4. The DS-Sync paper's "WRN-26-10" has no integer n by that count. By
    He's (with the linear layer, without the shortcuts) d = 6n + 2 and n = 4, which is the interpretation here:
    WRN-26-10 and WRN-28-10 are one network, of 36,479,194 parameters with 3 channels and 10 classes.
    """

    def __init__(
        self, in_channels: int, image_size: int, num_classes: int, depth: int, width: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if image_size < 4:
            raise ValueError(f"wide_resnet needs images of at least 4x4 pixels, got image_size={image_size}")
        self.conv = nn.Conv2d(in_channels, STEM, 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        channels = STEM
        for stage in range(3):
            for block in range((depth - 2) // 6):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(WideBlock(channels, STEM * width * 2**stage, stride, dropout))
                channels = STEM * width * 2**stage
        self.stages = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.linear = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Float images [B, C, S, S] -> logits [B, num_classes]."""
        maps = F.relu(self.norm(self.stages(self.conv(images))))
        logits: Tensor = self.linear(maps.mean(dim=(2, 3)))
        return logits
