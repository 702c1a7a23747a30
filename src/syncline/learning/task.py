"""What is learned: the loss of a mini-batch, and the one gradient function that every engine calls.

Shape legend: B batch, C channels, H height, W width, n parameters, m float buffer elements.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from syncline.datasets.augment import pad_crop_flip
from syncline.datasets.images import ImageDataset
from syncline.learning.flat import FlatModule


class Batches:
    """Mini-batches of an image data set as the network wants them: float32, normalised, on the device."""

    def __init__(self, dataset: ImageDataset, device: torch.device, augment: bool) -> None:
        self._images = dataset.train_images.to(device)  # uint8 [N, C, H, W]
        self._labels = dataset.train_labels.to(device)  # int64 [N]
        self._normalise = Normalise(dataset, device)
        self.augment = augment

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        """Inputs [B, C, H, W] and labels [B] of these samples; with a generator they are augmented."""
        index = torch.from_numpy(indices).to(self._images.device)
        images = self._images.index_select(0, index)
        if generator is not None:
            images = pad_crop_flip(images, generator)
        return self._normalise(images), self._labels.index_select(0, index)


class Normalise:
    """(image - mean) / std by channel, both in units of 0..255."""

    def __init__(self, dataset: ImageDataset, device: torch.device) -> None:
        self._mean = torch.tensor(dataset.mean, device=device).view(1, -1, 1, 1)
        self._std = torch.tensor(dataset.std, device=device).view(1, -1, 1, 1)

    def __call__(self, images: Tensor) -> Tensor:
        return images.float().sub_(self._mean).div_(self._std)


@dataclass(frozen=True, slots=True)
class GradientFunction:
    """(weights, buffers, batch) -> (loss, gradient, buffers) of the mean cross-entropy, on flat vectors.

    The gradient [n] and the buffers [m] returned are the module's own and are overwritten by the next call.
    """

    flat: FlatModule

    def __call__(
        self, weights: list[Tensor], buffers: Tensor, batch: tuple[Tensor, Tensor]
    ) -> tuple[float, Tensor, Tensor]:
        flat = self.flat
        flat.load(weights, buffers)
        flat.gradient.zero_()
        inputs, labels = batch
        loss = nn.functional.cross_entropy(flat.module(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item(), flat.gradient, flat.buffers
