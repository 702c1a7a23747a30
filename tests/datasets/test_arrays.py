"""Arrays of the user's own: what is read of a file, what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from syncline.datasets.arrays import ArrayDataset, arrays
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import ImageDataset
from syncline.records.store import read_summary
from syncline.shapes import ArrayShape, ImageShape

GENERATOR = np.random.default_rng(0)
LABELS = {"y_train": np.arange(12) % 3, "y_test": np.arange(6) % 3}
TABLE = {"x_train": GENERATOR.normal(size=(12, 5)), "x_test": GENERATOR.normal(size=(6, 5))}
PIXELS = {
    "x_train": GENERATOR.integers(0, 256, (12, 8, 8), np.uint8),
    "x_test": GENERATOR.integers(0, 256, (6, 8, 8), np.uint8),
}


def written(folder: Path, **found: Any) -> ArrayDataset | ImageDataset:
    np.savez(folder / "mine.npz", **found)
    return arrays(str(folder), "mine.npz")


def test_a_table_with_labels(tmp_path: Path) -> None:
    dataset = written(tmp_path, **TABLE, **LABELS)
    assert (dataset.shape, dataset.num_train) == (ArrayShape((5,), 3), 12)
    source = dataset.batch_source(torch.device("cpu"), "classification")
    samples, labels = source.take(np.array([3, 0]), None)
    assert torch.equal(samples, torch.from_numpy(TABLE["x_train"][[3, 0]].astype(np.float32)))
    assert (samples.dtype, labels.tolist()) == (torch.float32, [0, 0])
    assert torch.equal(torch.cat([x for x, _ in source.test()]), torch.from_numpy(TABLE["x_test"]).float())


def test_sequences_are_whole_numbers_and_targets_real_ones(tmp_path: Path) -> None:
    tokens = {"x_train": np.arange(24).reshape(12, 2), "x_test": np.arange(12).reshape(6, 2)}
    targets = {"y_train": np.ones((12, 4)), "y_test": np.ones((6, 4))}
    dataset = written(tmp_path, **tokens, **targets)
    assert dataset.shape == ArrayShape((2,), 4)
    samples, found = dataset.batch_source(torch.device("cpu"), "regression").take(np.array([1]), None)
    assert (samples.dtype, found.dtype) == (torch.int64, torch.float32)
    with pytest.raises(ValueError, match="targets must be labels, whole numbers, for task=classification"):
        dataset.batch_source(torch.device("cpu"), "classification")


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_pixels_with_labels_are_images(tmp_path: Path, channels: int) -> None:
    pixels = {key: np.stack([each] * channels, 1) if channels else each for key, each in PIXELS.items()}
    dataset = written(tmp_path, **pixels, **LABELS)
    assert isinstance(dataset, ImageDataset)
    assert dataset.shape == ImageShape(max(channels, 1), 8, 3)
    images, _ = dataset.batch_source(torch.device("cpu"), "classification").take(np.arange(12), None)
    assert abs(images.mean().item()) < 1e-4, "normalised by channel"


def test_held_out_samples_are_not_trained_on(tmp_path: Path) -> None:
    dataset = written(tmp_path, **TABLE, **LABELS).with_validation(0.25)
    assert isinstance(dataset, ArrayDataset)
    assert (dataset.num_train, len(dataset.test[0])) == (9, 3)
    rows = torch.cat([dataset.train[0], dataset.test[0]])
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, TABLE["x_train"].astype(np.float32).tolist()))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"y_test": None}, "must have x_train, y_train, x_test, y_test; it has no y_test"),
        ({"y_train": np.arange(11)}, "x_train and y_train must be equally long, got 12 and 11"),
        ({"y_train": np.arange(12) - 1}, "y_train must be labels >= 0, one a sample, or real numbers"),
        ({"x_test": np.ones((6, 4))}, "x_train and x_test must be alike"),
        ({"x_train": np.full((12, 5), np.nan)}, "x_train must be finite"),
        ({"x_train": np.array(["a"] * 12)}, "x_train must hold numbers, got <U1"),
        ({"x_test": np.ones((0, 5)), "y_test": np.ones(0, int)}, "x_test must have at least one sample"),
        ({"x_train": np.array([{}] * 12)}, "must be an .npz file of plain arrays"),
    ],
    ids=lambda value: "",
)
def test_arrays_that_do_not_fit_are_one_line(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    found = {key: value for key, value in {**TABLE, **LABELS, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=re.escape(line)) as error:
        written(tmp_path, **found)
    assert "\n" not in str(error.value)


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"no .*mine\.npz; dataset\.path=FILE names it"):
        arrays(str(tmp_path), "mine.npz")
    (tmp_path / "mine.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"must be an \.npz file of plain arrays"):
        arrays(str(tmp_path), "mine.npz")


def test_a_network_learns_a_line(tmp_path: Path) -> None:
    """y = x w: the squared error falls to a hundredth."""
    weights, x = np.array([1.0, -2.0, 0.5]), GENERATOR.normal(size=(100, 3))
    parts = {"x_train": x[:80], "y_train": x[:80] @ weights, "x_test": x[80:], "y_test": x[80:] @ weights}
    np.savez(tmp_path / "line.npz", **parts)
    from commands import made

    words = ["dataset=arrays", f"dataset.path={tmp_path / 'line.npz'}", "task=regression", "model=mlp"]
    words += ["model.hidden=[]", "epochs=12", "batch_size=5", "optimizer.lr=0.05"]
    record = made(tmp_path, *words, "optimizer.momentum=0")
    summary = read_summary(record)
    assert summary["metric"] == "squared_error"
    assert summary["final"]["squared_error"] < 0.01 * np.var(parts["y_test"])
