"""Criteo: the records are those of a plain reading of the text, and the cache never returns others."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from syncline.datasets import criteo as criteo_module
from syncline.datasets.categories import hashed_rows
from syncline.datasets.criteo import criteo, is_test
from syncline.datasets.errors import DataMissingError
from syncline.shapes import ClickShape

REAL = Path(os.environ.get("SYNCLINE_DATA", "data")) / "criteo_train_first10k.tsv"
NUM_ROWS = 137


def write(path: Path, num_rows: int = NUM_ROWS, seed: int = 0) -> list[list[str]]:
    """Rows with missing fields, negative counts and values that occur once or often."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(num_rows):
        counts = ["" if random.random() < 0.3 else str(random.integers(-3, 5000)) for _ in range(13)]
        values = ["" if random.random() < 0.3 else f"{int(random.zipf(1.5)) % 2**32:08x}" for _ in range(26)]
        rows.append([str(random.integers(0, 2)), *counts, *values])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return rows


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(criteo_module, "BLOCK_BYTES", 4000)  # several blocks
    return {"root": str(tmp_path / "data"), "cache": str(tmp_path / "cache")}


def parts(rows: list[list[str]], seed: int = 0) -> tuple[list[list[str]], list[list[str]]]:
    drawn = is_test(0, len(rows), seed)
    train = [row for row, chosen in zip(rows, drawn, strict=True) if not chosen]
    return train, [row for row, chosen in zip(rows, drawn, strict=True) if chosen]


def test_records_are_those_of_a_plain_reading(options: dict[str, Any], tmp_path: Path) -> None:
    rows = write(tmp_path / "data/criteo/train.txt")
    dataset = criteo(**options, buckets=50)
    assert dataset.shape == ClickShape(13, 26, 26 * 50)
    for records, expected in zip((dataset.train, dataset.test), parts(rows), strict=True):
        assert records["clicked"].tolist() == [int(row[0]) for row in expected]
        logs = [[math.log1p(max(int(field or 0), 0)) for field in row[1:14]] for row in expected]
        np.testing.assert_allclose(records["counts"], logs, rtol=1e-6)
        for field in range(26):
            texts = [row[14 + field] for row in expected]
            values = np.array([int(text or "0", 16) for text in texts], np.uint32)
            wanted = hashed_rows(field, values, np.array([not text for text in texts]), 50)
            np.testing.assert_array_equal(records["rows"][:, field], wanted)


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
    write(path)
    parsed = []
    read = criteo_module.read
    monkeypatch.setattr(criteo_module, "read", lambda *asked: parsed.append(asked) or read(*asked))
    first = criteo(**options)
    np.testing.assert_array_equal(criteo(**options).train, first.train)
    assert len(parsed) == 1
    criteo(**options, buckets=99)
    criteo(**options, split_seed=1)
    assert len(parsed) == 3
    write(path, seed=1)
    assert not np.array_equal(criteo(**options).train["counts"], first.train["counts"])
    assert len(parsed) == 4


def test_an_error_in_the_text_leaves_no_cache(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "data/train.txt"
    write(path)
    whole = path.read_text()
    path.write_text(whole + "1\tof another form\n")
    with pytest.raises(ValueError, match="Expected 40 columns, got 2"):
        criteo(**options)
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".lock"]
    path.write_text(whole)
    assert len(criteo(**options).train) > 0


def test_a_damaged_cache_is_not_used(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "data/train.txt")
    criteo(**options)
    (part,) = (tmp_path / "cache").glob("criteo-*/test.bin")
    part.write_bytes(part.read_bytes()[:-160])
    with pytest.raises(ValueError, match=r"test\.bin should hold 1[34] rows of 160 bytes; delete its folder"):
        criteo(**options)


def test_a_single_row_is_too_few_for_two_parts(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "data/train.txt", 1)
    with pytest.raises(ValueError, match=r"train\.txt: too few rows for two parts"):
        criteo(**options)


def test_a_file_is_found_by_its_own_name_or_a_given_one(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"no .*/data/other\.tsv;"):
        criteo(**options, file="other.tsv")
    write(tmp_path / "data/other.tsv", 20)
    assert len(criteo(**options, file="other.tsv").train) == 18
    assert len(criteo(**options, file=str(tmp_path / "data/other.tsv")).train) == 18
    write(tmp_path / "data/train.txt", 30)
    write(tmp_path / "data/criteo/train.txt", 40)
    assert len(criteo(**options).train) == 36


def test_a_cache_that_cannot_be_written_is_named(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "data/train.txt")
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ValueError, match=r"dataset\.cache=FOLDER chooses another") as caught:
        criteo(**options)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "cache") in str(caught.value)


def test_the_parts_are_mapped_and_batches_are_copies(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "data/train.txt")
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
