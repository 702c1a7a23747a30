"""What a network is given of images: labelled and normalised, or as pixels that are black or white.

Shape legend: B batch, C channels, H x W pixels.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.augment import pad_crop_flip
from syncline.datasets.batch_source import Batch
from syncline.datasets.streams import Purpose, stream

if TYPE_CHECKING:
    from syncline.datasets.images import ImageDataset

TEST_BATCH = 500


class LabelledFeed:
    """For classification: images float32 [B, C, H, W], normalised, and labels int64 [B]; with `augment`, at random."""

    def __init__(self, dataset: "ImageDataset", device: torch.device) -> None:
        self.is_random = dataset.augment
        self._dataset, self._device = dataset, device
        self._images = dataset.train_images.to(device)
        self._labels = dataset.train_labels.to(device)
        self._normalise = Normalise(dataset.mean, dataset.std, device)

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        index = torch.from_numpy(indices).to(self._device)
        images = self._images.index_select(0, index)
        if self.is_random and generator is not None:
            images = pad_crop_flip(images, generator)
        return self._normalise(images), self._labels.index_select(0, index)

    def test(self) -> Iterator[Batch]:
        images, labels = self._dataset.test_images, self._dataset.test_labels
        for some, theirs in zip(torch.split(images, TEST_BATCH), torch.split(labels, TEST_BATCH), strict=True):
            yield self._normalise(some.to(self._device)), theirs.to(self._device)


class Normalise:
    """uint8 [B, C, H, W] -> (image - mean) / std by channel, both in units of 0..255."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], device: torch.device) -> None:
        self._mean = torch.tensor(mean, device=device).view(1, -1, 1, 1)
        self._std = torch.tensor(std, device=device).view(1, -1, 1, 1)

    def __call__(self, images: Tensor) -> Tensor:
        return images.float().sub_(self._mean).div_(self._std)


class BinaryFeed:
    """For generation: pixels float32 [B, C, H, W], each 1 with probability value / 255, else 0.

    The training images are drawn anew whenever they are taken; the test images always come out the same.

    Source: Salakhutdinov and Murray 2008, "On the quantitative analysis of deep belief networks" (values as
    probabilities, drawn once); Burda et al. 2015, "Importance weighted autoencoders" (training images drawn anew).
    """

    is_random = True

    def __init__(self, dataset: "ImageDataset", device: torch.device) -> None:
        self._dataset, self._device = dataset, device

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        """Without a generator a pixel is 1 where its value is at least 128."""
        images = self._dataset.train_images.index_select(0, torch.from_numpy(indices))
        pixels = images >= 128 if generator is None else _drawn(images, generator)
        return (pixels.to(self._device).float(),)

    def test(self) -> Iterator[Batch]:
        generator = stream(Purpose.BINARISE_TEST, 0, 0, 0)  # fixed: these pixels belong to the data set, not to a run
        for images in torch.split(self._dataset.test_images, TEST_BATCH):
            yield (_drawn(images, generator).to(self._device).float(),)


def _drawn(images: Tensor, generator: np.random.Generator) -> Tensor:
    """Bool of the same shape: of 255 equally likely numbers from 0, as many lie below a value as it says."""
    return torch.from_numpy(generator.integers(255, size=images.shape, dtype=np.uint8)) < images
