"""Every byte is predicted once: in an epoch of training, and in the test's streams."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets import text_source
from syncline.datasets.text_source import Corpus, TextDataset, TextSource
from syncline.shapes import TextShape

CPU = torch.device("cpu")


def dataset_of(train: bytes, test: bytes, length: int) -> TextDataset:
    def corpus(content: bytes) -> Corpus:
        half = len(content) // 2
        return Corpus([np.frombuffer(content[:half], np.uint8), np.frombuffer(content[half:], np.uint8)])

    return TextDataset("some", corpus(train), corpus(test), length)


def source_of(train: bytes, test: bytes, length: int) -> TextSource:
    return dataset_of(train, test, length).batch_source(CPU, "language")


@given(st.binary(min_size=2, max_size=80), st.integers(1, 10))
def test_an_epoch_predicts_every_byte_but_the_first_once_up_to_a_remainder(train: bytes, length: int) -> None:
    if len(train) <= length:
        with pytest.raises(ValueError, match=f"where {length + 1} and 2 are the least"):
            dataset_of(train, b"ab", length)
        return
    dataset = dataset_of(train, b"ab", length)
    source = dataset.batch_source(CPU, "language")
    inputs, targets = source.take(np.arange(dataset.num_train), None)
    assert inputs.shape == targets.shape == (dataset.num_train, length)
    used = dataset.num_train * length
    assert len(train) - 1 - used < length
    assert bytes(inputs.flatten().tolist()) == train[:used]
    assert bytes(targets.flatten().tolist()) == train[1 : used + 1]


def test_samples_come_in_the_order_asked_for() -> None:
    inputs, targets = source_of(b"abcdefghij", b"ab", 3).take(np.array([2, 0, 2]), None)
    assert [bytes(row) for row in inputs.tolist()] == [b"ghi", b"abc", b"ghi"]
    assert [bytes(row) for row in targets.tolist()] == [b"hij", b"bcd", b"hij"]
    assert inputs.dtype == targets.dtype == torch.int64


@given(st.binary(min_size=2, max_size=200), st.integers(1, 7), st.integers(1, 20), st.integers(1, 9))
def test_streams_predict_every_test_byte_but_the_first_once(
    test: bytes, streams: int, shortest: int, piece: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_source, "MAX_STREAMS", streams)
        patch.setattr(text_source, "MIN_STREAM", shortest)
        patch.setattr(text_source, "PIECE", piece)
        batches = list(source_of(b"abcd", test, 2).test())
    assert len({len(inputs) for inputs, _ in batches}) == 1  # a state can be carried over
    assert all(inputs.shape == targets.shape and inputs.shape[1] <= piece for inputs, targets in batches)
    inputs = torch.cat([inputs for inputs, _ in batches], dim=1)  # row b: all of stream b
    targets = torch.cat([targets for _, targets in batches], dim=1)
    assert inputs.shape[0] <= streams
    counted = targets >= 0
    assert bytes(targets[counted].tolist()) == test[1:]
    assert bytes(inputs[counted].tolist()) == test[:-1]
    assert set(targets[~counted].tolist()) <= {-1}
    ends = counted.sum(dim=1)
    assert all(bool(row[:end].all()) for row, end in zip(counted, ends.tolist(), strict=True))  # padding is last


def test_characters_and_words_of_the_test_are_counted() -> None:
    test = "Größe zählt.\nNicht?\n".encode()
    source = source_of(b"abcd", test, 2)
    assert (source.characters, source.words) == (19, 3 + 2)
    assert sum(int((targets >= 0).sum()) for _, targets in source.test()) == 22
    assert dataset_of(b"abcd", test, 2).shape == TextShape(256, 2)
    assert source.is_random is False
