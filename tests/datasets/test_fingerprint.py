"""Fingerprints: they depend on the content of all that is read, and not on its place."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets.image_files import arrays

from syncline.checksums import file_checksum
from syncline.config.datasets import DATASETS as OPTIONS
from syncline.datasets import digits, files
from syncline.datasets.files import (
    ABSENT,
    BILLION,
    BILLION_TEST,
    BILLION_TRAIN,
    PTB_MD5,
    PUBLISHED,
    SQUAD,
    fingerprint,
    parts,
)
from syncline.datasets.registry import DATASETS, load
from syncline.datasets.wordpiece import SPECIAL

REAL = Path(os.environ.get("SYNCLINE_DATA", "data"))
TEXT = b"the quick brown fox\n" * 40


def write_images(root: Path, name: str, shape: tuple[int, ...]) -> None:
    np.savez(root / f"{name}.npz", **arrays(shape, num_classes=2))


def write_criteo(root: Path) -> None:
    row = "\t".join(["1", *["2"] * 13, *["0000000a"] * 26])
    (root / "train.txt").write_text(f"{row}\n" * 40)


def write_squad(root: Path) -> None:
    asked = {"id": "0", "question": "what is it", "answers": [{"text": "a fox", "answer_start": 6}]}
    content = {"data": [{"paragraphs": [{"context": "it is a fox", "qas": [asked]}]}]}
    for names in SQUAD.values():
        (root / names[0]).write_text(json.dumps(content))
    (root / "vocab.txt").write_text("\n".join([*SPECIAL, *"abcdefghijklmnopqrstuvwxyz"]))


def write_ptb(root: Path) -> None:
    for name in PTB_MD5:
        (root / name).write_bytes(TEXT)


def write_billion(root: Path) -> None:
    for name in (f"{BILLION_TRAIN}/news.en-00001-of-00100", f"{BILLION_TRAIN}/news.en-00002-of-00100", BILLION_TEST):
        (root / BILLION / name).parent.mkdir(parents=True, exist_ok=True)
        (root / BILLION / name).write_bytes(TEXT)


def write_folder(root: Path) -> None:
    (root / "books" / "more").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "more/a.txt"):
        (root / "books" / name).write_bytes(TEXT)


def write_tokens(root: Path) -> None:
    for name in ("train.bin", "val.bin"):
        np.arange(100, dtype="<u2").tofile(root / name)


WRITERS: dict[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
    "arrays": (lambda root: write_images(root, "mine", (3, 8, 8)), {"path": "mine.npz"}),
    "billion": (write_billion, {"path": None, "length": 8}),
    "cifar10": (lambda root: write_images(root, "cifar10", (3, 32, 32)), {"download": False}),
    "cifar100": (lambda root: write_images(root, "cifar100", (3, 32, 32)), {"download": False}),
    "criteo": (write_criteo, {"file": None, "buckets": 8}),
    "mnist": (lambda root: write_images(root, "mnist", (28, 28)), {"download": False}),
    "ptb": (write_ptb, {"path": None, "length": 8}),
    "squad": (write_squad, {"vocab": "", "download": False, "max_length": 80, "stride": 0}),
    "text": (write_folder, {"path": "books", "length": 8}),
    "tokens": (write_tokens, {"path": "train.bin", "test_path": "val.bin", "vocab_size": 300, "length": 8}),
    "text8": (lambda root: (root / "text8").write_bytes(TEXT) and None, {"path": None, "length": 8}),
}
BROUGHT = ["digits", "glyphs10", "glyphs100", "mnist_digits", "pydoc_text"]  # by another package, or by Python


@pytest.fixture(params=sorted(WRITERS))
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Of a small data set that was written to `tmp_path`/data."""
    write, given = WRITERS[request.param]
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    return {"name": request.param, "root": str(tmp_path / "data"), **given}


def files_below(root: str) -> list[Path]:
    return sorted(path for path in Path(root).rglob("*") if path.is_file())


_opened: list[str] | None = None


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | bytes):
        _opened.append(os.fsdecode(arguments[0]))


sys.addaudithook(_on_audit)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The files that are opened within."""
    global _opened
    _opened = found = []
    try:
        yield found
    finally:
        _opened = None


def test_every_data_set_is_tested_here() -> None:
    assert {*WRITERS, *BROUGHT, "imagenet", "ctr_synthetic", "qa_synthetic"} == set(DATASETS)


def test_the_fingerprint_covers_all_that_a_loader_opens(options: dict[str, Any]) -> None:
    known = {file for part in parts(**options) for file in part.files}
    assert known == set(files_below(options["root"]))
    if options["name"] != "criteo":  # whose only file is read by Arrow, without an audit event
        with opened() as found:
            load(**options)
        assert {Path(path) for path in found if path.startswith(options["root"])} == known


def test_of_other_packages_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pydoc_data.topics", raising=False)
    digits._table.cache_clear()  # of earlier tests
    with opened() as found:
        load("digits")
        load("pydoc_text")
    (table,), (topics,) = (parts(name)[0].files for name in ("digits", "pydoc_text"))
    assert str(table) in found
    compiled = topics.parent / "__pycache__" / "topics."
    assert any(path == str(topics) or path.startswith(str(compiled)) for path in found)


def test_the_fonts_that_are_drawn_from_are_those_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import ImageFont

    from syncline.datasets.glyphs import templates

    opened_fonts, truetype = [], ImageFont.truetype
    monkeypatch.setattr(ImageFont, "truetype", lambda file, size: opened_fonts.append(file) or truetype(file, size))
    templates.__wrapped__("A", 8)
    assert tuple(opened_fonts) == parts("glyphs10")[0].files == parts("mnist_digits")[0].files


def test_other_content_of_any_file_is_another_fingerprint(options: dict[str, Any]) -> None:
    seen = [fingerprint(options)]
    for path in files_below(options["root"]):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # of the same length
        seen.append(fingerprint(options))
        path.write_bytes(content)
    assert fingerprint(options) == seen[0]
    assert len(set(seen)) == len(seen)
    assert not {PUBLISHED, ABSENT} & set(seen)


def test_the_same_content_at_another_place_and_time_is_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    here = fingerprint(options)
    for path in files_below(options["root"]):
        os.utime(path, (1, 1))
    assert fingerprint(options) == here
    moved = shutil.move(options["root"], tmp_path / "elsewhere")
    assert fingerprint({**options, "root": str(moved)}) == here


def test_a_slice_under_another_name_is_known_by_its_content(tmp_path: Path) -> None:
    asked = {"name": "squad", "root": str(tmp_path), "vocab": "", "download": False}
    write_squad(tmp_path)
    official = fingerprint(asked)
    for part in ("train", "dev"):
        (tmp_path / SQUAD[part][0]).rename(tmp_path / SQUAD[part][1])
    assert fingerprint(asked) == official
    assert fingerprint({**asked, "download": True}) != official, "then the official files are downloaded"


@pytest.mark.parametrize("name", sorted({*WRITERS, "digits"} - {"squad"}))  # whose sizes are spread over all questions
def test_sizes_take_the_first_samples(name: str, tmp_path: Path) -> None:
    write, given = WRITERS.get(name, (lambda root: None, {}))
    write(tmp_path)
    places = {"criteo": {"root": str(tmp_path), "cache": str(tmp_path / "cache")}, "digits": {}}
    options = {"name": name, **places.get(name, {"root": str(tmp_path)}), **given}
    whole, part = load(**options), load(**options, train_size=2, test_size=1)
    assert part.num_train == 2
    sources = [dataset.batch_source(torch.device("cpu"), OPTIONS[name].tasks[0]) for dataset in (whole, part)]
    for all_of, first in zip(*([s.take(np.arange(2), None), next(s.test())] for s in sources), strict=True):
        assert all(torch.equal(a.flatten()[: b.numel()], b.flatten()) for a, b in zip(all_of, first, strict=True))
    for key in ("train_size", "test_size"):
        with pytest.raises(ValueError, match=rf"^dataset {name}: {key}=9999, allowed: 1\.\.\d+, or null for all$"):
            load(**options, **{key: 9999})


# Before and after a download.


@pytest.mark.parametrize(
    ("names", "expected"),
    [("cifar10 cifar100 mnist ptb squad text8", PUBLISHED), ("billion criteo text imagenet", ABSENT)],
)
def test_absent_files_count_as_published_if_they_can_be_downloaded(names: str, expected: str, tmp_path: Path) -> None:
    for name in names.split():
        _, given = WRITERS.get(name, (None, {}))
        assert fingerprint({"name": name, "root": str(tmp_path), **given}) == expected, name


@pytest.mark.parametrize("name", ["ptb", "squad", "text8"])
def test_files_with_the_published_checksums_have_the_fingerprint_of_the_absent_ones(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, given = WRITERS[name]
    write(tmp_path)
    published = {file: part.md5 for part in parts(name, root=str(tmp_path), **given) for file in part.files}
    monkeypatch.setattr("syncline.datasets.files.file_checksum", published.__getitem__)
    assert fingerprint({"name": name, "root": str(tmp_path), **given}) == PUBLISHED


def test_one_existing_and_one_downloaded_file_have_the_fingerprint_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"name": "ptb", "root": str(tmp_path), "path": None}
    (tmp_path / "ptb.train.txt").write_bytes(TEXT)
    before = fingerprint(asked)
    monkeypatch.setitem(files.PTB_MD5, "ptb.test.txt", "0" * 32)
    assert fingerprint(asked) != before
    monkeypatch.undo()
    (tmp_path / "ptb.test.txt").write_bytes(TEXT)
    other = fingerprint(asked)
    assert PUBLISHED not in (before, other)
    assert other != before
    monkeypatch.setattr(
        "syncline.datasets.files.file_checksum",
        lambda path: PTB_MD5[path.name] if path.name == "ptb.test.txt" else file_checksum(path),
    )
    assert fingerprint(asked) == before


@pytest.mark.parametrize("name", ["ctr_synthetic", "qa_synthetic"])
def test_generated_data_read_nothing(name: str) -> None:
    assert fingerprint({"name": name, "vocab": "", "seed": 3}) == PUBLISHED


def test_a_vocabulary_of_ones_own_counts(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL))
    asked = {"name": "qa_synthetic", "vocab": str(tmp_path)}
    before = fingerprint(asked)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "fox"]))
    assert len({before, fingerprint(asked), PUBLISHED, ABSENT}) == 4
    assert fingerprint({**asked, "vocab": "/no/such/file"}) == ABSENT


@pytest.mark.parametrize("name", BROUGHT)
def test_other_files_of_another_package_are_other_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.datasets.files.file_checksum", lambda path: "0" * 32)
    assert fingerprint({"name": name}) not in (PUBLISHED, ABSENT)


@pytest.mark.parametrize("name", ["digits", "glyphs10", "glyphs100", "mnist_digits"])
def test_those_of_the_locked_requirements_are_the_published_ones(name: str) -> None:
    assert fingerprint({"name": name}) == PUBLISHED


# Photographs: too many to be read.


def photographs(root: Path) -> dict[str, Any]:
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (root / "imagenet" / part / name).mkdir(parents=True)
            (root / "imagenet" / part / name / "1.jpeg").write_bytes(b"12")
    return {"name": "imagenet", "root": str(root)}


def test_photographs_are_known_by_names_and_sizes(tmp_path: Path) -> None:
    asked = photographs(tmp_path)
    train = tmp_path / "imagenet" / "train"
    seen = [fingerprint(asked)]
    (train / "cat" / "1.jpeg").write_bytes(b"123")
    seen.append(fingerprint(asked))
    (train / "cat" / "1.jpeg").rename(train / "cat" / "2.jpeg")
    seen.append(fingerprint(asked))
    (train / "cat" / "2.jpeg").rename(train / "dog" / "2.jpeg")
    seen.append(fingerprint(asked))
    train.rename(tmp_path / "imagenet" / "other")
    assert fingerprint(asked) == ABSENT
    assert len({*seen, ABSENT, PUBLISHED}) == 6


# Real ones.


@pytest.mark.skipif(not (REAL / "ptb.train.txt").is_file(), reason=f"no Penn Treebank in {REAL}; see SYNCLINE_DATA")
def test_the_real_penn_treebank_has_the_published_checksums() -> None:
    assert fingerprint({"name": "ptb", "root": str(REAL), "path": None}) == PUBLISHED


@pytest.mark.skipif(not (REAL / "mnist.npz").is_file(), reason=f"no mnist.npz in {REAL}; see SYNCLINE_DATA")
def test_the_real_mnist_in_one_file_is_known_by_its_bytes() -> None:
    made = fingerprint({"name": "mnist", "root": str(REAL)})
    assert made not in (PUBLISHED, ABSENT)
    assert len(made) == 16
