"""A pair of map-style torch data sets (`__getitem__`, `__len__`) of the user's own, as a data set of ours."""

import random
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, default_collate

from syncline.datasets.arrays import check_targets
from syncline.datasets.batch_source import Batch, BatchSource
from syncline.datasets.errors import checked_size
from syncline.datasets.streams import Purpose, stream
from syncline.datasets.validation import split
from syncline.shapes import ArrayShape, ImageShape, Shape

TEST_BATCH = 250


class Samples(Sized, Protocol):
    """A map-style data set: an item is a tuple of arrays, tensors or numbers, the last one its label or target."""

    def __getitem__(self, index: int) -> Any: ...


@dataclass(frozen=True)
class MapStyleDataset:
    """Samples are read one by one whenever they are needed."""

    name: str
    train: Samples
    testing: Samples
    shape: Shape

    @property
    def num_train(self) -> int:
        return len(self.train)

    def with_validation(self, share: float) -> "MapStyleDataset":
        rest, held = split(self.num_train, share)
        return replace(self, train=_part(self.train, rest.tolist()), testing=_part(self.train, held.tolist()))

    def batch_source(self, device: torch.device, task: str) -> BatchSource:
        """Raises ValueError: the targets are not what the task learns."""
        check_targets(self.name, task, _batch(self.name, self.train, [0])[-1])
        return MapStyleSource(self.name, self.train, self.testing, device)


def map_style(
    name: str,
    train: Samples,
    test: Samples,
    train_size: int | None = None,
    test_size: int | None = None,
    num_classes: int | None = None,
) -> MapStyleDataset:
    """The data set of this pair.

    Args:
        train_size: the first so many training samples; None for all.
        test_size: the same of the test samples.
        num_classes: of labels; None: what the attribute `classes` or `num_classes` of the data set says.

    Raises:
        ValueError: a part is no map-style data set, its items are not tuples of arrays, or num_classes is not known.
    """
    sizes = {"train_size": train_size, "test_size": test_size}
    parts: list[Samples] = []
    for part, (key, size) in zip((train, test), sizes.items(), strict=True):
        if not (hasattr(part, "__getitem__") and hasattr(part, "__len__")):
            raise ValueError(f"dataset={name} must have __getitem__ and __len__, got a {type(part).__name__}")
        if not len(part):
            raise ValueError(f"dataset={name} must have training and test samples, got none of {key.partition('_')[0]}")
        num = checked_size(name, key, size, len(part))
        parts.append(part if num == len(part) else _part(part, range(num)))
    first = _batch(name, parts[0], [0])
    sample, target = tuple(first[0].shape[1:]), first[-1]
    if target.dtype != torch.int64:
        return MapStyleDataset(name, parts[0], parts[1], ArrayShape(sample, target.numel()))
    classes = num_classes or getattr(train, "num_classes", None) or len(getattr(train, "classes", ()))
    if not classes:
        raise ValueError(f"dataset={name} must have an attribute num_classes or classes, or its file num_classes")
    is_image = len(sample) == 3 and sample[1] == sample[2] and first[0].is_floating_point()
    shape = ImageShape(sample[0], sample[1], classes) if is_image else ArrayShape(sample, classes)
    return MapStyleDataset(name, parts[0], parts[1], shape)


def _part(samples: Samples, indices: Sequence[int]) -> Samples:
    part: Samples = Subset(cast(Dataset[Any], samples), indices)
    return part


def _batch(name: str, samples: Samples, indices: Sequence[int]) -> Batch:
    """The samples with these indices, stacked; real numbers as float32, labels of whole numbers as int64.

    Raises:
        ValueError: they cannot be stacked, or are no tuples.
    """
    items = [samples[index] for index in indices]
    if not isinstance(items[0], tuple | list):
        raise ValueError(
            f"dataset={name}: a sample must be a tuple such as (image, label), got {type(items[0]).__name__}"
        )
    try:
        columns = default_collate(items)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"dataset={name}: samples cannot be stacked: {' '.join(str(error).split())}") from None
    if wrong := [type(column).__name__ for column in columns if not isinstance(column, Tensor)]:
        raise ValueError(f"dataset={name}: a sample must be a tuple of arrays and numbers, got a {wrong[0]} in it")
    batch = [column.float() if column.is_floating_point() else column for column in columns]
    if len(batch) > 1 and not batch[-1].is_floating_point():
        batch[-1] = batch[-1].long()
    return tuple(batch)


class MapStyleSource:
    """Batches of stacked samples. The global generators of torch, NumPy and Python are seeded for each batch."""

    is_random = True

    def __init__(self, name: str, train: Samples, test: Samples, device: torch.device) -> None:
        self._name, self._train, self._test, self._device = name, train, test, device

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        _seed_all(generator)
        return self._on_device(_batch(self._name, self._train, indices.tolist()))

    def test(self) -> Iterator[Batch]:
        _seed_all(None)
        for begin in range(0, len(self._test), TEST_BATCH):
            chosen = range(begin, min(begin + TEST_BATCH, len(self._test)))
            yield self._on_device(_batch(self._name, self._test, chosen))

    def _on_device(self, batch: Batch) -> Batch:
        return tuple(each.to(self._device) for each in batch)


def _seed_all(generator: np.random.Generator | None) -> None:
    """Seed the global generators; always alike without a generator."""
    seed = int((generator or stream(Purpose.AUGMENT, 0, 0, 0)).integers(2**32))
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
