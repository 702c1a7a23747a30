"""Datasets, chosen by name: loaded, checked, shared among workers, augmented."""

from collections.abc import Callable
from functools import partial
from typing import Any

from syncline.datasets.cifar import cifar as load_cifar
from syncline.datasets.digits import digits as load_digits
from syncline.datasets.errors import DataMissingError
from syncline.datasets.glyphs import glyphs as load_glyphs
from syncline.datasets.images import ImageDataset

__all__ = ["DATASETS", "DataMissingError", "ImageDataset", "load"]

DATASETS: dict[str, Callable[..., ImageDataset]] = {
    "digits": load_digits,
    "glyphs10": partial(load_glyphs, 10),
    "glyphs100": partial(load_glyphs, 100),
    "cifar10": partial(load_cifar, "cifar10"),
    "cifar100": partial(load_cifar, "cifar100"),
}


def load(name: str, **options: Any) -> ImageDataset:
    """The dataset of that name.

    Args:
        name: a key of DATASETS.
        options: what its loader takes; all take train_size and test_size (the first so many images, None for all).

    Raises:
        DataMissingError: its files are not there.
        ValueError: an unknown name, a broken file, or an option out of range.
    """
    if name not in DATASETS:
        raise ValueError(f"unknown dataset {name!r}; choose one of {', '.join(sorted(DATASETS))}")
    return DATASETS[name](**options)
