"""The source of click logs: the records asked for, in the forms a network wants."""

import numpy as np
import pytest
import torch

from syncline.datasets import clicks
from syncline.datasets.clicks import RECORD, ClickDataset
from syncline.shapes import ClickShape


def some_records(size: int) -> np.ndarray:
    random = np.random.default_rng(size)
    records = np.empty(size, RECORD)
    records["counts"] = random.random((size, 13))
    records["rows"] = random.integers(0, 100, (size, 26))
    records["clicked"] = random.integers(0, 2, size)
    return records


def test_a_batch_holds_the_rows_asked_for() -> None:
    dataset = ClickDataset("some", some_records(50), some_records(9), 100)
    assert (dataset.num_train, dataset.shape, dataset.best) == (50, ClickShape(13, 26, 100), {})
    source = dataset.batch_source(torch.device("cpu"), "ctr")
    wanted = np.array([7, 3, 7, 49])
    counts, rows, clicked = source.take(wanted, None)
    assert (counts.dtype, rows.dtype, clicked.dtype) == (torch.float32, torch.int64, torch.float32)
    np.testing.assert_array_equal(counts, dataset.train["counts"][wanted])
    np.testing.assert_array_equal(rows, dataset.train["rows"][wanted])
    np.testing.assert_array_equal(clicked, dataset.train["clicked"][wanted])
    assert counts.is_contiguous()
    assert source.is_random is False


@pytest.mark.parametrize("size", [1, 8, 9, 17])
def test_the_test_part_comes_whole_and_in_order(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks, "TEST_BATCH", 8)
    records = some_records(size)
    records.flags.writeable = False  # as a mapped file's
    source = ClickDataset("some", some_records(1), records, 100).batch_source(torch.device("cpu"), "ctr")
    counts, rows, clicked = (torch.cat(parts) for parts in zip(*source.test(), strict=True))
    np.testing.assert_array_equal(counts, records["counts"])
    np.testing.assert_array_equal(rows, records["rows"])
    np.testing.assert_array_equal(clicked, records["clicked"])


def test_a_part_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^dataset some: 3 training rows and 0 for the test$"):
        ClickDataset("some", some_records(3), some_records(0), 100)
