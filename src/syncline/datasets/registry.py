"""Data sets, chosen by name."""

from collections.abc import Callable
from functools import partial
from typing import Any

from syncline.datasets.arrays import arrays as load_arrays
from syncline.datasets.batch_source import Dataset
from syncline.datasets.cifar import cifar as load_cifar
from syncline.datasets.criteo import criteo as load_criteo
from syncline.datasets.ctr_synthetic import ctr_synthetic as load_ctr_synthetic
from syncline.datasets.digits import digits as load_digits
from syncline.datasets.glyphs import glyphs as load_glyphs
from syncline.datasets.imagenet import imagenet as load_imagenet
from syncline.datasets.mnist import mnist as load_mnist
from syncline.datasets.mnist_digits import mnist_digits as load_mnist_digits
from syncline.datasets.qa_synthetic import qa_synthetic as load_qa_synthetic
from syncline.datasets.squad import squad as load_squad
from syncline.datasets.text import pydoc_text
from syncline.datasets.text import text as load_text
from syncline.datasets.text import tokens as load_tokens

DATASETS: dict[str, Callable[..., Dataset]] = {
    "arrays": load_arrays,
    "billion": partial(load_text, "billion"),
    "cifar10": partial(load_cifar, "cifar10"),
    "cifar100": partial(load_cifar, "cifar100"),
    "criteo": load_criteo,
    "ctr_synthetic": load_ctr_synthetic,
    "digits": load_digits,
    "glyphs10": partial(load_glyphs, 10),
    "glyphs100": partial(load_glyphs, 100),
    "imagenet": load_imagenet,
    "mnist": load_mnist,
    "mnist_digits": load_mnist_digits,
    "ptb": partial(load_text, "ptb"),
    "pydoc_text": pydoc_text,
    "qa_synthetic": load_qa_synthetic,
    "squad": load_squad,
    "text": partial(load_text, "text"),
    "text8": partial(load_text, "text8"),
    "tokens": load_tokens,
}


def load(name: str, **options: Any) -> Dataset:
    """The dataset of that name.

    Args:
        name: a key of DATASETS.
        options: of its loader, in the ranges of its config; all have train_size and test_size (the first so many
            samples, None for all).

    Raises:
        DataMissingError: its files are missing.
        ValueError: a broken file, or fewer samples than asked for.
    """
    return DATASETS[name](**options)
