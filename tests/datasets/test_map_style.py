"""Map-style torch data sets of the user's own."""

import random
import re

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

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


def test_classes_that_differ_between_the_parts_are_refused() -> None:
    train, test = pairs(9, 2), pairs(5, 2)
    train.classes, test.classes = ["bird", "cat", "dog"], ["bird", "dog"]
    with pytest.raises(ValueError, match=r"must be the same in the same order, got bird, cat, dog and bird, dog$"):
        map_style("mine", train, test)


class Sentences(TensorDataset):
    """Ragged samples as mappings, and what pads them."""

    num_classes = 2

    def __getitem__(self, index: int):
        return {"tokens": torch.arange(index + 1), "label": index % 2}

    def collate_fn(self, items):
        tokens = [each["tokens"] for each in items]
        return torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True), torch.tensor([e["label"] for e in items])


def test_a_data_set_makes_its_batches_itself_also_in_part() -> None:
    made = Sentences(torch.zeros(4))
    tokens, labels = map_style("mine", made, made, 3).batch_source(CPU, "classification").take(np.array([1, 2]), None)
    assert (tokens.tolist(), labels.tolist()) == ([[0, 1, 0], [0, 1, 2]], [1, 0])


class Fetched(Pairs):
    def __getitems__(self, indices):
        return [(torch.full((2,), float(index)), 1) for index in indices]


def test_samples_are_fetched_as_data_loader_does() -> None:
    made = Fetched(*pairs(4, 2).tensors)
    source = map_style("mine", made, made).batch_source(CPU, "classification")
    assert source.take(np.array([3]), None)[1].tolist() == [1]


def test_held_out_samples_that_would_be_augmented_are_refused_unless_they_are_read_otherwise() -> None:
    noisy, plain = Noisy(*pairs(9, 2).tensors), pairs(9, 2)
    with pytest.raises(ValueError, match=r"dataset\.validation would evaluate augmented samples; .*`transform`"):
        map_style("mine", noisy, plain).with_validation(0.3)
    held = map_style("mine", noisy, plain, held_out=plain).with_validation(0.3)
    tested = torch.cat([x[:, 0] for x, _ in held.batch_source(CPU, "classification").test()])
    assert set(tested.tolist()) <= set(range(9)), "without noise"


class Growing(Pairs):
    size = 4

    def __len__(self) -> int:
        return self.size


def test_a_length_that_changes_is_told() -> None:
    made = Growing(*pairs(9, 2).tensors)
    source = map_style("mine", made, made).batch_source(CPU, "classification")
    made.size = 5
    with pytest.raises(ValueError, match="must keep its length while it is read, got 4 and 5"):
        source.take(np.array([0]), None)


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2), 1

    def __len__(self) -> int:
        return 1


def test_an_iterable_data_set_is_one_line_also_with_a_length() -> None:
    with pytest.raises(ValueError, match="must have __getitem__ and __len__, got a Stream"):
        map_style("mine", Stream(), Stream())
