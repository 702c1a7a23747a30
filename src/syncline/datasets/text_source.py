"""Running text: a sequence of symbols, bytes or tokens, from any number of files, and batches of it.

Legend: n symbols, B windows, samples or streams of T symbols.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from syncline.datasets.batch_source import Batch
from syncline.datasets.errors import checked_size
from syncline.datasets.validation import split
from syncline.shapes import TextShape

Symbols = npt.NDArray[np.unsignedinteger[Any]]

BYTE = np.dtype(np.uint8)
SPACES = np.frombuffer(b" \t\n\r\v\f", np.uint8)
COUNTED_BYTES = 1 << 22  # of text at a time

NUM_BYTES = 256
IGNORED = -1  # a target that the loss ignores
MAX_STREAMS, MIN_STREAM = 64, 1_000  # of the test: largest number, least symbols of each
PIECE = 256  # least T of the test
MOST_LOGITS = 1 << 26  # of a batch of the test, where it has several streams


class Corpus:
    """Concatenated pieces of text, without copying.

    Args:
        pieces: arrays of one unsigned type.
    """

    def __init__(self, pieces: Iterable[Symbols]) -> None:
        self._pieces = list(pieces)
        self._kind = self._pieces[0].dtype if self._pieces else np.dtype(np.uint8)
        self._begins = np.cumsum([0] + [len(piece) for piece in self._pieces])  # of each piece, and n

    @staticmethod
    def of_files(paths: Iterable[Path], kind: "np.dtype[Any]" = BYTE) -> "Corpus":
        """The bytes of files, or tokens of this type, memory-mapped."""
        filled = [path for path in paths if path.stat().st_size]  # an empty file cannot be mapped
        return Corpus(np.memmap(path, kind, mode="r").view(np.ndarray) for path in filled)

    def __len__(self) -> int:
        return int(self._begins[-1])

    def part(self, begin: int, end: int) -> "Corpus":
        """Symbols begin .. end - 1."""
        return Corpus(
            piece[max(begin - offset, 0) : max(end - offset, 0)]
            for piece, offset in zip(self._pieces, self._begins[:-1].tolist(), strict=True)
        )

    def windows(self, begins: npt.NDArray[np.int64], length: int) -> Symbols:
        """[B, T]: `length` symbols from each of `begins` [B] on; zeros after the end of the text."""
        found = np.zeros((len(begins), length), self._kind)
        pieces = np.searchsorted(self._begins, begins, side="right") - 1  # that each window begins in
        for window, begin, piece in zip(found, begins.tolist(), pieces.tolist(), strict=True):
            offset, filled = begin - int(self._begins[piece]), 0
            while filled < length and piece < len(self._pieces):
                some = self._pieces[piece][offset : offset + length - filled]
                window[filled : filled + len(some)] = some
                offset, filled, piece = 0, filled + len(some), piece + 1
        return found

    # The counts below are of bytes, and leave out the first byte, which is not predicted.

    def characters(self) -> int:
        """UTF-8 characters whose first byte is predicted."""
        return sum(int(np.count_nonzero(some & 0xC0 != 0x80)) for some, _ in self._stretches())

    def words(self) -> int:
        """Words whose last byte is predicted, and ends of lines.

        Words are separated by white space (ASCII's). The end of a line counts as a word, as usual for word
        perplexities: the end of a sentence has to be predicted, too.
        """
        total = 0
        for some, following in self._stretches():
            is_space = np.isin(some, SPACES)
            ends = ~is_space & np.append(is_space[1:], following in SPACES)
            total += int(np.count_nonzero(ends)) + int(np.count_nonzero(some == ord("\n")))
        return total

    def _stretches(self) -> Iterator[tuple[Symbols, int]]:
        """All bytes except the first, in chunks with the byte that follows each chunk; a space follows the last."""
        for begin in range(1, len(self), COUNTED_BYTES):
            size = min(COUNTED_BYTES, len(self) - begin)
            some = self.windows(np.array([begin]), size + 1)[0]
            yield some[:-1], int(some[-1]) if begin + size < len(self) else ord(" ")


@dataclass(frozen=True)
class TextDataset:
    """Text for training and for the test.

    Sample i is a window of T = `length` symbols: inputs are the symbols i T .. i T + T - 1, targets those one further.
    So each of the first 1 + num_train T symbols of the training text, except the first, is predicted once an epoch. The
    remaining ones at its end, fewer than T, are not used.

    Raises:
        ValueError: a part too small.
    """

    name: str
    train: Corpus
    test: Corpus
    length: int  # T >= 1
    num_symbols: int = NUM_BYTES  # of the alphabet: bytes, or tokens

    def __post_init__(self) -> None:
        if self.num_train < 1 or len(self.test) < 2:
            what = "bytes" if self.num_symbols == NUM_BYTES else "tokens"
            sizes = f"{len(self.train)} {what} for training and {len(self.test)} for the test"
            raise ValueError(f"dataset {self.name}: {sizes}, where {self.length + 1} and 2 are the least")

    @property
    def shape(self) -> TextShape:
        return TextShape(self.num_symbols, self.length)

    @property
    def num_train(self) -> int:
        return (len(self.train) - 1) // self.length

    def first(self, train_size: int | None, test_size: int | None) -> "TextDataset":
        """The first so many training samples, and test_size T + 1 symbols of the test; None keeps all.

        Raises:
            ValueError: there are fewer.
        """
        train, test = self.train, self.test
        if train_size is not None:
            size = checked_size(self.name, "train_size", train_size, self.num_train)
            train = train.part(0, size * self.length + 1)
        if test_size is not None:
            size = checked_size(self.name, "test_size", test_size, (len(test) - 1) // self.length)
            test = test.part(0, size * self.length + 1)
        return replace(self, train=train, test=test)

    def with_validation(self, share: float) -> "TextDataset":
        """The last windows are held out, since neighbouring ones continue each other."""
        length, num = self.length, self.num_train
        rest = len(split(num, share)[0])
        train, held = self.train.part(0, rest * length + 1), self.train.part(rest * length, num * length + 1)
        return replace(self, train=train, test=held)

    def batch_source(self, device: torch.device, task: str) -> "TextSource":
        assert task in ("language", "next_token")
        return TextSource(self, device)


class TextSource:
    """Batches of symbols int64 [B, T] and the symbol that follows each int64 [B, T]."""

    is_random = False

    def __init__(self, dataset: TextDataset, device: torch.device) -> None:
        self._dataset, self._device = dataset, device

    @property
    def length(self) -> int:
        """Symbols of a training sample."""
        return self._dataset.length

    @cached_property
    def characters(self) -> int:
        """UTF-8 characters in the test's targets: bits per character = bits of all targets / these."""
        return self._dataset.test.characters()

    @cached_property
    def words(self) -> int:
        """Words and ends of lines in the test's targets: perplexity by word = exp(nats of all targets / these)."""
        return self._dataset.test.words()

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        length = self._dataset.length
        return self._batch(self._dataset.train.windows(indices * length, length + 1))

    def test(self) -> Iterator[Batch]:
        """The test text as B parallel streams, T symbols of each at a time; the last batch may be narrower.

        Row b of a batch continues row b of the previous batch, so the network's state is to be carried over. Each
        symbol of the text except the first is a target once. All streams are equally long; the last ones are padded
        with inputs 0 and targets -1, which the loss ignores.
        """
        text, piece = self._dataset.test, max(PIECE, self.length)
        predicted = len(text) - 1
        streams = max(1, min(MAX_STREAMS, predicted // MIN_STREAM, MOST_LOGITS // (piece * self._dataset.num_symbols)))
        length = -(-predicted // streams)
        begins = np.arange(streams) * length  # [B]
        for done in range(0, length, piece):
            size = min(piece, length - done)
            inputs, targets = self._batch(text.windows(begins + done, size + 1))
            beyond = (begins + done)[:, None] + np.arange(size) >= predicted  # [B, T]
            yield inputs, targets.masked_fill(torch.from_numpy(beyond).to(self._device), IGNORED)

    def _batch(self, windows: Symbols) -> Batch:
        if windows.max() >= self._dataset.num_symbols:
            rule = f"all tokens must be below dataset.vocab_size = {self._dataset.num_symbols}"
            raise ValueError(f"{self._dataset.name}: {rule}, got {windows.max()}")
        symbols = torch.from_numpy(windows.astype(np.int64)).to(self._device)  # [B, T + 1]
        return symbols[:, :-1].contiguous(), symbols[:, 1:].contiguous()
