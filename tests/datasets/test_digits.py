"""Digits: all of scikit-learn's images, split once for all."""

import sys

import numpy as np
import pytest

from syncline.datasets.digits import digits


def test_they_are_scikit_learns_split_by_its_own_function() -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    dataset = digits()
    bunch = load_digits()
    parts = train_test_split(range(1797), test_size=360, stratify=bunch.target, random_state=0)
    for part, (images, labels) in zip(parts, (dataset.train, dataset.test), strict=True):
        assert images.shape == (len(part), 1, 8, 8)
        assert images.squeeze(1).tolist() == np.rint(bunch.images[part] * 255 / 16).tolist()
        assert labels.tolist() == bunch.target[part].tolist()
    assert (dataset.train.samples.min(), dataset.train.samples.max()) == (0, 255)


def test_scikit_learn_is_not_imported_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    digits()
    assert "sklearn" not in sys.modules
