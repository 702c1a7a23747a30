"""Digits: all of scikit-learn's images, split once for all."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from syncline.datasets.digits import digits


def test_they_are_scikit_learns_split_by_its_own_function() -> None:
    dataset = digits()
    bunch = load_digits()
    parts = train_test_split(range(1797), test_size=360, stratify=bunch.target, random_state=0)
    for part, images, labels in zip(
        parts, (dataset.train_images, dataset.test_images), (dataset.train_labels, dataset.test_labels), strict=True
    ):
        assert images.shape == (len(part), 1, 8, 8)
        assert images.squeeze(1).tolist() == np.rint(bunch.images[part] * 255 / 16).tolist()
        assert labels.tolist() == bunch.target[part].tolist()
    assert (dataset.train_images.min(), dataset.train_images.max()) == (0, 255)


def test_the_split_is_stratified() -> None:
    dataset = digits()
    train, test = dataset.train_labels.bincount(), dataset.test_labels.bincount()
    assert (test / (train + test) - 360 / 1797).abs().max() < 0.005


def test_scikit_learn_is_not_imported_for_them() -> None:
    code = "import sys; from syncline.datasets.digits import digits; digits(); print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"False\n"


def test_the_first_hundred_hold_every_class() -> None:
    small = digits(train_size=100, test_size=50)
    assert (len(small.train_labels), len(small.test_labels)) == (100, 50)
    assert small.train_labels.bincount(minlength=10).min() > 0


def test_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^dataset digits: train_size=1438, allowed: 1\.\.1437, or null for all$"):
        digits(train_size=1438)
