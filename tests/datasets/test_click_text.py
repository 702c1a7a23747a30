"""Criteo's text is read as it was written, with any fields missing and any block boundaries."""

from pathlib import Path

import numpy as np
import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets import criteo
from syncline.datasets.categories import hashed_rows
from syncline.datasets.criteo import read

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


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(line(row) + "\n" for row in rows))
    return path


@scaled(20)
@given(rows_of_text, st.sampled_from([700, 2000, 1 << 22]))
def test_rows_come_back_as_written(tmp_path: Path, rows: list[Row], block_bytes: int) -> None:
    path = write(tmp_path / "train.txt", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(criteo, "BLOCK_BYTES", block_bytes)
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
    monkeypatch.setattr(criteo, "BLOCK_BYTES", 10_000)
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
