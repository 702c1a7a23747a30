"""What every data set looks like to those who train on it.

A `Dataset` is what was loaded and checked. A `BatchSource` gives a network its batches of it, on the device, for one
task.

What a batch holds, by task (B samples; all on the device):
    classification   images float32 [B, C, S, S], normalised; labels int64 [B]
    generation       pixels float32 [B, C, S, S], each 0 or 1
    qa               tokens int64 [B, L]; attention mask int64 [B, L]; token types int64 [B, L];
                     first and last token of the answer int64 [B] each
    ctr              counts float32 [B, N]; rows of the joint embedding table int64 [B, F]; clicked float32 [B], 0 or 1
    language         symbols int64 [B, T]; the symbol that follows each int64 [B, T]
"""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.shapes import Shape

Batch = tuple[Tensor, ...]


class BatchSource(Protocol):
    """Mini-batches for one task, on one device."""

    @property
    def is_random(self) -> bool:
        """What `take` gives depends on chance: augmentation, binarisation."""

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        """The training samples of these numbers, in this order.

        Args:
            indices: int64 [B], each in 0 .. num_train - 1.
            generator: the only source of chance; None gives what no chance touches.
        """

    def test(self) -> Iterator[Batch]:
        """The whole test set, in its order, the same every time."""


@runtime_checkable
class DiskFeed(BatchSource, Protocol):
    """A feed that reads from disk, and may do so in the background."""

    def announce(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> None:
        """These will be taken soon: it may begin to read them.

        It changes no bit of what `take` gives, and what was announced need not be taken.

        Args:
            indices: as `take` will be given.
            generator: in the state in which `take` will be given one; used up.
        """


@runtime_checkable
class AnswerFeed(BatchSource, Protocol):
    """A feed of questions, which knows the official score."""

    def score(self, firsts: Tensor, lasts: Tensor) -> tuple[float, float]:
        """Exact match and F1, fractions of the questions.

        Args:
            firsts, lasts: logits float [W, L] that a token is the answer's first or last, of all test rows in order.
        """


@runtime_checkable
class TextFeed(BatchSource, Protocol):
    """A feed of running text; the batches of `test` are consecutive pieces of parallel streams."""

    @property
    def characters(self) -> int:
        """That the test targets hold."""

    @property
    def words(self) -> int:
        """That the test targets hold."""


class Dataset(Protocol):
    """Loaded and checked; on the host."""

    @property
    def name(self) -> str:
        """As its config says it."""

    @property
    def shape(self) -> Shape:
        """What a network must be built for."""

    @property
    def num_train(self) -> int:
        """Training samples."""

    def feed(self, device: torch.device, task: str) -> BatchSource:
        """For a task that its config allows."""
