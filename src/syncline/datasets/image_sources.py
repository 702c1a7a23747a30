"""Batches of images: normalised with labels, or as binary pixels.

Shape legend: B batch, C channels, H x W pixels.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.augment import pad_crop_flip
from syncline.datasets.batch_source import Batch
from syncline.datasets.streams import Purpose, stream

TEST_BATCH = 500

Labelled = tuple[Tensor, Tensor]  # images uint8 [N, C, H, W], labels int64 [N]


class LabelledSource:
    """For classification: images float32 [B, C, H, W], normalised, and labels int64 [B].

    Args:
        train, test: the two parts of the data set.
        normalise: applied to every image.
        augment: training images are padded, cropped and mirrored at random.
        device: of the batches; the training images are kept there.
    """

    def __init__(
        self, train: Labelled, test: Labelled, normalise: "Normalise", augment: bool, device: torch.device
    ) -> None:
        self.is_random = augment
        self._images, self._labels = (tensor.to(device) for tensor in train)
        self._test = test
        self._normalise = normalise
        self._device = device

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        index = torch.from_numpy(indices).to(self._device)
        images = self._images.index_select(0, index)
        if self.is_random and generator is not None:
            images = pad_crop_flip(images, generator)
        return self._normalise(images), self._labels.index_select(0, index)

    def test(self) -> Iterator[Batch]:
        for images, labels in zip(*(torch.split(tensor, TEST_BATCH) for tensor in self._test), strict=True):
            yield self._normalise(images.to(self._device)), labels.to(self._device)


class Normalise:
    """uint8 [B, C, H, W] -> (image - mean) / std by channel, both in units of 0..255."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], device: torch.device) -> None:
        self._mean = torch.tensor(mean, device=device).view(1, -1, 1, 1)
        self._std = torch.tensor(std, device=device).view(1, -1, 1, 1)

    def __call__(self, images: Tensor) -> Tensor:
        return images.float().sub_(self._mean).div_(self._std)


class BinarySource:
    """For generation: pixels float32 [B, C, H, W], each 1 with probability value / 255, else 0.

    The pixels of training images are drawn each time they are taken; those of the test images are always the same.

    Source: Salakhutdinov and Murray 2008, "On the quantitative analysis of deep belief networks" (values as
    probabilities, drawn once); Burda et al. 2015, "Importance weighted autoencoders" (training images drawn each time).

    Args:
        train_images, test_images: uint8 [N, C, H, W].
        device: of the batches.
    """

    is_random = True

    def __init__(self, train_images: Tensor, test_images: Tensor, device: torch.device) -> None:
        self._train_images, self._test_images, self._device = train_images, test_images, device

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        """Without a generator a pixel is 1 where its value is at least 128."""
        images = self._train_images.index_select(0, torch.from_numpy(indices))
        pixels = images >= 128 if generator is None else _drawn(images, generator)
        return (pixels.to(self._device).float(),)

    def test(self) -> Iterator[Batch]:
        generator = stream(Purpose.BINARISE_TEST, 0, 0, 0)  # fixed: these pixels belong to the data set, not to a run
        for images in torch.split(self._test_images, TEST_BATCH):
            yield (_drawn(images, generator).to(self._device).float(),)


def _drawn(images: Tensor, generator: np.random.Generator) -> Tensor:
    """Bool of the same shape, each True with probability value / 255."""
    return torch.from_numpy(generator.integers(255, size=images.shape, dtype=np.uint8)) < images
