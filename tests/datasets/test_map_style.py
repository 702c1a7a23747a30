"""Map-style torch data sets of the user's own; tests/checking/test_own_cases.py has further kinds."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from syncline.datasets.map_style import map_style
from syncline.shapes import ArrayShape, ImageShape

CPU = torch.device("cpu")


class Pairs(TensorDataset):
    num_classes = 4


def pairs(size: int, *shape: int) -> Pairs:
    numbers = torch.arange(size, dtype=torch.float64).view(-1, *[1] * len(shape))
    return Pairs(numbers.expand(size, *shape), torch.arange(size) % 4)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((3, 8, 8), ImageShape(3, 8, 4)), ((3, 8, 4), ArrayShape((3, 8, 4), 4)), ((5,), ArrayShape((5,), 4))],
)
def test_shape_order_and_types(shape: tuple[int, ...], expected: object) -> None:
    dataset = map_style("mine", pairs(9, *shape), pairs(5, *shape))
    assert (dataset.shape, dataset.num_train) == (expected, 9)
    source = dataset.batch_source(CPU, "classification")
    samples, labels = source.take(np.array([7, 2]), None)
    assert (samples.flatten(1)[:, 0].tolist(), labels.tolist()) == ([7.0, 2.0], [3, 2])
    assert (samples.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert torch.cat([y for _, y in source.test()]).tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.bool])
def test_labels_of_any_whole_numbers_are_labels(kind: torch.dtype) -> None:
    samples = Pairs(torch.zeros(4, 2, dtype=torch.uint8), torch.tensor([0, 1, 1, 0]).to(kind))
    dataset = map_style("mine", samples, samples)
    assert dataset.shape == ArrayShape((2,), 4)
    x, labels = dataset.batch_source(CPU, "classification").take(np.arange(4), None)
    assert (x.dtype, labels.dtype, labels.tolist()) == (torch.uint8, torch.int64, [0, 1, 1, 0])


@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_a_part_without_samples_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must have training and test samples, got none of t"):
        map_style("mine", *(pairs(size, 2) for size in sizes))


def test_sizes_take_the_first_samples_and_validation_splits_them() -> None:
    dataset = map_style("mine", pairs(40, 2), pairs(8, 2), train_size=20, test_size=3).with_validation(0.25)
    assert dataset.num_train == 15
    tested = torch.cat([x[:, 0] for x, _ in dataset.batch_source(CPU, "classification").test()]).tolist()
    trained = dataset.batch_source(CPU, "classification").take(np.arange(15), None)[0][:, 0].tolist()
    assert sorted(tested + trained) == list(range(20))


class Bad(Pairs):
    """The label of one sample is that of no class."""

    def __init__(self, size: int, place: int, label: int) -> None:
        super().__init__(*pairs(size, 2).tensors)
        self.place, self.label = place, label

    def __getitem__(self, index: int):
        x, y = super().__getitem__(index)
        return x, torch.tensor(self.label) if index == self.place else y


def test_a_label_of_no_class_is_told_with_its_sample() -> None:
    source = map_style("mine", Bad(9, 6, 13), Bad(5, 2, -1)).batch_source(CPU, "classification")
    source.take(np.array([0, 5]), None)
    with pytest.raises(ValueError, match=r"the label of training sample 6 must be a whole number in 0..3, .*; got 13"):
        source.take(np.array([0, 6]), None)
    with pytest.raises(ValueError, match=r"the label of test sample 2 .*; got -1"):
        list(source.test())
    ignored = map_style("mine", Bad(9, 6, -100), pairs(5, 2)).batch_source(CPU, "classification")
    assert ignored.take(np.array([6]), None)[1].tolist() == [-100]
    own = map_style("mine", Bad(9, 6, 255), pairs(5, 2)).batch_source(CPU, "own")
    assert own.take(np.array([6]), None)[1].tolist() == [255], "a task of one's own knows what it means"


class Fetched(Pairs):
    def __getitems__(self, indices):
        return [(torch.full((2,), float(index)), 1) for index in indices]


def test_samples_are_fetched_as_data_loader_does() -> None:
    made = Fetched(*pairs(4, 2).tensors)
    source = map_style("mine", made, made).batch_source(CPU, "classification")
    assert source.take(np.array([3]), None)[1].tolist() == [1]
