"""Criteo's display advertising data of 2014, parsed once, then read from memory-mapped files.

The text has a row a line, tab separated: clicked, 13 integer counts, 26 categories of 8 hexadecimal digits. Legend: N
rows of one block of the text.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.checksums import file_checksum
from syncline.datasets.cache import build_once
from syncline.datasets.categories import HashedValues, Mask, Values, mix
from syncline.datasets.clicks import NUM_CATEGORIES, NUM_COUNTS, RECORD, ClickDataset, Records
from syncline.datasets.errors import DataMissingError, checked_size
from syncline.datasets.files import criteo_files

CACHE = "~/.cache/syncline"
FORM = 2  # version of the cache's format
LARGE_BYTES = 100_000_000  # of text: above, parsing is announced
BLOCK_BYTES = 1 << 20  # of text at a time; larger blocks take more memory and are no faster
DIGITS = 8


@dataclass(frozen=True)
class Block:
    """Consecutive rows; an empty field is missing."""

    first: int  # number of its first row in the file, from 0
    clicked: npt.NDArray[np.int8]  # [N], 0 or 1
    counts: list[npt.NDArray[np.int64]]  # 13 of [N], 0 where missing
    values: list[Values]  # 26 of [N], 0 where missing
    missing: list[Mask]  # 26 of [N]


def criteo(
    root: str,
    file: str | None = None,
    cache: str = CACHE,
    buckets: int = 1 << 14,
    split_seed: int = 0,
    train_size: int | None = None,
    test_size: int | None = None,
) -> ClickDataset:
    """Nine tenths of the rows for training and one tenth for the test, each part in the order of the file.

    A count n becomes log(1 + max(n, 0)), a missing one 0. Values of a categorical field become rows of one joint table;
    see HashedValues. Of every ten consecutive rows one, drawn by `split_seed`, is for the test.

    Args:
        root: the folder to look in, for criteo/train.txt, then train.txt.
        file: another file of the same format, within root unless its path is absolute.
        cache: folder of parsed files; the data's own folder may be read-only.
        buckets: of each field, 2 .. 2^26; the table has 26 x buckets rows.
        split_seed: 0 .. 2^32 - 1.
        train_size: the first so many training rows; None for all.
        test_size: the same of the test rows.

    Raises:
        DataMissingError: the file is not there.
        ValueError: a broken file, a cache that cannot be written, or fewer rows than asked for.

    Source: Criteo AI Lab 2014, "Display advertising challenge". Counts as in DLRM (Naumov et al. 2019) and its public
    code. DS-Sync (section 4.1) gives the parts, 90 % and 10 %, but neither how they were drawn nor the transform.
    """
    train, test, num_rows = _parsed(_find(root, file), Path(cache).expanduser(), buckets, split_seed)
    train = train[: checked_size("criteo", "train_size", train_size, len(train))]
    test = test[: checked_size("criteo", "test_size", test_size, len(test))]
    return ClickDataset("criteo", train, test, num_rows)


def _parsed(source: Path, cache: Path, buckets: int, split_seed: int) -> tuple[Records, Records, int]:
    """The training part, the test part and the rows of the joint table, mapped from the cache.

    The text is parsed once, in bounded memory, into <cache>/criteo-<key>/: 160 bytes a row, 7.3 GB for all 45,840,617.
    The key covers the bytes of the source and the options that affect the result.
    """
    key = (FORM, file_checksum(source), buckets, split_seed)
    folder = cache / f"criteo-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"

    def build(empty: Path) -> None:
        num_bytes = source.stat().st_size
        if num_bytes >= LARGE_BYTES:
            print(f"criteo: parsing {source} ({num_bytes / 1e9:.1f} GB) into {folder}, once", file=sys.stderr)
        _write(source, HashedValues(NUM_CATEGORIES, buckets), split_seed, empty)

    try:
        build_once(folder, build)
        contents = json.loads((folder / "about.json").read_text())
        train, test = (_mapped(folder / f"{part}.bin", contents[part]) for part in ("train", "test"))
    except OSError as error:
        raise ValueError(f"criteo: no cache in {folder}: {error}; dataset.cache=FOLDER chooses another") from None
    return train, test, contents["num_rows"]


def _find(root: str, file: str | None) -> Path:
    paths = criteo_files(root, file)
    for path in paths:
        if path.is_file():
            return path
    raise DataMissingError(
        f"criteo not found: no {' and no '.join(map(str, paths))}; get train.txt of Criteo's display advertising "
        "challenge from https://ailab.criteo.com/ressources (its terms must be accepted, so it is not fetched for "
        "you); dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says where it is, dataset.file=FILE another name"
    )


def is_test(first: int, num_rows: int, seed: int) -> npt.NDArray[np.bool_]:
    """Which of the rows first, first + 1, ... are for the test [num_rows]: one of every ten whose tens are equal."""
    tens, place = np.divmod(np.arange(first, first + num_rows), 10)
    drawn = mix(mix(tens.astype(np.uint32)) ^ mix(np.array([seed], np.uint32)))
    chosen: npt.NDArray[np.bool_] = drawn % np.uint32(10) == place
    return chosen


def _write(source: Path, vocabulary: HashedValues, split_seed: int, folder: Path) -> None:
    with (folder / "train.bin").open("wb") as train, (folder / "test.bin").open("wb") as test:
        for block in read(source):
            records = _records(block, vocabulary)
            for_test = is_test(block.first, len(records), split_seed)
            records[~for_test].tofile(train)
            records[for_test].tofile(test)
        sizes = {"train": train.tell() // RECORD.itemsize, "test": test.tell() // RECORD.itemsize}
        if 0 in sizes.values():
            raise ValueError(f"{source}: too few rows for two parts")
        for part in (train, test):
            part.flush()
            os.fsync(part)  # on the disk before the folder gets its name
    (folder / "about.json").write_text(json.dumps({"num_rows": vocabulary.num_rows, **sizes}))


def _records(block: Block, vocabulary: HashedValues) -> Records:
    records = np.empty(len(block.clicked), RECORD)
    records["clicked"] = block.clicked
    for place, counts in enumerate(block.counts):
        records["counts"][:, place] = np.log1p(np.maximum(counts, 0), dtype=np.float32)
    for field, (values, missing) in enumerate(zip(block.values, block.missing, strict=True)):
        records["rows"][:, field] = vocabulary.rows(field, values, missing)
    return records


def _mapped(path: Path, size: int) -> Records:
    if path.stat().st_size != size * RECORD.itemsize:
        raise ValueError(f"{path} should hold {size} rows of {RECORD.itemsize} bytes; delete its folder")
    return np.memmap(path, RECORD, mode="r").view(np.ndarray)


# The text.


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
    digits = bytes(memoryview(text or b"")[ends[0] : ends[-1]])
    try:
        if not (missing | (lengths == DIGITS)).all():
            raise ValueError
        values[~missing] = np.frombuffer(bytes.fromhex(digits.decode()), ">u4", np.count_nonzero(~missing))
    except ValueError:
        raise ValueError(f"after row {first}: {name} must be 8 hexadecimal digits or empty") from None
    return values, missing
