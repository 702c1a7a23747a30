"""Image data sets in memory, and batches of them. Legend: N images, B of a batch, C channels, H x W pixels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from syncline.datasets.batch_source import Batch, BatchSource
from syncline.datasets.labelled import LabelledDataset
from syncline.datasets.streams import Purpose, stream
from syncline.shapes import ImageShape

TEST_BATCH = 500


@dataclass(frozen=True)
class ImageDataset(LabelledDataset[Tensor]):
    """Images uint8 [N, C, H, W], 0..255, and labels int64 [N], 0 .. num_classes - 1, checked on construction.

    Raises:
        ValueError: another number of labels than of images, an empty part, a label out of range, or a channel of one
            value alone.
    """

    num_classes: int
    mean: tuple[float, ...]  # of each channel over the training images, 0..255
    std: tuple[float, ...]  # the same, > 0
    augment: bool = False  # training images are cropped and mirrored at random, for classification

    def __post_init__(self) -> None:
        for part, (images, labels) in (("train", self.train), ("test", self.test)):
            assert (images.dtype, images.ndim, labels.dtype) == (torch.uint8, 4, torch.int64)
            where, most = f"dataset {self.name}, {part} part", self.num_classes - 1
            if labels.shape != images.shape[:1]:
                raise ValueError(f"{where}: labels must be [{len(images)}], got {list(labels.shape)}")
            if images.numel() == 0:
                raise ValueError(f"{where}: no images: shape {tuple(images.shape)}")
            low, high = int(labels.min()), int(labels.max())
            if low < 0 or high > most:
                raise ValueError(f"{where}: labels must lie in 0..{most}, got {low}..{high}")
        assert self.train.samples.shape[1:] == self.test.samples.shape[1:]
        assert len(self.mean) == len(self.std) == self.train.samples.shape[1]
        if not all(value > 0 for value in self.std):
            raise ValueError(f"dataset {self.name}: std must be > 0 in every channel, got {self.std}")

    @property
    def shape(self) -> ImageShape:
        _, channels, size, _ = self.train.samples.shape
        return ImageShape(channels, size, self.num_classes)

    def batch_source(self, device: torch.device, task: str) -> BatchSource:
        """Mini-batches on the device for `task`, classification or generation."""
        if task == "generation":
            return BinarySource(self.train.samples, self.test.samples, device)
        assert task in ("classification", "own"), task
        return LabelledSource(self.train, self.test, device, Normalise(self.mean, self.std, device), self.augment)


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


class LabelledSource:
    """Images or other samples [B, ...], and their labels int64 [B] or targets [B, ...].

    Args:
        train, test: the two parts of the data set.
        device: of the batches; the training samples are kept there.
        normalise: applied to every image; None: samples are taken as they are.
        augment: training images are padded, cropped and mirrored at random.
    """

    def __init__(
        self,
        train: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        device: torch.device,
        normalise: "Normalise | None" = None,
        augment: bool = False,
    ) -> None:
        self.is_random = augment
        self._samples, self._labels = (tensor.to(device) for tensor in train)
        self._test, self._normalise, self._device = test, normalise, device

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        index = torch.from_numpy(indices).to(self._device)
        samples = self._samples.index_select(0, index)
        if self.is_random and generator is not None:
            samples = pad_crop_flip(samples, generator)
        return self._normalised(samples), self._labels.index_select(0, index)

    def test(self) -> Iterator[Batch]:
        for batch in zip(*(torch.split(tensor, TEST_BATCH) for tensor in self._test), strict=True):
            # Copies, which a model or a loss may change in place.
            samples, labels = (tensor.to(self._device, copy=True) for tensor in batch)
            yield self._normalised(samples), labels

    def _normalised(self, samples: Tensor) -> Tensor:
        return samples if self._normalise is None else self._normalise(samples)


class Normalise:
    """uint8 [B, C, H, W] -> (image - mean) / std by channel, both in units of 0..255."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], device: torch.device) -> None:
        self._mean = torch.tensor(mean, device=device).view(1, -1, 1, 1)
        self._std = torch.tensor(std, device=device).view(1, -1, 1, 1)

    def __call__(self, images: Tensor) -> Tensor:
        return images.float().sub_(self._mean).div_(self._std)


def pad_crop_flip(images: Tensor, generator: np.random.Generator, padding: int = 4) -> Tensor:
    """Each image padded with zeros, cropped to its old size at a random place, and mirrored with probability 1/2.

    Args:
        images: [B, C, H, W] of any dtype, uint8 in our use.
        generator: the only source of randomness; drawn in the order rows, columns, mirrored.
        padding: p >= 0 pixels on each side; each offset is uniform on 0..2p.

    Returns:
        A new tensor of the same shape and dtype.

    Source: He et al. 2015, "Deep residual learning", section 4.2: 4 pixels a side, a random
    32x32 crop of the image or of its mirror image.
    """
    batch, channels, height, width = images.shape
    tops, lefts = generator.integers(0, 2 * padding + 1, size=(2, batch))
    mirrored = generator.random(batch) < 0.5
    columns = np.where(mirrored[:, None], np.arange(width)[::-1], np.arange(width)) + lefts[:, None]  # [B, W]
    rows = np.arange(height) + tops[:, None]  # [B, H]
    padded = F.pad(images, (padding, padding, padding, padding))
    # One gather of pixels by their number in the padded image: six times as fast as indexing by four axes.
    index = (rows * padded.shape[3])[:, :, None] + columns[:, None, :]  # [B, H, W]
    flat = torch.from_numpy(index).to(images.device).view(batch, 1, -1).expand(-1, channels, -1)
    return padded.flatten(2).gather(2, flat).view(images.shape)


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
