"""Criteo's display advertising data of 2014, parsed once, then read from memory-mapped files.

The text has a row a line, tab separated: clicked, 13 integer counts, 26 categories of 8 hexadecimal digits. Legend: N
rows of one block of the text.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.checksums import file_checksum
from syncline.datasets.cache import build_once
from syncline.datasets.clicks import NUM_CATEGORIES, NUM_COUNTS, RECORD, ClickDataset, Records
from syncline.datasets.errors import DataMissingError
from syncline.datasets.files import criteo_files

CACHE = "~/.cache/syncline"
FORM = 2  # version of the cache's format
LARGE_BYTES = 100_000_000  # of text: above, parsing is announced
BLOCK_BYTES = 1 << 20  # of text at a time; larger blocks take more memory and are no faster
DIGITS = 8
COUNTS = [f"I{i + 1}" for i in range(NUM_COUNTS)]  # Criteo's names
CATEGORIES = [f"C{i + 1}" for i in range(NUM_CATEGORIES)]
GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: keeps the keys of fields far apart

Numbers = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


def criteo(
    root: str, file: str | None = None, cache: str = CACHE, buckets: int = 1 << 14, split_seed: int = 0
) -> ClickDataset:
    """Nine tenths of the rows for training and one tenth for the test, each part in the order of the file.

    A count n becomes log(1 + max(n, 0)), a missing one 0. Values of a categorical field become rows of one joint table;
    see `hashed_rows`. Of every ten consecutive rows one, drawn by `split_seed`, is for the test.

    Args:
        root: the folder to look in, for criteo/train.txt, then train.txt.
        file: another file of the same format, within root unless its path is absolute.
        cache: folder of parsed files; the data's own folder may be read-only.
        buckets: of each field, 2 .. 2^26; the table has 26 x buckets rows.
        split_seed: 0 .. 2^32 - 1.

    Raises:
        DataMissingError: the file is not there.
        ValueError: a broken file, or a cache that cannot be written.

    Source: Criteo AI Lab 2014, "Display advertising challenge". Counts as in DLRM (Naumov et al. 2019) and its public
    code. DS-Sync (section 4.1) gives the parts, 90 % and 10 %, but neither how they were drawn nor the transform.
    """
    train, test = _parsed(_find(root, file), Path(cache).expanduser(), buckets, split_seed)
    return ClickDataset("criteo", train, test, NUM_CATEGORIES * buckets)


def _parsed(source: Path, cache: Path, buckets: int, split_seed: int) -> tuple[Records, Records]:
    """The training part and the test part, mapped from the cache.

    The text is parsed once, in bounded memory, into <cache>/criteo-<key>/: 160 bytes a row, 7.3 GB for all 45,840,617.
    The key covers the bytes of the source and the options that affect the result.
    """
    key = (FORM, file_checksum(source), buckets, split_seed)
    folder = cache / f"criteo-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"

    def build(empty: Path) -> None:
        num_bytes = source.stat().st_size
        if num_bytes >= LARGE_BYTES:
            print(f"criteo: parsing {source} ({num_bytes / 1e9:.1f} GB) into {folder}, once", file=sys.stderr)
        _write(source, buckets, split_seed, empty)

    try:
        build_once(folder, build)
        sizes = json.loads((folder / "about.json").read_text())
        train, test = (_mapped(folder / f"{part}.bin", sizes[part]) for part in ("train", "test"))
    except OSError as error:
        raise ValueError(f"criteo: no cache in {folder}: {error}; dataset.cache=FOLDER chooses another") from None
    return train, test


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


def mix(keys: Numbers) -> Numbers:
    """A bijection of 32-bit integers in which every bit affects half of the others; the same on every machine.

    Source: the finaliser of MurmurHash3 (Appleby 2011).
    """
    mixed = keys ^ (keys >> np.uint32(16))
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed


def hashed_rows(field: int, values: Numbers, missing: Mask, buckets: int) -> npt.NDArray[np.int32]:
    """int32 [N]: rows of the joint table for these values of a field; `values` counts for nothing where missing.

    Values are hashed into buckets, >= 2 of each field: the size of the table is known in advance, and some values share
    a row. Row 0 of a field is for a missing value, rows 1 .. buckets - 1 for the others.
    """
    # Keyed by the field, so that values that collide in one field do not in another.
    key = np.uint32((field + 1) * GOLDEN & 0xFFFFFFFF)
    bucket = 1 + mix(values ^ key) % np.uint32(buckets - 1)
    rows: npt.NDArray[np.int32] = np.where(missing, 0, bucket).astype(np.int32) + np.int32(field * buckets)
    return rows


def _write(source: Path, buckets: int, split_seed: int, folder: Path) -> None:
    first = 0
    with (folder / "train.bin").open("wb") as train, (folder / "test.bin").open("wb") as test:
        for records in read(source, buckets):
            for_test = is_test(first, len(records), split_seed)
            records[~for_test].tofile(train)
            records[for_test].tofile(test)
            first += len(records)
        sizes = {"train": train.tell() // RECORD.itemsize, "test": test.tell() // RECORD.itemsize}
        if 0 in sizes.values():
            raise ValueError(f"{source}: too few rows for two parts")
        for part in (train, test):
            part.flush()
            os.fsync(part)  # on the disk before the folder gets its name
    # Versions that read this form of the cache ask for the rows of the joint table, too.
    (folder / "about.json").write_text(json.dumps({"num_rows": NUM_CATEGORIES * buckets, **sizes}))


def _mapped(path: Path, size: int) -> Records:
    if path.stat().st_size != size * RECORD.itemsize:
        raise ValueError(f"{path} should hold {size} rows of {RECORD.itemsize} bytes; delete its folder")
    return np.memmap(path, RECORD, mode="r").view(np.ndarray)


# The text.


def read(path: Path, buckets: int) -> Iterator[Records]:
    """The rows of a file, block by block, in bounded memory.

    Raises:
        ValueError: a row of another form.
    """
    import pyarrow as pa  # slow to import, and few runs read text
    from pyarrow import csv

    types = {"clicked": pa.int8(), **dict.fromkeys(COUNTS, pa.int64()), **dict.fromkeys(CATEGORIES, pa.binary())}
    first = 0
    try:
        reader = csv.open_csv(
            path,
            read_options=csv.ReadOptions(column_names=list(types), block_size=BLOCK_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=False),
        )
        for batch in reader:
            yield _records(batch, first, buckets)
            first += batch.num_rows
    except ValueError as error:  # pyarrow's are ValueErrors
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path}: {reason}") from None


def _records(batch: Any, first: int, buckets: int) -> Records:
    """Of one block of the text, whose first row has this number in the file, from 0."""
    clicked = batch.column("clicked")
    faulty = clicked.null_count > 0 or not np.isin(clicked.to_numpy(zero_copy_only=False), (0, 1)).all()
    if faulty:
        raise ValueError(f"after row {first}: the first field must be 0 or 1")
    records = np.empty(batch.num_rows, RECORD)
    records["clicked"] = clicked.to_numpy()
    for place, name in enumerate(COUNTS):
        counts = batch.column(name).fill_null(0).to_numpy()
        records["counts"][:, place] = np.log1p(np.maximum(counts, 0), dtype=np.float32)
    for field, name in enumerate(CATEGORIES):
        values, missing = _values(batch.column(name), name, first)
        records["rows"][:, field] = hashed_rows(field, values, missing, buckets)
    return records


def _values(column: Any, name: str, first: int) -> tuple[Numbers, Mask]:
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
