"""Digits: all of scikit-learn's images, split once for all."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from syncline.datasets.digits import digits


def test_every_image_is_there_once() -> None:
    dataset = digits()
    assert dataset.train_images.shape == (1437, 1, 8, 8)
    assert dataset.test_images.shape == (360, 1, 8, 8)
    ours = torch.cat([dataset.train_images, dataset.test_images]).flatten(1).numpy()
    labels = torch.cat([dataset.train_labels, dataset.test_labels]).numpy()
    bunch = load_digits()
    theirs = np.rint(bunch.data * 255 / 16).astype(int)
    assert sorted(zip(ours.tolist(), labels.tolist(), strict=True)) == sorted(
        zip(theirs.tolist(), bunch.target.tolist(), strict=True)
    )
    assert (ours.min(), ours.max()) == (0, 255)


def test_the_split_is_stratified() -> None:
    dataset = digits()
    train, test = dataset.train_labels.bincount(), dataset.test_labels.bincount()
    assert (test / (train + test) - 360 / 1797).abs().max() < 0.005


def test_the_split_is_the_same_whatever_the_seeds() -> None:
    np.random.seed(1)
    torch.manual_seed(1)
    first = digits()
    np.random.seed(2)
    torch.manual_seed(2)
    assert torch.equal(first.test_images, digits().test_images)
    assert torch.equal(first.train_labels, digits(train_size=None).train_labels)


def test_the_first_hundred_hold_every_class() -> None:
    small = digits(train_size=100, test_size=50)
    assert (len(small.train_labels), len(small.test_labels)) == (100, 50)
    assert small.train_labels.bincount(minlength=10).min() > 0


def test_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^dataset digits: train_size=1438, allowed: 1\.\.1437, or null for all$"):
        digits(train_size=1438)
