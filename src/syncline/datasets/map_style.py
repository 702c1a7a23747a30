"""A pair of map-style torch data sets (`__getitem__`, `__len__`) of the user's own, as a data set of ours."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, default_collate

from syncline.datasets.arrays import check_targets, shape_of
from syncline.datasets.batch_source import IGNORED_LABEL, Batch, BatchSource
from syncline.datasets.errors import checked_size
from syncline.datasets.streams import Purpose, seed_global_generators, stream
from syncline.datasets.validation import split
from syncline.shapes import ArrayShape, ImageShape
from syncline.targets import fault

TEST_BATCH = 250
FEW = 8  # samples
MOST_TOLD = 100  # letters of a list of classes


class Samples(Sized, Protocol):
    """A map-style data set: an item is a tuple of arrays, tensors or numbers, the last one its label or target.

    With an attribute `collate_fn`, as `DataLoader` takes it, items may be anything of which that makes such a tuple.
    """

    def __getitem__(self, index: int) -> Any: ...


@dataclass(frozen=True)
class MapStyleDataset:
    """Samples are read one by one whenever they are needed."""

    name: str
    train: Samples
    testing: Samples
    shape: ImageShape | ArrayShape
    held_out: Samples | None = None  # the training samples as the test reads them; None: as training does

    @property
    def num_train(self) -> int:
        return len(self.train)

    def with_validation(self, share: float) -> "MapStyleDataset":
        """Raises ValueError: training samples are augmented, and the data set does not say how else to read them."""
        if self.held_out is None and _is_random(self.name, self.train):
            raise ValueError(
                f"dataset={self.name}: dataset.validation would evaluate augmented samples; with arguments in `train: "
                "{...}` and `test: {...}` of its file, held-out samples are read with the test's `transform`"
            )
        rest, held = split(self.num_train, share)
        testing = _part(self.train if self.held_out is None else self.held_out, held.tolist())
        return replace(self, train=_part(self.train, rest.tolist()), testing=testing)

    def batch_source(self, device: torch.device, task: str) -> BatchSource:
        """Raises ValueError: the targets are not what the task learns."""
        targets = _batch(self.name, self.train, [0])[-1]
        check_targets(self.name, task, targets)
        num_classes = self.shape.num_classes if isinstance(self.shape, ImageShape) else self.shape.num_outputs
        return MapStyleSource(
            self.name, self.train, self.testing, device, num_classes if task == "classification" else None
        )


def map_style(
    name: str,
    train: Samples,
    test: Samples,
    train_size: int | None = None,
    test_size: int | None = None,
    num_classes: int | None = None,
    held_out: Samples | None = None,
) -> MapStyleDataset:
    """The data set of this pair.

    Args:
        train_size: the first so many training samples; None for all.
        test_size: the same of the test samples.
        num_classes: of labels; None: what the attribute `classes` or `num_classes` of the data set says.
        held_out: see MapStyleDataset.

    Raises:
        ValueError: a part is no map-style data set, its items are not tuples of arrays, num_classes is not known, or
            the classes of the parts differ.
    """
    sizes = {"train_size": train_size, "test_size": test_size}
    parts: list[Samples] = []
    for part, (key, size) in zip((train, test), sizes.items(), strict=True):
        is_iterable = isinstance(part, IterableDataset) or not hasattr(part, "__getitem__")
        if is_iterable or not hasattr(part, "__len__"):
            raise ValueError(f"dataset={name} must have __getitem__ and __len__, got a {type(part).__name__}")
        if not len(part):
            raise ValueError(f"dataset={name} must have training and test samples, got none of {key.partition('_')[0]}")
        num = checked_size(name, key, size, len(part))
        parts.append(part if num == len(part) else _part(part, range(num)))
    for attribute in ("class_to_idx", "classes"):
        of_train, of_test = (getattr(part, attribute, None) for part in (train, test))
        if of_train is not None and of_test is not None and not _are_alike(of_train, of_test):
            raise ValueError(
                f"dataset={name}: the classes of training and test must be the same in the same order, got "
                f"{_told(of_train)} and {_told(of_test)}"
            )
    first = _batch(name, parts[0], [0])
    sample, target = tuple(first[0].shape[1:]), first[-1]
    if target.dtype != torch.int64 or target.numel() > 1:
        return MapStyleDataset(name, parts[0], parts[1], ArrayShape(sample, target.numel()), held_out)
    classes = num_classes or _number_of(getattr(train, "num_classes", None), getattr(train, "classes", None))
    if not classes:
        raise ValueError(f"dataset={name} must have an attribute num_classes or classes, or its file num_classes")
    shape = shape_of(first[0][0], classes) or ArrayShape(sample, classes)
    return MapStyleDataset(name, parts[0], parts[1], shape, held_out)


def _are_alike(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray | Tensor) else bool(one == other)


def _told(classes: Any) -> str:
    text = ", ".join(map(str, classes)) if isinstance(classes, Iterable) else str(classes)
    return text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]}..."


def _number_of(*found: Any) -> int:
    """The first number among them, or the length of the first list; 0 if there is none."""
    for each in found:
        if isinstance(each, int | np.integer | Tensor) and not isinstance(each, bool):
            return int(each)
        if isinstance(each, Sized):
            return len(each)
    return 0


def _is_random(name: str, samples: Samples) -> bool:
    """Whether the first samples are others under other seeds."""
    found = []
    for seed in (0, 1):
        seed_global_generators(seed)
        found.append(_batch(name, samples, range(min(FEW, len(samples)))))
    return any(not torch.equal(one, other) for one, other in zip(*found, strict=True))


def _part(samples: Samples, indices: Sequence[int]) -> Samples:
    part: Samples = Subset(cast(Dataset[Any], samples), indices)
    return part


def _batch(name: str, samples: Samples, indices: Sequence[int]) -> Batch:
    """The samples with these indices, stacked; real numbers as float32, labels of whole numbers as int64.

    Raises:
        ValueError: they cannot be stacked, or are no tuples.
    """
    many = getattr(samples, "__getitems__", None)  # as DataLoader fetches
    items = many(list(indices)) if callable(many) else [samples[index] for index in indices]
    collate = _collate_of(samples)
    if collate is None and not isinstance(items[0], tuple | list):
        rule = "must be a tuple such as (image, label), or the data set have a collate_fn that makes one of several"
        raise ValueError(f"dataset={name}: a sample {rule}; got {type(items[0]).__name__}")
    try:
        columns = (collate or default_collate)(items)
    except (RuntimeError, TypeError) as error:
        if (told := fault(error)) is not None:
            raise ValueError(f"dataset={name}: {told}") from None
        rule = "a collate_fn of the data set could pad them"
        raise ValueError(f"dataset={name}: samples cannot be stacked: {' '.join(str(error).split())}; {rule}") from None
    if not isinstance(columns, tuple | list):
        raise ValueError(f"dataset={name}: collate_fn must return a tuple, got {type(columns).__name__}")
    if wrong := [type(column).__name__ for column in columns if not isinstance(column, Tensor)]:
        raise ValueError(f"dataset={name}: a sample must be a tuple of arrays and numbers, got a {wrong[0]} in it")
    batch = [column.float() if column.is_floating_point() else column for column in columns]
    if len(batch) > 1 and not batch[-1].is_floating_point():
        batch[-1] = batch[-1].long()
    return tuple(batch)


def _collate_of(samples: Any) -> Callable[[list[Any]], Any] | None:
    """The data set's own way to make a batch of items; that of a part is that of the whole."""
    while isinstance(samples, Subset):
        samples = samples.dataset
    found = getattr(samples, "collate_fn", None)
    return found if callable(found) else None


class MapStyleSource:
    """Batches of stacked samples. The global generators of torch, NumPy and Python are seeded for each batch.

    Args:
        num_classes: labels are checked to be of one of them, or the ignored one; None: targets are not checked.
    """

    is_random = True

    def __init__(
        self, name: str, train: Samples, test: Samples, device: torch.device, num_classes: int | None = None
    ) -> None:
        self._name, self._train, self._test, self._device = name, train, test, device
        self._num_classes, self._num_train = num_classes, len(train)

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        _seed_all(generator)
        return self._checked(self._train, "training", indices.tolist())

    def test(self) -> Iterator[Batch]:
        _seed_all(None)
        for begin in range(0, len(self._test), TEST_BATCH):
            yield self._checked(self._test, "test", range(begin, min(begin + TEST_BATCH, len(self._test))))

    def _checked(self, samples: Samples, part: str, indices: Sequence[int]) -> Batch:
        """The batch, on the device. Raises ValueError: a label is of no class, or the data set's length changes."""
        batch = _batch(self._name, samples, indices)
        if (num := len(self._train)) != self._num_train:
            raise ValueError(
                f"dataset={self._name} must keep its length while it is read, got {self._num_train} and {num}"
            )
        if self._num_classes is not None:
            labels = batch[-1]
            wrong = ((labels < 0) | (labels >= self._num_classes)) & (labels != IGNORED_LABEL)
            if labels.dtype != torch.int64 or bool(wrong.any()):
                place = tuple(wrong.nonzero()[0].tolist()) if bool(wrong.any()) else (0,)
                rule = f"must be a whole number in 0..{self._num_classes - 1}, or {IGNORED_LABEL} to be ignored"
                which = f"{part} sample {indices[place[0]]}"
                raise ValueError(f"dataset={self._name}: the label of {which} {rule}; got {labels[place].tolist()}")
        return tuple(each.to(self._device) for each in batch)


def _seed_all(generator: np.random.Generator | None) -> None:
    """Seed the global generators; always alike without a generator."""
    seed_global_generators(int((generator or stream(Purpose.AUGMENT, 0, 0, 0)).integers(2**32)))
