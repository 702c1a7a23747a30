"""What the data sets of images and of arrays share: samples with a label or a target each, in two parts.

Legend: N samples for training, M for the test.
"""

from collections.abc import Sized
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from syncline.datasets.errors import checked_size
from syncline.datasets.validation import split


class Rows(Sized, Protocol):
    """An array of numpy or a tensor."""

    def __getitem__(self, rows: Any, /) -> Any: ...


_Array = TypeVar("_Array", bound=Rows)


class Labelled(NamedTuple, Generic[_Array]):
    """Samples [N, ...], and their labels or targets [N, ...]."""

    samples: _Array
    targets: _Array

    def chosen(self, rows: Any) -> "Labelled[_Array]":
        """These samples: a slice, or numbers int64."""
        return Labelled(self.samples[rows], self.targets[rows])


@dataclass(frozen=True)
class LabelledDataset(Generic[_Array]):
    """A data set whose samples are rows of arrays."""

    name: str
    train: Labelled[_Array]  # [N, ...]
    test: Labelled[_Array]  # [M, ...]

    @property
    def num_train(self) -> int:
        return len(self.train.targets)

    def first(self, train_size: int | None, test_size: int | None) -> Self:
        """Of each part the first so many samples; None keeps all. Raises ValueError: there are fewer."""
        num_train = checked_size(self.name, "train_size", train_size, self.num_train)
        num_test = checked_size(self.name, "test_size", test_size, len(self.test.targets))
        return replace(self, train=self.train.chosen(slice(num_train)), test=self.test.chosen(slice(num_test)))

    def with_validation(self, share: float) -> Self:
        """Numbers that were computed from all training samples, such as mean and std of images, stay."""
        rest, held = split(self.num_train, share)
        return replace(self, train=self.train.chosen(rest), test=self.train.chosen(held))
