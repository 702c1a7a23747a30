"""A corpus of pieces is the pieces joined; every byte is predicted once, in an epoch and in the test's streams."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets import text_source
from syncline.datasets.registry import load
from syncline.datasets.text_source import Corpus, TextDataset, TextSource
from syncline.shapes import TextShape

CPU = torch.device("cpu")
pieces = st.lists(st.binary(max_size=12), max_size=6)
LIVELY = st.text(st.sampled_from(" \n\t\rabé漢😀\u00a0"), max_size=40)  # white space, and characters of 1 to 4 bytes


def corpus_of(parts: list[bytes]) -> Corpus:
    return Corpus([np.frombuffer(part, np.uint8) for part in parts])


def whole(corpus: Corpus) -> bytes:
    return corpus.windows(np.array([0]), len(corpus)).tobytes()


@given(pieces, st.lists(st.integers(0, 70), max_size=8), st.integers(0, 20))
def test_windows_are_slices_and_zeros_after_the_end(parts: list[bytes], begins: list[int], length: int) -> None:
    joined = b"".join(parts)
    windows = corpus_of(parts).windows(np.array(begins, np.int64), length)
    assert windows.shape == (len(begins), length)
    for window, begin in zip(windows, begins, strict=True):
        assert window.tobytes() == joined[begin : begin + length].ljust(length, b"\0")


@given(pieces, st.integers(0, 80), st.integers(0, 80))
def test_a_part_is_a_slice(parts: list[bytes], begin: int, end: int) -> None:
    part = corpus_of(parts).part(begin, end)
    assert whole(part) == b"".join(parts)[begin:end]
    assert len(part) == len(b"".join(parts)[begin:end])


@given(LIVELY, st.integers(1, 9), st.data())
def test_characters_and_words_are_those_of_the_decoded_text(text: str, stretch: int, data: st.DataObject) -> None:
    raw = b"." + text.encode()  # one byte that nothing predicts
    cut = data.draw(st.integers(0, len(raw)))
    corpus = corpus_of([raw[:cut], raw[cut:]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_source, "COUNTED_BYTES", stretch)
        assert corpus.characters() == len(text)
        # bytes.split() splits at ASCII white space only. A single first byte is no word: nothing predicts it.
        lone = raw[1:2] in (b" ", b"\n", b"\t", b"\r", b"")
        assert corpus.words() == len(raw.split()) - lone + raw.count(b"\n")


def test_files_are_mapped_and_empty_ones_are_nothing(tmp_path: Path) -> None:
    for name, content in (("a", b"one "), ("b", b""), ("c", b"two")):
        (tmp_path / name).write_bytes(content)
    assert whole(Corpus.of_files([tmp_path / "a", tmp_path / "b", tmp_path / "c"])) == b"one two"
    assert len(Corpus.of_files([tmp_path / "b"])) == 0


# Data sets.


def dataset_of(train: bytes, test: bytes, length: int) -> TextDataset:
    halves = ([part[: len(part) // 2], part[len(part) // 2 :]] for part in (train, test))
    return TextDataset("some", *map(corpus_of, halves), length)


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
    assert dataset.shape == TextShape(256, length)
    assert inputs.shape == targets.shape == (dataset.num_train, length)
    used = dataset.num_train * length
    assert len(train) - 1 - used < length
    assert bytes(inputs.flatten().tolist()) == train[:used]
    assert bytes(targets.flatten().tolist()) == train[1 : used + 1]


@pytest.mark.parametrize("vocab_size", [50_000, 70_000])
def test_tokens_are_read_from_files_of_16_or_32_bits(vocab_size: int, tmp_path: Path) -> None:
    kind = "<u2" if vocab_size == 50_000 else "<u4"
    tokens = np.random.default_rng(0).integers(vocab_size, size=3_000)
    tokens[:2] = vocab_size - 1
    for name, part in (("train.bin", tokens[:2_000]), ("val.bin", tokens[2_000:])):
        part.astype(kind).tofile(tmp_path / name)
    dataset = load("tokens", root=str(tmp_path), path="train.bin", test_path="val.bin", vocab_size=vocab_size, length=7)
    assert dataset.shape == TextShape(vocab_size, 7)
    source = dataset.batch_source(CPU, "next_token")
    inputs, targets = source.take(np.arange(dataset.num_train), None)
    assert np.array_equal(inputs.flatten(), tokens[: 7 * dataset.num_train])
    assert np.array_equal(targets.flatten(), tokens[1 : 7 * dataset.num_train + 1])
    predicted = torch.cat([targets.flatten() for _, targets in source.test()])
    assert sorted(predicted[predicted >= 0].tolist()) == sorted(tokens[2_001:].tolist())
    smaller = load("tokens", root=str(tmp_path), path="train.bin", test_path="val.bin", vocab_size=vocab_size - 1)
    with pytest.raises(ValueError, match=f"below dataset.vocab_size = {vocab_size - 1}, got {vocab_size - 1}"):
        smaller.batch_source(CPU, "next_token").take(np.arange(1), None)


def test_half_a_token_is_refused(tmp_path: Path) -> None:
    for name in ("train.bin", "val.bin"):
        (tmp_path / name).write_bytes(b"abcde")
    with pytest.raises(ValueError, match=r"train\.bin: must hold tokens of 2 bytes each, got 5 bytes"):
        load("tokens", root=str(tmp_path), path="train.bin", test_path="val.bin", vocab_size=9)


def test_a_test_of_long_windows_or_many_symbols_has_fewer_streams(tmp_path: Path) -> None:
    """A window is as long as those of training, and a batch has no more logits than fit."""
    for name in ("train.bin", "val.bin"):
        np.zeros(100_000, "<u2").tofile(tmp_path / name)
    for vocab_size, length, streams in ((300, 8, 64), (300, 512, 64), (50_000, 512, 2), (50_000, 4_000, 1)):
        about = {"root": str(tmp_path), "path": "train.bin", "test_path": "val.bin", "vocab_size": vocab_size}
        first = next(load("tokens", length=length, **about).batch_source(CPU, "next_token").test())[0]
        assert first.shape == (streams, max(256, length))


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
    assert all(inputs.shape == targets.shape and inputs.shape[1] <= max(piece, 2) for inputs, targets in batches)
    inputs = torch.cat([inputs for inputs, _ in batches], dim=1)  # row b: all of stream b
    targets = torch.cat([targets for _, targets in batches], dim=1)
    assert inputs.shape[0] <= streams
    counted = targets >= 0
    assert bytes(targets[counted].tolist()) == test[1:]
    assert bytes(inputs[counted].tolist()) == test[:-1]
    assert set(targets[~counted].tolist()) <= {-1}
    ends = counted.sum(dim=1)
    assert all(bool(row[:end].all()) for row, end in zip(counted, ends.tolist(), strict=True))  # padding is last
