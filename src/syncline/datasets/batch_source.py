"""The interface of data sets: a `Dataset` is loaded and checked; its `BatchSource` yields batches of it for one task.

The tensors of a batch, by task (B samples; all on the device):
    classification   images float32 [B, C, S, S], normalised; labels int64 [B], IGNORED_LABEL among them
    generation       pixels float32 [B, C, S, S], each 0 or 1
    qa               tokens int64 [B, L]; attention mask int64 [B, L]; token types int64 [B, L];
                     first and last token of the answer int64 [B] each
    ctr              counts float32 [B, N]; rows of the joint embedding table int64 [B, F]; clicked float32 [B], 0 or 1
    regression       samples float32 or int64 [B, ...]; targets float32 [B, ...]
    language,        symbols int64 [B, T]; the symbol that follows each int64 [B, T]
    next_token
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.shapes import Shape

Batch = tuple[Tensor, ...]
IGNORED_LABEL = -100  # by torch's cross-entropy; it counts for no metric either


class BatchSource(Protocol):
    """Mini-batches for one task, on one device."""

    @property
    def is_random(self) -> bool:
        """Whether batches depend on a generator: augmentation, binarisation."""

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        """The training samples with these indices, in this order.

        Args:
            indices: int64 [B], each in 0 .. num_train - 1.
            generator: the only source of randomness; None: deterministic, without augmentation.
        """

    def test(self) -> Iterator[Batch]:
        """The whole test set in order, the same batches every time."""


class Dataset(Protocol):
    """A loaded and checked data set, in host memory."""

    @property
    def name(self) -> str:
        """As in the config."""

    @property
    def shape(self) -> Shape:
        """The input and output sizes that a model needs."""

    @property
    def num_train(self) -> int:
        """Training samples."""

    def with_validation(self, share: float) -> "Dataset":
        """The same data set, trained on a part of its training samples and evaluated on the others (validation.py).

        Its own test set is dropped.

        Args:
            share: of the training samples that is held out, in (0, 1).

        Raises:
            ValueError: none would be left for training.
        """

    def batch_source(self, device: torch.device, task: str) -> BatchSource:
        """Batches on the device, for a task that the config allows."""
