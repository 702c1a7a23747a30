"""Map-style torch data sets of the user's own."""

import random
import re

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


class Noisy(Pairs):
    def __getitem__(self, index: int):
        x, y = super().__getitem__(index)
        return x + torch.rand(1).item() + np.random.rand() + random.random(), y


def test_what_samples_draw_from_global_generators_follows_from_the_batch() -> None:
    train = Noisy(*pairs(9, 2).tensors)
    source = map_style("mine", train, train).batch_source(CPU, "classification")
    taken = [source.take(np.array([1, 2]), np.random.default_rng(seed))[0] for seed in (5, 5, 6)]
    assert torch.equal(taken[0], taken[1])
    assert not torch.equal(taken[0], taken[2])


class Ragged(Pairs):
    def __getitem__(self, index: int):
        return torch.zeros(index + 1), 0


class Dictionaries(Pairs):
    def __getitem__(self, index: int):
        return {"x": 1}


class Texts(Pairs):
    def __getitem__(self, index: int):
        return "text", 1


@pytest.mark.parametrize(
    ("train", "line"),
    [
        (Ragged(*pairs(4, 2).tensors), "samples cannot be stacked"),
        (
            Dictionaries(*pairs(4, 2).tensors),
            "a sample must be a tuple such as (image, label), or the data set have a collate_fn",
        ),
        (Texts(*pairs(4, 2).tensors), "a sample must be a tuple of arrays and numbers, got a tuple in it"),
        (TensorDataset(*pairs(4, 2).tensors), "must have an attribute num_classes or classes, or its file num_classes"),
        (iter([]), "must have __getitem__ and __len__, got a list_iterator"),
    ],
    ids=lambda value: "",
)
def test_what_is_no_data_set_of_pairs_is_one_line(train, line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        map_style("mine", train, train).batch_source(CPU, "classification").take(np.array([0, 1]), None)
