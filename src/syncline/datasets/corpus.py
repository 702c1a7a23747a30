"""Running text as one sequence of bytes from any number of files. Legend: n bytes, B windows of T bytes."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

SPACES = np.frombuffer(b" \t\n\r\v\f", np.uint8)
COUNTED_BYTES = 1 << 22  # of text at a time


class Corpus:
    """Concatenated pieces of text, without copying.

    Args:
        pieces: uint8 arrays.
    """

    def __init__(self, pieces: Iterable[Bytes]) -> None:
        self._pieces = list(pieces)
        self._begins = np.cumsum([0] + [len(piece) for piece in self._pieces])  # of each piece, and n

    @staticmethod
    def of_files(paths: Iterable[Path]) -> "Corpus":
        """The bytes of files, memory-mapped."""
        filled = [path for path in paths if path.stat().st_size]  # an empty file cannot be mapped
        return Corpus(np.memmap(path, np.uint8, mode="r").view(np.ndarray) for path in filled)

    def __len__(self) -> int:
        return int(self._begins[-1])

    def part(self, begin: int, end: int) -> "Corpus":
        """Bytes begin .. end - 1."""
        return Corpus(
            piece[max(begin - offset, 0) : max(end - offset, 0)]
            for piece, offset in zip(self._pieces, self._begins[:-1].tolist(), strict=True)
        )

    def windows(self, begins: npt.NDArray[np.int64], length: int) -> Bytes:
        """uint8 [B, T]: `length` bytes from each of `begins` [B] on; zeros after the end of the text."""
        found = np.zeros((len(begins), length), np.uint8)
        pieces = np.searchsorted(self._begins, begins, side="right") - 1  # that each window begins in
        for window, begin, piece in zip(found, begins.tolist(), pieces.tolist(), strict=True):
            offset, filled = begin - int(self._begins[piece]), 0
            while filled < length and piece < len(self._pieces):
                some = self._pieces[piece][offset : offset + length - filled]
                window[filled : filled + len(some)] = some
                offset, filled, piece = 0, filled + len(some), piece + 1
        return found

    # The counts below leave out the first byte, which is not predicted.

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

    def _stretches(self) -> Iterator[tuple[Bytes, int]]:
        """All bytes except the first, in chunks with the byte that follows each chunk; a space follows the last."""
        for begin in range(1, len(self), COUNTED_BYTES):
            size = min(COUNTED_BYTES, len(self) - begin)
            some = self.windows(np.array([begin]), size + 1)[0]
            yield some[:-1], int(some[-1]) if begin + size < len(self) else ord(" ")
