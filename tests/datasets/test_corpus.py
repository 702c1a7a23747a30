"""A corpus of pieces is the pieces joined."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets import text_source
from syncline.datasets.text_source import Corpus

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
