"""A data set. dataset/mine.yaml names it; that file's keys are arguments: dataset.noise=1 on the command line."""

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Mine(Dataset[tuple[Tensor, int]]):
    """Ten patterns of 8x8 pixels, with noise; put your own samples in their place.

    It is loaded twice: for training and for the test. Both must be the same at every start.

    Args:
        train: the training samples, else those of the test.
        num_samples: of each of both, >= 1.
        noise: standard deviation that is added to each pixel, >= 0.
    """

    num_classes = 10

    def __init__(self, train: bool, num_samples: int, noise: float) -> None:
        if num_samples < 1:
            raise ValueError(f"dataset.num_samples must be >= 1, got {num_samples}")
        patterns = torch.rand(self.num_classes, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        own = torch.Generator().manual_seed(1 if train else 2)
        self.labels = torch.randint(self.num_classes, (num_samples,), generator=own)
        self.images = patterns[self.labels] + noise * torch.randn(num_samples, 1, 8, 8, generator=own)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """An image, float32 [C, S, S], and its class, 0 .. 9."""
        return self.images[index], int(self.labels[index])
