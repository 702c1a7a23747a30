"""Criteo's text: a row a line, tab separated: clicked, 13 integer counts, 26 categories of 8 hexadecimal digits.

Legend: N rows of one block of the text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.datasets.categories import Mask, Values
from syncline.datasets.clicks import NUM_CATEGORIES, NUM_COUNTS

BLOCK_BYTES = 1 << 20  # of text at a time; larger blocks take more memory and are no faster
DIGITS = 8
NIBBLE = np.full(256, 255, np.uint8)  # of an ASCII code; 255: not a hexadecimal digit
NIBBLE[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
NIBBLE[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


@dataclass(frozen=True)
class Block:
    """Consecutive rows; an empty field is missing."""

    first: int  # number of its first row in the file, from 0
    clicked: npt.NDArray[np.int8]  # [N], 0 or 1
    counts: list[npt.NDArray[np.int64]]  # 13 of [N], 0 where missing
    values: list[Values]  # 26 of [N], 0 where missing
    missing: list[Mask]  # 26 of [N]


def read(path: Path) -> Iterator[Block]:
    """The rows of a file, block by block, in bounded memory.

    Raises:
        ValueError: a row of another form.
    """
    import pyarrow as pa  # slow to import, and few runs read text
    from pyarrow import csv

    counts = [f"I{i + 1}" for i in range(NUM_COUNTS)]  # Criteo's names
    categories = [f"C{i + 1}" for i in range(NUM_CATEGORIES)]
    types = {"clicked": pa.int8(), **dict.fromkeys(counts, pa.int64()), **dict.fromkeys(categories, pa.binary())}
    first = 0
    try:
        reader = csv.open_csv(
            path,
            read_options=csv.ReadOptions(column_names=list(types), block_size=BLOCK_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=False),
        )
        for batch in reader:
            yield _block(batch, first, counts, categories)
            first += batch.num_rows
    except ValueError as error:  # pyarrow's are ValueErrors
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path}: {reason}") from None


def _block(batch: Any, first: int, counts: list[str], categories: list[str]) -> Block:
    clicked = batch.column("clicked")
    faulty = clicked.null_count > 0 or not np.isin(clicked.to_numpy(zero_copy_only=False), (0, 1)).all()
    if faulty:
        raise ValueError(f"after row {first}: the first field must be 0 or 1")
    values, missing = zip(*(_categories(batch.column(name), name, first) for name in categories), strict=True)
    numbers = [batch.column(name).fill_null(0).to_numpy() for name in counts]
    return Block(first, clicked.to_numpy(), numbers, list(values), list(missing))


def _categories(column: Any, name: str, first: int) -> tuple[Values, Mask]:
    """Numbers of a column of hexadecimal digits [N], and which are missing [N]."""
    _, offsets, text = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(ends)
    missing = lengths == 0
    values = np.zeros(len(column), np.uint32)
    digits = np.frombuffer(text or b"", np.uint8)[ends[0] : ends[-1]]
    nibbles = NIBBLE[digits]
    if not (missing | (lengths == DIGITS)).all() or (nibbles == 255).any():
        raise ValueError(f"after row {first}: {name} must be 8 hexadecimal digits or empty")
    pairs = nibbles.reshape(-1, DIGITS // 2, 2)
    values[~missing] = (pairs[..., 0] << 4 | pairs[..., 1]).view(">u4").reshape(-1)
    return values, missing
