"""Images and labels that tests write to files, and what is asked of the data sets that read them."""

import numpy as np
import pytest

from syncline.datasets.images import ImageDataset


def arrays(shape: tuple[int, ...], num_classes: int = 10) -> dict[str, np.ndarray]:
    """Twenty images of this shape for training and six for the test."""
    random = np.random.default_rng(0)
    return {
        "x_train": random.integers(0, 256, (20, *shape), np.uint8),
        "y_train": random.integers(0, num_classes, 20, np.uint8),
        "x_test": random.integers(0, 256, (6, *shape), np.uint8),
        "y_test": random.integers(0, num_classes, 6, np.uint8),
    }


def check(dataset: ImageDataset, written: dict[str, np.ndarray]) -> None:
    """The images and labels are those that were written."""
    for part, (images, labels) in (("train", dataset.train), ("test", dataset.test)):
        np.testing.assert_array_equal(images, written[f"x_{part}"].reshape(images.shape))
        np.testing.assert_array_equal(labels, written[f"y_{part}"])


def one_line(caught: pytest.ExceptionInfo[ValueError]) -> str:
    text = str(caught.value)
    assert "\n" not in text
    return text
