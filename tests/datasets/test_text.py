"""Texts by name: their files, their parts, and the errors if they are absent."""

import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from web_server import serving

from syncline.datasets import text as text_module
from syncline.datasets.errors import DataMissingError
from syncline.datasets.text import BILLION, pydoc_text, text
from syncline.datasets.text_source import Corpus

REAL = Path(os.environ.get("SYNCLINE_DATA", "data"))
LETTERS = bytes(97 + i % 26 for i in range(1000))


def content(corpus: Corpus) -> bytes:
    return corpus.windows(np.array([0]), len(corpus)).tobytes()


def test_text8_keeps_its_usual_parts(tmp_path: Path) -> None:
    (tmp_path / "text8").write_bytes(LETTERS)
    dataset = text("text8", str(tmp_path), length=10)
    assert content(dataset.train) == LETTERS[:900]
    assert content(dataset.test) == LETTERS[950:]
    assert dataset.num_train == 89
    (tmp_path / "slice").write_bytes(LETTERS[:100])
    assert content(text("text8", str(tmp_path), path="slice", length=10).test) == LETTERS[95:100]


def test_ptb_has_a_file_for_each_part(tmp_path: Path) -> None:
    (tmp_path / "ptb.train.txt").write_bytes(LETTERS)
    (tmp_path / "ptb.test.txt").write_bytes(b" no it was n't\n")
    dataset = text("ptb", str(tmp_path), length=10)
    assert content(dataset.train) == LETTERS
    assert content(dataset.test) == b" no it was n't\n"
    assert dataset.batch_source(torch.device("cpu"), "language").words == 5


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def write_billion(root: Path) -> None:
    for folder, name, words in (
        ("training", "news.en-00002-of-00100", b"second\n"),
        ("training", "news.en-00001-of-00100", b"first\n"),
        ("training", "README", b"not text"),
        ("heldout", "news.en.heldout-00000-of-00050", b"tested\n"),
        ("heldout", "news.en.heldout-00001-of-00050", b"kept apart\n"),
    ):
        place = root / BILLION / f"{folder}-monolingual.tokenized.shuffled"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(words)


def test_one_billion_words_are_in_many_files(tmp_path: Path) -> None:
    write_billion(tmp_path)
    dataset = text("billion", str(tmp_path), length=4)
    assert content(dataset.train) == b"first\nsecond\n"
    assert content(dataset.test) == b"tested\n"
    inputs, targets = dataset.batch_source(torch.device("cpu"), "language").take(np.array([1]), None)
    assert (bytes(inputs[0].tolist()), bytes(targets[0].tolist())) == (b"t\nse", b"\nsec")  # from one file to the next


def test_gigabytes_of_text_take_no_memory(tmp_path: Path) -> None:
    write_billion(tmp_path)
    large = tmp_path / BILLION / "training-monolingual.tokenized.shuffled" / "news.en-00001-of-00100"
    with large.open("wb") as file:
        file.truncate(5 << 30)  # a sparse file: it takes no disk space either
    before = resident_bytes()
    dataset = text("billion", str(tmp_path))
    assert dataset.num_train == ((5 << 30) + 7 - 1) // 128
    dataset.batch_source(torch.device("cpu"), "language").take(np.arange(0, dataset.num_train, 1 << 20), None)
    assert resident_bytes() - before < 50 << 20


def test_any_folder_is_a_text_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name, words in (("b.txt", b"4" * 10), ("a/z.md", b"0123"), ("a/.hidden", b"!"), (".git/x", b"!"), ("c", b"89")):
        (tmp_path / "notes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notes" / name).write_bytes(words)
    dataset = text("text", str(tmp_path), path="notes", length=2)
    assert content(dataset.train) == b"01234444444444"
    assert content(dataset.test) == b"89"
    with pytest.raises(
        ValueError, match=r"^dataset text: 3 bytes for training and 1 for the test, where 3 and 2 are the least$"
    ):
        text("text", str(tmp_path), path="notes/a/z.md", length=2)


def test_an_incomplete_text_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "ptb.train.txt").write_bytes(LETTERS)
    with pytest.raises(DataMissingError, match=r"no file .*ptb\.test\.txt"):
        text("ptb", str(tmp_path))
    write_billion(tmp_path)
    heldout = tmp_path / BILLION / "heldout-monolingual.tokenized.shuffled" / "news.en.heldout-00000-of-00050"
    heldout.unlink()
    with pytest.raises(DataMissingError, match="heldout-00000"):
        text("billion", str(tmp_path))


def test_text8_is_downloaded_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    packed, root = io.BytesIO(), tmp_path / "new"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("text8", LETTERS)
    monkeypatch.setattr(text_module, "TEXT8_HASH", "sha256:" + hashlib.sha256(packed.getvalue()).hexdigest())
    with serving({"text8.zip": packed.getvalue()}) as site:
        monkeypatch.setattr(text_module, "TEXT8_URLS", (f"{site.url}text8.zip",))
        for _ in range(2):
            assert content(text("text8", str(root), length=10, download=True).train) == LETTERS[:900]
    assert site.asked == ["text8.zip"]
    assert sorted(path.name for path in root.iterdir()) == ["text8", "text8.zip"]


def test_ptb_is_downloaded_on_request_and_only_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving({"ptb.train.txt": LETTERS, "ptb.test.txt": LETTERS}) as site:
        monkeypatch.setattr(text_module, "PTB_URL", site.url)
        with pytest.raises(DataMissingError):  # not the published checksum
            text("ptb", str(tmp_path), download=True)
        assert not (tmp_path / "ptb.train.txt").exists()
        hashes = dict.fromkeys(text_module.PTB_MD5, hashlib.md5(LETTERS).hexdigest())
        monkeypatch.setattr(text_module, "PTB_MD5", hashes)
        assert content(text("ptb", str(tmp_path), length=10, download=True).test) == LETTERS


def test_python_documents_itself() -> None:
    dataset = pydoc_text()
    assert (dataset.num_train, len(dataset.train), len(dataset.test)) == (2500, 320_001, 36_001)
    train, test = content(dataset.train).decode(errors="replace"), content(dataset.test).decode(errors="replace")
    assert train.startswith('The "assert" statement\n')
    # No paragraph of the test part can be learned by heart.
    paragraphs = [part for part in test.split("\n\n")[1:-1] if len(part) > 40]
    assert len(paragraphs) > 50
    assert not [part for part in paragraphs if f"\n\n{part}\n\n" in train]
    assert content(dataset.first(10, None).train) == content(dataset.train)[:1281]


def test_a_python_without_documentation_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DataMissingError, match="has 0 bytes of text, 356002 are needed") as caught:
        pydoc_text()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(
    not (REAL / "ptb.test.txt").is_file(), reason=f"no Penn Treebank in {REAL}; SYNCLINE_DATA names its folder"
)
def test_the_real_penn_treebank_has_its_known_size() -> None:
    dataset = text("ptb", str(REAL))
    source = dataset.batch_source(torch.device("cpu"), "language")
    assert (len(dataset.train), len(dataset.test)) == (5_101_618, 449_945)
    assert (source.words, source.characters) == (82_430, 449_944)  # 78,669 words and 3,761 ends of sentences
