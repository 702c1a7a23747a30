"""Drawn digits: MNIST's rules hold for each image, its statistics for all, and the same seed gives the same bits."""

import numpy as np
import pytest
import torch

from syncline.datasets import mnist_digits as module
from syncline.datasets.images import ImageDataset
from syncline.datasets.mnist_digits import mnist_digits

# Of the 60,000 training images of MNIST, measured: grey mean and spread (0..255), parts of black and of white (>= 250).
MNIST_MEAN, MNIST_STD, MNIST_BLACK, MNIST_WHITE = 33.3, 78.6, 0.809, 0.074


@pytest.fixture(scope="module")
def many() -> ImageDataset:
    return mnist_digits(2_000, 300)


def test_shape_of_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEFAULT_TRAIN", 30)
    monkeypatch.setattr(module, "DEFAULT_TEST", 20)
    dataset = mnist_digits()
    assert (dataset.name, dataset.num_classes) == ("mnist_digits", 10)
    assert (dataset.num_train, len(dataset.test.targets)) == (30, 20)
    assert (dataset.train.samples.shape, dataset.train.samples.dtype) == ((30, 1, 28, 28), torch.uint8)


def test_every_digit_lies_in_a_box_of_20_pixels_with_its_mass_in_the_middle(many: ImageDataset) -> None:
    images = many.train.samples[:, 0].numpy()
    ink = images > 0
    rows, columns = ink.any(axis=2), ink.any(axis=1)
    for spread in (rows, columns):
        first, last = spread.argmax(axis=1), 27 - spread[:, ::-1].argmax(axis=1)
        assert (last - first).max() < 20
    longest = np.maximum(rows.sum(axis=1), columns.sum(axis=1))
    assert np.mean(longest == 20) > 0.97
    mass = images.sum(axis=(1, 2))
    for axis in (1, 2):
        centres = (images.sum(axis=axis) * np.arange(28)).sum(axis=1) / mass
        assert np.mean(np.abs(centres - 14) <= 0.51) > 0.999  # whole pixels, as MNIST; 0.01 of rounding


def test_the_grey_values_are_those_of_mnist(many: ImageDataset) -> None:
    pixels = many.train.samples.flatten()
    assert many.mean == pytest.approx((MNIST_MEAN,), rel=0.03)
    assert many.std == pytest.approx((MNIST_STD,), rel=0.03)
    assert (pixels == 0).float().mean().item() == pytest.approx(MNIST_BLACK, abs=0.01)
    assert (pixels >= 250).float().mean().item() == pytest.approx(MNIST_WHITE, abs=0.01)


def test_no_image_occurs_twice(many: ImageDataset) -> None:
    images = torch.cat([many.train.samples, many.test.samples]).flatten(1)
    assert len(images.unique(dim=0)) == 2_300
