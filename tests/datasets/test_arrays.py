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


COLOURS = {
    key: np.random.default_rng(1).integers(0, 256, (len(each), 8, 8, 3), np.uint8) for key, each in PIXELS.items()
}


@pytest.mark.parametrize("sides", [(8, 8), (8, 6)], ids=["square", "not square"])
@pytest.mark.parametrize("is_last", [False, True], ids=["channels first", "channels last"])
def test_pixels_of_every_usual_layout_are_normalised_by_channel(
    tmp_path: Path, is_last: bool, sides: tuple[int, int]
) -> None:
    cut = {key: each[:, : sides[0], : sides[1]] for key, each in COLOURS.items()}
    dataset = written(
        tmp_path, **{k: each if is_last else each.transpose(0, 3, 1, 2) for k, each in cut.items()}, **LABELS
    )
    expected = ImageShape(3, 8, 3) if sides == (8, 8) else ArrayShape((3, *sides), 3)
    assert dataset.shape == expected
    pixels = cut["x_train"].astype(float)
    normal = (pixels - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2))
    images, _ = dataset.batch_source(torch.device("cpu"), "classification").take(np.arange(12), None)
    assert np.allclose(images.numpy(), normal.transpose(0, 3, 1, 2), atol=1e-4)


def test_pixels_with_real_targets_and_images_of_real_numbers(tmp_path: Path) -> None:
    targets = {"y_train": np.ones(12), "y_test": np.ones(6)}
    pixels = written(tmp_path, **COLOURS, **targets)
    assert pixels.shape == ArrayShape((3, 8, 8), 1)
    assert pixels.batch_source(torch.device("cpu"), "regression").take(np.array([0]), None)[0].dtype == torch.float32
    real = {key: each.transpose(0, 3, 1, 2) / 255 for key, each in COLOURS.items()}
    assert written(tmp_path, **real, **LABELS).shape == ImageShape(3, 8, 3), "for any of our networks"


@pytest.mark.parametrize("shape", [(3, 8, 3), (5, 8, 6)], ids=["both", "none"])
def test_pixels_of_no_clear_layout_are_refused_with_those_that_are(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = {"x_train": np.zeros((12, *shape), np.uint8), "x_test": np.zeros((6, *shape), np.uint8)}
    with pytest.raises(ValueError, match=r"pixels must be \[N, H, W\], \[N, C, H, W\] or \[N, H, W, C\] with 1, 3"):
        written(tmp_path, **pixels, **LABELS)


def labelled(train: Any, test: Any) -> dict[str, Any]:
    x = {"x_train": np.zeros((len(train), 2)), "x_test": np.zeros((len(test), 2))}
    return x | {"y_train": np.asarray(train), "y_test": np.asarray(test)}


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (labelled(np.arange(1990, 2024), [1990]), r"got 34 different ones in 1990..2023 of 34 samples: .*=2024$"),
        (labelled([1, 2, 3] * 5, [1]), r"got 3 different ones in 1..3 of 15 samples: number the classes from 0"),
        (labelled(np.arange(50), [1]), r"make y real numbers for task=regression, or confirm with .*num_classes=50$"),
        (labelled([-100] * 5, [-100]), "every label is -100, which is ignored"),
    ],
    ids=["years", "from 1", "prices", "ignored"],
)
def test_numbers_that_may_be_no_labels_are_asked_about(tmp_path: Path, found: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        written(tmp_path, **found)


def test_the_number_of_classes_confirms_labels_with_gaps_and_bounds_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **labelled([0, 5, -100, 0], [2]))
    assert arrays(str(tmp_path), "mine.npz", num_classes=7).shape == ArrayShape((2,), 7)
    with pytest.raises(ValueError, match=r"labels must be in 0..3 for dataset.num_classes=4, got 5"):
        arrays(str(tmp_path), "mine.npz", num_classes=4)


@pytest.mark.parametrize("of", [TABLE, PIXELS], ids=["table", "pixels"])
def test_what_is_done_to_a_batch_in_place_changes_no_data(tmp_path: Path, of: dict[str, Any]) -> None:
    source = written(tmp_path, **of, **LABELS).batch_source(torch.device("cpu"), "classification")

    def batches() -> list[torch.Tensor]:
        taken = [source.take(np.arange(4), None), *source.test()]
        copies = [column.clone() for batch in taken for column in batch]
        for batch in taken:
            for column in batch:
                column.sub_(5).mul_(2)
        return copies

    assert all(torch.equal(one, other) for one, other in zip(batches(), batches(), strict=True))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"y_train": np.arange(11)}, "x_train and y_train must be equally long, got 12 and 11"),
        ({"y_train": np.arange(12) - 1}, "y_train must be labels >= 0, one a sample, or real numbers"),
        ({"x_test": np.ones((6, 4))}, "x_train and x_test must be alike"),
        ({"x_train": np.full((12, 5), np.nan)}, "x_train must be finite"),
        ({"x_train": np.array(["a"] * 12)}, "x_train must hold numbers, got <U1"),
        ({"x_test": np.ones((0, 5)), "y_test": np.ones(0, int)}, "x_test must have at least one sample"),
    ],
    ids=lambda value: "",
)
def test_arrays_that_do_not_fit_are_one_line(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)) as error:
        written(tmp_path, **{**TABLE, **LABELS, **change})
    assert "\n" not in str(error.value)


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"no .*mine\.npz; dataset\.path=FILE names it"):
        arrays(str(tmp_path), "mine.npz")
    (tmp_path / "mine.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"mine\.npz: not a readable \.npz file of plain arrays"):
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
