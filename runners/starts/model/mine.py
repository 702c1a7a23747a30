"""A network. model/mine.yaml names it; that file's keys are arguments: model.width=64 on the command line."""

from torch import Tensor, nn


class Mine(nn.Module):
    """Two linear layers; put your own in their place.

    The sizes of the data set are given to those arguments that have their names: in_channels, image_size (pixels a
    side) and num_classes of images. All other arguments are keys of the file.

    Args:
        width: units of the hidden layer, >= 1.
    """

    def __init__(self, in_channels: int, image_size: int, num_classes: int, width: int) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"model.width must be >= 1, got {width}")
        hidden = nn.Linear(in_channels * image_size**2, width)
        self.layers = nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(width, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Float images [B, C, S, S] -> logits [B, num_classes]."""
        logits: Tensor = self.layers(images)
        return logits
