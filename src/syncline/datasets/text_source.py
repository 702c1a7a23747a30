"""Batches of running text. Legend: B samples or streams, T bytes of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from syncline.datasets.batch_source import Batch
from syncline.datasets.corpus import Corpus
from syncline.shapes import TextShape

NUM_SYMBOLS = 256  # bytes
IGNORED = -1  # a target that the loss ignores
MAX_STREAMS, MIN_STREAM = 64, 1_000  # of the test: largest number, least bytes of each
PIECE = 256  # T of the test


@dataclass(frozen=True)
class TextDataset:
    """Text for training and for the test.

    Sample i is a window of T = `length` bytes: inputs are the bytes i T .. i T + T - 1, targets the bytes one further.
    So each of the first 1 + num_train T bytes of the training text, except the first, is predicted once an epoch. The
    remaining bytes at its end, fewer than T, are not used.

    Raises:
        ValueError: a part too small.
    """

    name: str
    train: Corpus
    test: Corpus
    length: int  # T >= 1

    def __post_init__(self) -> None:
        if self.num_train < 1 or len(self.test) < 2:
            sizes = f"{len(self.train)} bytes for training and {len(self.test)} for the test"
            raise ValueError(f"dataset {self.name}: {sizes}, where {self.length + 1} and 2 are the least")

    @property
    def shape(self) -> TextShape:
        return TextShape(NUM_SYMBOLS, self.length)

    @property
    def num_train(self) -> int:
        return (len(self.train) - 1) // self.length

    def batch_source(self, device: torch.device, task: str) -> "TextSource":
        assert task == "language"
        return TextSource(self, device)


class TextSource:
    """Batches of symbols int64 [B, T] and the symbol that follows each int64 [B, T]."""

    is_random = False

    def __init__(self, dataset: TextDataset, device: torch.device) -> None:
        self._train = dataset.train
        self._test = dataset.test
        self._length = dataset.length
        self._device = device

    @cached_property
    def characters(self) -> int:
        """UTF-8 characters in the test's targets: bits per character = bits of all targets / these."""
        return self._test.characters()

    @cached_property
    def words(self) -> int:
        """Words and ends of lines in the test's targets: perplexity by word = exp(nats of all targets / these)."""
        return self._test.words()

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        return self._batch(self._train.windows(indices * self._length, self._length + 1))

    def test(self) -> Iterator[Batch]:
        """The test text as B parallel streams, T bytes of each at a time; the last batch may be narrower.

        Row b of a batch continues row b of the previous batch, so the network's state is to be carried over. Each byte
        of the text except the first is a target once. All streams are equally long; the last ones are padded with
        inputs 0 and targets -1, which the loss ignores.
        """
        predicted = len(self._test) - 1
        streams = max(1, min(MAX_STREAMS, predicted // MIN_STREAM))
        length = -(-predicted // streams)
        begins = np.arange(streams) * length  # [B]
        for done in range(0, length, PIECE):
            size = min(PIECE, length - done)
            inputs, targets = self._batch(self._test.windows(begins + done, size + 1))
            beyond = (begins + done)[:, None] + np.arange(size) >= predicted  # [B, T]
            yield inputs, targets.masked_fill(torch.from_numpy(beyond).to(self._device), IGNORED)

    def _batch(self, windows: npt.NDArray[np.uint8]) -> Batch:
        symbols = torch.from_numpy(windows.astype(np.int64)).to(self._device)  # [B, T + 1]
        return symbols[:, :-1].contiguous(), symbols[:, 1:].contiguous()
