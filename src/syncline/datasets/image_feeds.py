"""Temporary: until the picture feeds land."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.augment import pad_crop_flip
from syncline.datasets.feed import Batch

TEST_BATCH = 500


class LabelledFeed:
    def __init__(self, dataset, device: torch.device) -> None:
        self.is_random = dataset.augment
        self._images = dataset.train_images.to(device)
        self._labels = dataset.train_labels.to(device)
        self._test = dataset.test_images.to(device), dataset.test_labels.to(device)
        self._mean = torch.tensor(dataset.mean, device=device).view(1, -1, 1, 1)
        self._std = torch.tensor(dataset.std, device=device).view(1, -1, 1, 1)

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        index = torch.from_numpy(indices).to(self._images.device)
        images = self._images.index_select(0, index)
        if self.is_random and generator is not None:
            images = pad_crop_flip(images, generator)
        return self._normalise(images), self._labels.index_select(0, index)

    def test(self) -> Iterator[Batch]:
        for images, labels in zip(*(torch.split(part, TEST_BATCH) for part in self._test), strict=True):
            yield self._normalise(images), labels

    def _normalise(self, images: Tensor) -> Tensor:
        return images.float().sub_(self._mean).div_(self._std)
