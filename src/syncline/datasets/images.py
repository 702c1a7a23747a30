"""A loaded image data set. Legend: N images, C channels, H x W pixels."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from syncline.datasets.batch_source import BatchSource
from syncline.datasets.image_sources import BinarySource, LabelledSource, Normalise
from syncline.datasets.sizes import checked_size
from syncline.shapes import ImageShape


@dataclass(frozen=True)
class ImageDataset:
    """Images and labels, checked on construction.

    Raises:
        ValueError: a wrong shape or dtype, an empty part, a label out of range, a standard deviation that is not > 0.
    """

    name: str
    train_images: Tensor  # uint8 [N, C, H, W], 0..255
    train_labels: Tensor  # int64 [N], 0 .. num_classes - 1
    test_images: Tensor  # uint8 [M, C, H, W]
    test_labels: Tensor  # int64 [M]
    num_classes: int
    mean: tuple[float, ...]  # of each channel over the training images, 0..255
    std: tuple[float, ...]  # the same, > 0
    augment: bool = False  # training images are cropped and mirrored at random, for classification

    def __post_init__(self) -> None:
        for part, images, labels in (
            ("train", self.train_images, self.train_labels),
            ("test", self.test_images, self.test_labels),
        ):
            fault = _fault(images, labels, self.num_classes)
            if fault:
                raise ValueError(f"dataset {self.name}, {part} part: {fault}")
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            shapes = f"{tuple(self.train_images.shape[1:])} and {tuple(self.test_images.shape[1:])}"
            raise ValueError(f"dataset {self.name}: training and test images differ in shape: {shapes}")
        channels = self.train_images.shape[1]
        if not len(self.mean) == len(self.std) == channels:
            raise ValueError(f"dataset {self.name}: mean and std need {channels} values, one a channel")
        if not all(value > 0 for value in self.std):
            raise ValueError(f"dataset {self.name}: std must be > 0 in every channel, got {self.std}")

    @property
    def shape(self) -> ImageShape:
        _, channels, size, _ = self.train_images.shape
        return ImageShape(channels, size, self.num_classes)

    @property
    def num_train(self) -> int:
        return len(self.train_labels)

    def batch_source(self, device: torch.device, task: str) -> BatchSource:
        """Mini-batches on the device for `task`, classification or generation."""
        if task == "generation":
            return BinarySource(self.train_images, self.test_images, device)
        assert task == "classification"
        train, test = (self.train_images, self.train_labels), (self.test_images, self.test_labels)
        return LabelledSource(train, test, Normalise(self.mean, self.std, device), self.augment, device)


def _fault(images: Tensor, labels: Tensor, num_classes: int) -> str | None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        return f"images must be uint8 [N, C, H, W], got {images.dtype} {tuple(images.shape)}"
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        return f"labels must be int64 [{len(images)}], got {labels.dtype} {tuple(labels.shape)}"
    if images.numel() == 0:
        return f"no images: shape {tuple(images.shape)}"
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        return f"labels must lie in 0..{num_classes - 1}, got {low}..{high}"
    return None


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 [N, C, H, W], in units of 0..255."""
    means, stds = [], []
    for channel in range(images.shape[1]):
        counts = torch.bincount(images[:, channel].flatten().long(), minlength=256).double()
        levels, weights = torch.arange(256.0, dtype=torch.float64), counts / counts.sum()
        mean = float((weights * levels).sum())
        means.append(mean)
        stds.append(float((weights * (levels - mean) ** 2).sum()) ** 0.5)
    return tuple(means), tuple(stds)


def take(dataset: ImageDataset, train_size: int | None, test_size: int | None) -> ImageDataset:
    """The same dataset with its first `train_size` and `test_size` images; None keeps all. Mean and std stay.

    Raises:
        ValueError: a size below 1 or above the available number.
    """
    train = checked_size(dataset.name, "train_size", train_size, len(dataset.train_labels))
    test = checked_size(dataset.name, "test_size", test_size, len(dataset.test_labels))
    x_train, y_train = dataset.train_images[:train], dataset.train_labels[:train]
    x_test, y_test = dataset.test_images[:test], dataset.test_labels[:test]
    return replace(dataset, train_images=x_train, train_labels=y_train, test_images=x_test, test_labels=y_test)
