"""SQuAD v1.1: questions of readers on paragraphs of Wikipedia, each answered by a span of its paragraph."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from syncline.datasets.download import fetch
from syncline.datasets.errors import DataMissingError, checked_size
from syncline.datasets.files import SQUAD, SQUAD_MD5, squad_file
from syncline.datasets.question_windows import Question
from syncline.datasets.questions import QuestionDataset, question_dataset
from syncline.datasets.streams import Purpose, stream
from syncline.datasets.wordpiece import read_vocabulary, vocabulary_file

URL = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
TEST_FRACTION = 0.1  # of 90/10
SPLIT_SEED = 0  # fixed: the split belongs to the dataset, not to a run

Article = list[Question]


def squad(
    root: str,
    download: bool = False,
    split: str = "official",
    vocab: str = "",
    max_length: int = 384,
    stride: int = 128,
    train_size: int | None = None,
    test_size: int | None = None,
) -> QuestionDataset:
    """87,599 questions on 442 articles for training and 10,570 on 48 for the test, when the files hold all of them.

    Args:
        root: the folder of train-v1.1.json and dev-v1.1.json.
        download: whether to download missing files; only the official files count then.
        split: 'official', or '90/10' for both files together, split by whole articles: the test gets articles in a
            fixed random order up to a tenth of all questions.
        vocab: of the tokeniser, see `vocabulary_file`.
        max_length: tokens of a row, 68..512.
        stride: tokens that neighbouring windows of a text share.
        train_size: number of training questions, evenly spread over all; None for all.
        test_size: the same of the test questions.

    Raises:
        DataMissingError: the files or a vocabulary are missing, or the download failed.
        ValueError: a broken file, or fewer questions than asked for.

    Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ questions for machine comprehension of text"; max_length and stride
    of Devlin et al.'s code. The DS-Sync paper, section 4.1, splits "90 % for training, the rest 10 % for testing":
    likely the official split, which is 89 to 11, since its scores are those known for the official test.
    """
    vocabulary_path = vocabulary_file(vocab, root)
    train, test = (read_squad(_find(root, part, download)) for part in SQUAD)
    if split == "90/10":
        train, test = _deal_out(train + test)
    vocabulary = read_vocabulary(vocabulary_path)
    asked = _spread("train_size", train_size, [question for article in train for question in article])
    test_asked = _spread("test_size", test_size, [question for article in test for question in article])
    return question_dataset("squad", asked, test_asked, vocabulary, max_length, stride)


def read_squad(path: Path) -> list[Article]:
    """The articles of a file in SQuAD v1.1's form.

    Raises:
        ValueError: a file of another form.
    """
    try:
        articles = json.loads(path.read_text(encoding="utf-8"))["data"]
        return [
            [_question(asked, part["context"]) for part in article["paragraphs"] for asked in part["qas"]]
            for article in articles
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        fault = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: not SQuAD v1.1's JSON ({fault})") from None


def _question(asked: Mapping[str, Any], paragraph: str) -> Question:
    text, spans = asked["question"], tuple((answer["text"], answer["answer_start"]) for answer in asked["answers"])
    if not spans:
        raise ValueError(f"question {text!r} has no answer")
    for answer, start in spans:
        if not 0 <= start <= len(paragraph) - len(answer):
            raise ValueError(f"answer {answer!r} at {start} lies outside its text of {len(paragraph)} characters")
    return Question(text, paragraph, spans)


def _find(root: str, part: str, download: bool) -> Path:
    path = squad_file(root, part, download)
    if path is not None:
        return path
    official = Path(root) / SQUAD[part][0]
    if not download:
        raise DataMissingError(
            f"squad not found: {official} is not there, nor another name for it ({', '.join(SQUAD[part][1:])}); "
            "dataset.download=true fetches it, dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says where it is"
        )
    return fetch([URL + official.name], official, f"md5:{SQUAD_MD5[part]}", f"SQuAD v1.1, {part} part")


def _deal_out(articles: list[Article]) -> tuple[list[Article], list[Article]]:
    order = stream(Purpose.SQUAD_SPLIT, 0, 0, SPLIT_SEED).permutation(len(articles))
    ends = np.cumsum([len(articles[number]) for number in order])
    num_test = max(1, int(np.searchsorted(ends, TEST_FRACTION * ends[-1], side="right")))
    # In the order of the file, so that neighbours stay neighbours.
    train, test = np.sort(order[num_test:]), np.sort(order[:num_test])
    return [articles[number] for number in train], [articles[number] for number in test]


def _spread(field: str, size: int | None, questions: list[Question]) -> list[Question]:
    available = len(questions)
    size = checked_size("squad", field, size, available)
    return [questions[number * available // size] for number in range(size)]
