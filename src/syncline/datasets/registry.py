"""Data sets, chosen by name, with as many of their samples as asked for."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from syncline.datasets.arrays import arrays as load_arrays
from syncline.datasets.batch_source import Dataset
from syncline.datasets.criteo import criteo as load_criteo
from syncline.datasets.ctr_synthetic import ctr_synthetic as load_ctr_synthetic
from syncline.datasets.digits import digits as load_digits
from syncline.datasets.glyphs import glyphs as load_glyphs
from syncline.datasets.imagenet import imagenet as load_imagenet
from syncline.datasets.mnist_digits import mnist_digits as load_mnist_digits
from syncline.datasets.published_images import published_images
from syncline.datasets.qa_synthetic import qa_synthetic as load_qa_synthetic
from syncline.datasets.squad import squad as load_squad
from syncline.datasets.text import pydoc_text
from syncline.datasets.text import text as load_text
from syncline.datasets.text import tokens as load_tokens

DATASETS: dict[str, Callable[..., Any]] = {
    "arrays": load_arrays,
    "billion": partial(load_text, "billion"),
    "cifar10": partial(published_images, "cifar10"),
    "cifar100": partial(published_images, "cifar100"),
    "criteo": load_criteo,
    "ctr_synthetic": load_ctr_synthetic,
    "digits": load_digits,
    "glyphs10": partial(load_glyphs, 10),
    "glyphs100": partial(load_glyphs, 100),
    "imagenet": load_imagenet,
    "mnist": partial(published_images, "mnist"),
    "mnist_digits": load_mnist_digits,
    "ptb": partial(load_text, "ptb"),
    "pydoc_text": pydoc_text,
    "qa_synthetic": load_qa_synthetic,
    "squad": load_squad,
    "text": partial(load_text, "text"),
    "text8": partial(load_text, "text8"),
    "tokens": load_tokens,
}

# Their loaders take the sizes: what is drawn has any size, and questions are spread over all of SQuAD.
SIZED = {"ctr_synthetic", "glyphs10", "glyphs100", "mnist_digits", "qa_synthetic", "squad"}


def load(name: str, train_size: int | None = None, test_size: int | None = None, **options: Any) -> Dataset:
    """The dataset of that name.

    Args:
        name: a key of DATASETS.
        train_size: of the training samples the first so many, >= 1; None for all.
        test_size: the same of the test samples; of a text, so many times `length` symbols (and one).
        options: of its loader, in the ranges of its config.

    Raises:
        DataMissingError: its files are missing.
        ValueError: a broken file, or fewer samples than asked for.
    """
    loader = DATASETS[name]
    if name in SIZED:
        return cast(Dataset, loader(train_size=train_size, test_size=test_size, **options))
    return cast(Dataset, loader(**options).first(train_size, test_size))
