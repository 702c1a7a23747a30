"""Criteo: the text is read as it was written, whatever is missing, and the cache never returns other records."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets import criteo as criteo_module
from syncline.datasets.criteo import criteo, hashed_rows, is_test, mix, read
from syncline.datasets.errors import DataMissingError
from syncline.shapes import ClickShape

REAL = Path(os.environ.get("SYNCLINE_DATA", "data")) / "criteo_train_first10k.tsv"
NUM_ROWS = 137
BUCKETS = 1 << 26


Row = tuple[int, list[int | None], list[int | None]]  # clicked, 13 counts, 26 categories

counts = st.none() | st.integers(-3, 30_000_000)
categories = st.none() | st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2**32 - 1])
rows_of_text = st.lists(
    st.tuples(
        st.integers(0, 1), st.lists(counts, min_size=13, max_size=13), st.lists(categories, min_size=26, max_size=26)
    ),
    min_size=1,
    max_size=12,
)


def line(row: Row) -> str:
    clicked, numbers, hashes = row
    fields = [str(clicked), *("" if n is None else str(n) for n in numbers)]
    return "\t".join([*fields, *("" if h is None else f"{h:08x}" for h in hashes)])


def write(path: Path, rows: Sequence[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line(row) + "\n" for row in rows))
    return path


def some_rows(num_rows: int = NUM_ROWS, seed: int = 0) -> list[Row]:
    """With missing fields, negative counts and values that occur once or often."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(num_rows):
        numbers = [None if random.random() < 0.3 else int(random.integers(-3, 5000)) for _ in range(13)]
        hashes = [None if random.random() < 0.3 else int(random.zipf(1.5)) % 2**32 for _ in range(26)]
        rows.append((int(random.integers(0, 2)), numbers, hashes))
    return rows


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(criteo_module, "BLOCK_BYTES", 4000)  # several blocks
    return {"root": str(tmp_path / "data"), "cache": str(tmp_path / "cache")}


def test_the_parts_are_the_rows_that_were_read(options: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path / "data/criteo/train.txt", some_rows())
    dataset = criteo(**options, buckets=50)
    assert dataset.shape == ClickShape(13, 26, 26 * 50)
    records, drawn = np.concatenate(list(read(path, 50))), is_test(0, NUM_ROWS, 0)
    for part, chosen in ((dataset.train, ~drawn), (dataset.test, drawn)):
        np.testing.assert_array_equal(part, records[chosen])


# The text.


@scaled(20)
@given(rows_of_text, st.sampled_from([700, 2000, 1 << 22]))
def test_rows_come_back_as_written(tmp_path: Path, rows: list[Row], block_bytes: int) -> None:
    path = write(tmp_path / "train.txt", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(criteo_module, "BLOCK_BYTES", block_bytes)
        found = np.concatenate(list(read(path, BUCKETS)))
    assert found["clicked"].tolist() == [row[0] for row in rows]
    counts = np.array([[max(number or 0, 0) for number in row[1]] for row in rows])
    np.testing.assert_array_equal(found["counts"], np.log1p(counts, dtype=np.float32))
    for field in range(26):
        values = np.array([row[2][field] or 0 for row in rows], np.uint32)
        missing = np.array([row[2][field] is None for row in rows])
        np.testing.assert_array_equal(found["rows"][:, field], hashed_rows(field, values, missing, BUCKETS))


def test_large_files_come_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row: Row = (1, [7] * 13, [11] * 26)
    monkeypatch.setattr(criteo_module, "BLOCK_BYTES", 10_000)
    sizes = [len(block) for block in read(write(tmp_path / "train.txt", [row] * 1000), BUCKETS)]
    assert sum(sizes) == 1000
    assert max(sizes) < 50


GOOD = line((0, [5] * 13, [10] * 26))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (GOOD + "\tmore", "Expected 40 columns, got 41"),
        (GOOD.rsplit("\t", 1)[0], "Expected 40 columns, got 39"),
        (GOOD.replace("0\t5", "2\t5", 1), "the first field must be 0 or 1"),
        (GOOD.replace("0\t5", "\t5", 1), "the first field must be 0 or 1"),
        (GOOD.replace("\t5", "\tfive", 1), "conversion error to int64: invalid value 'five'"),
        (GOOD.replace("0000000a", "000000g0", 1), "C1 must be 8 hexadecimal digits or empty"),
        (GOOD[:-1], "C26 must be 8 hexadecimal digits or empty"),
        (GOOD + "0", "C26 must be 8 hexadecimal digits or empty"),
        # Sixteen digits in two rows, but not eight in each.
        (GOOD[:-1] + "\n" + GOOD + "0", "C26 must be 8 hexadecimal digits or empty"),
    ],
)
def test_a_row_of_another_form_is_refused_in_one_line(tmp_path: Path, bad: str, message: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"{GOOD}\n{bad}\n{GOOD}\n")
    with pytest.raises(ValueError, match=message) as caught:
        list(read(path, BUCKETS))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.touch()
    with pytest.raises(ValueError, match="Empty CSV file") as caught:
        list(read(path, BUCKETS))
    assert str(path) in str(caught.value)


# The rows of the joint table, and the split.


def as_values(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.uint32)


def test_the_hash_is_murmurs_finaliser() -> None:
    # By hand: 32-bit arithmetic on Python's integers.
    def by_hand(h: int) -> int:
        h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return h ^ h >> 16

    keys = [0, 1, 0x68FD1E64, 0xFFFFFFFF]
    assert mix(as_values(keys)).tolist() == [by_hand(key) for key in keys]
    assert by_hand(1) == 0x514E28B7  # published


def test_rows_are_the_same_on_every_machine() -> None:
    numbers = [0x68FD1E64, 0x80E26C9B, 0xFB936136]
    rows = [hashed_rows(field, as_values(numbers), np.zeros(3, bool), 1000) for field in (0, 25)]
    assert [row.tolist() for row in rows] == [[66, 991, 333], [25827, 25431, 25740]]


@given(
    st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 5), max_size=60),
    st.integers(0, 25),
    st.integers(2, 1 << 26),
    st.data(),
)
def test_hashed_rows_stay_in_their_field(numbers: list[int], field: int, buckets: int, data: st.DataObject) -> None:
    missing = np.array(data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers))), bool)
    rows = hashed_rows(field, as_values(numbers), missing, buckets)
    assert rows.dtype == np.int32
    place = rows - field * buckets
    assert (place[missing] == 0).all()
    assert ((place[~missing] >= 1) & (place[~missing] < buckets)).all()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_one_of_every_ten_rows_is_for_the_test(seed: int) -> None:
    drawn = is_test(0, 100_000, seed)
    assert (drawn.reshape(-1, 10).sum(axis=1) == 1).all()
    places = np.bincount(drawn.reshape(-1, 10).argmax(axis=1), minlength=10)
    assert abs(places - 1000).max() < 6 * 30  # each position in ten equally often: 1000 +- 30
    for begin, size in ((0, 7), (7, 20), (99_990, 10), (12_345, 678)):  # at any block boundary
        np.testing.assert_array_equal(is_test(begin, size, seed), drawn[begin : begin + size])


def test_seeds_split_differently_and_independently() -> None:
    one, other = is_test(0, 100_000, 0), is_test(0, 100_000, 1)
    assert abs((one & other).sum() - 1000) < 6 * 30


def test_the_whole_data_has_41256555_rows_for_training() -> None:
    # Of the 45,840,617 rows the last ten is not whole: whether one of its seven is for the test depends on the seed.
    assert 45_840_617 - 4_584_061 - is_test(45_840_610, 7, seed=0).sum() == 41_256_555


def test_what_was_parsed_is_not_parsed_again(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data/train.txt"
    write(path, some_rows())
    parsed = []
    read = criteo_module.read
    monkeypatch.setattr(criteo_module, "read", lambda *asked: parsed.append(asked) or read(*asked))
    first = criteo(**options)
    np.testing.assert_array_equal(criteo(**options).train, first.train)
    assert len(parsed) == 1
    criteo(**options, buckets=99)
    criteo(**options, split_seed=1)
    assert len(parsed) == 3
    write(path, some_rows(seed=1))
    assert not np.array_equal(criteo(**options).train["counts"], first.train["counts"])
    assert len(parsed) == 4


def test_an_error_in_the_text_leaves_no_cache(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "data/train.txt"
    write(path, some_rows())
    whole = path.read_text()
    path.write_text(whole + "1\tof another form\n")
    with pytest.raises(ValueError, match="Expected 40 columns, got 2"):
        criteo(**options)
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".lock"]
    path.write_text(whole)
    assert len(criteo(**options).train) > 0


def test_a_damaged_cache_is_not_used(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "data/train.txt", some_rows())
    criteo(**options)
    (part,) = (tmp_path / "cache").glob("criteo-*/test.bin")
    part.write_bytes(part.read_bytes()[:-160])
    with pytest.raises(ValueError, match=r"test\.bin should hold 1[34] rows of 160 bytes; delete its folder"):
        criteo(**options)


def test_a_single_row_is_too_few_for_two_parts(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "data/train.txt", some_rows(1))
    with pytest.raises(ValueError, match=r"train\.txt: too few rows for two parts"):
        criteo(**options)


def test_a_file_is_found_by_its_own_name_or_a_given_one(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"no .*/data/other\.tsv;"):
        criteo(**options, file="other.tsv")
    write(tmp_path / "data/other.tsv", some_rows(20))
    assert len(criteo(**options, file="other.tsv").train) == 18
    assert len(criteo(**options, file=str(tmp_path / "data/other.tsv")).train) == 18
    write(tmp_path / "data/train.txt", some_rows(30))
    write(tmp_path / "data/criteo/train.txt", some_rows(40))
    assert len(criteo(**options).train) == 36


def test_a_cache_that_cannot_be_written_is_named(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "data/train.txt", some_rows())
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ValueError, match=r"dataset\.cache=FOLDER chooses another") as caught:
        criteo(**options)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "cache") in str(caught.value)


def test_the_parts_are_mapped_and_batches_are_copies(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "data/train.txt", some_rows())
    dataset = criteo(**options)
    assert not dataset.train.flags.writeable
    source = dataset.batch_source(torch.device("cpu"), "ctr")
    for tensor in source.take(np.array([3]), None):
        tensor.zero_()
    assert dataset.train["rows"][3].max() > 0


@pytest.mark.skipif(not REAL.is_file(), reason=f"no Criteo slice at {REAL}; SYNCLINE_DATA names its folder")
def test_the_real_slice_is_complete(tmp_path: Path) -> None:
    dataset = criteo(str(REAL.parent), file=REAL.name, cache=str(tmp_path))
    assert (dataset.num_train, len(dataset.test)) == (9000, 1000)
    clicked = np.concatenate([dataset.train["clicked"], dataset.test["clicked"]])
    assert clicked.mean() == pytest.approx(0.2182, abs=1e-4)
