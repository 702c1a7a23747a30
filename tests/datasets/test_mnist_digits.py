"""Drawn digits: MNIST's rules hold for each image, its statistics for all, and the same seed gives the same bits."""

import numpy as np
import pytest
import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets.mnist_digits import mnist_digits

# Of the 60,000 training images of MNIST, measured: grey mean and spread (0..255), parts of black and of white (>= 250).
MNIST_MEAN, MNIST_STD, MNIST_BLACK, MNIST_WHITE = 33.3, 78.6, 0.809, 0.074


def test_shape_of_mnist() -> None:
    dataset = mnist_digits(30, 20)
    assert (dataset.name, dataset.num_classes, dataset.num_train, len(dataset.test_labels)) == (
        *("mnist_digits", 10),
        *(30, 20),
    )
    assert (dataset.train_images.shape, dataset.train_images.dtype) == ((30, 1, 28, 28), torch.uint8)
    assert mnist_digits(None, 10).num_train == 10_000


def test_every_digit_lies_in_a_box_of_20_pixels_with_its_mass_in_the_middle() -> None:
    images = mnist_digits(2_000, 10).train_images[:, 0].numpy()
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


def test_the_grey_values_are_those_of_mnist() -> None:
    dataset = mnist_digits(4_000, 10)
    pixels = dataset.train_images.flatten()
    assert dataset.mean == pytest.approx((MNIST_MEAN,), rel=0.03)
    assert dataset.std == pytest.approx((MNIST_STD,), rel=0.03)
    assert (pixels == 0).float().mean().item() == pytest.approx(MNIST_BLACK, abs=0.01)
    assert (pixels >= 250).float().mean().item() == pytest.approx(MNIST_WHITE, abs=0.01)


def test_the_same_seed_draws_the_same_bits() -> None:
    np.random.seed(1)
    first = mnist_digits(150, 50, seed=4)
    np.random.seed(2)
    second = mnist_digits(150, 50, seed=4)
    assert torch.equal(first.train_images, second.train_images)
    assert torch.equal(first.test_images, second.test_images)
    assert not torch.equal(first.train_images, mnist_digits(150, 50, seed=5).train_images)


@scaled(4)
@given(st.integers(1, 120), st.integers(1, 120))
def test_the_first_of_more_are_the_same(small: int, more: int) -> None:
    few, many = mnist_digits(small, more), mnist_digits(small + more, small + more)
    assert torch.equal(few.train_images, many.train_images[:small])
    assert torch.equal(few.train_labels, many.train_labels[:small])
    assert torch.equal(few.test_images, many.test_images[:more])


def test_no_image_occurs_twice_and_every_ten_hold_each_digit() -> None:
    dataset = mnist_digits(1_000, 500)
    images = torch.cat([dataset.train_images, dataset.test_images]).flatten(1)
    assert len(images.unique(dim=0)) == 1_500
    rounds = dataset.train_labels.reshape(100, 10)
    assert torch.equal(rounds.sort(dim=1).values, torch.arange(10).expand(100, 10))


def test_digits_can_be_told_apart_but_not_all_by_their_mean_pictures() -> None:
    """The nearest of 3,000 gave 0.994 of 500 right, the nearest class mean 0.932; chance gives 0.1."""
    dataset = mnist_digits(3_000, 500)
    train, test = dataset.train_images.flatten(1).float(), dataset.test_images.flatten(1).float()
    nearest = dataset.train_labels[torch.cdist(test, train).argmin(dim=1)]
    assert (nearest == dataset.test_labels).float().mean() > 0.95
    means = torch.stack([train[dataset.train_labels == digit].mean(dim=0) for digit in range(10)])
    by_mean = (torch.cdist(test, means).argmin(dim=1) == dataset.test_labels).float().mean().item()
    assert 0.6 < by_mean < 0.97


@pytest.mark.parametrize(
    ("train_size", "test_size", "seed", "message"),
    [(0, 1, 0, "train_size=0"), (1, 0, 0, "test_size=0"), (1, 1, -1, "seed=-1")],
)
def test_arguments_out_of_range_are_refused(train_size: int, test_size: int, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mnist_digits(train_size, test_size, seed)
