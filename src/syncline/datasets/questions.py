"""A loaded data set of questions on texts. Legend: B windows of a batch, L tokens of a row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.batch_source import Batch
from syncline.datasets.question_windows import Question, Windows, cut
from syncline.datasets.squad_score import predict, score
from syncline.datasets.validation import split
from syncline.datasets.wordpiece import tokenizer
from syncline.shapes import QuestionShape

TEST_BATCH = 32  # windows


@dataclass(frozen=True, slots=True)
class QuestionDataset:
    """Questions split into windows, each a sample; created by `question_dataset`."""

    name: str
    shape: QuestionShape
    train: Windows
    train_questions: Sequence[Question]
    test: Windows
    test_questions: Sequence[Question]

    @property
    def num_train(self) -> int:
        return len(self.train)

    def with_validation(self, share: float) -> "QuestionDataset":
        """Whole texts with all their questions are held out; the share is one of the texts."""
        texts = self.train.text_of
        _, held_texts = split(int(texts.max()) + 1, share)
        is_held = np.isin(texts, held_texts)
        rest, held = np.flatnonzero(~is_held), np.flatnonzero(is_held)
        train, test = (self.train.of_questions(numbers) for numbers in (rest, held))
        train_questions, test_questions = (
            [self.train_questions[number] for number in part.tolist()] for part in (rest, held)
        )
        return QuestionDataset(self.name, self.shape, train, train_questions, test, test_questions)

    def batch_source(self, device: torch.device, task: str) -> "QuestionSource":
        assert task == "qa", task
        return QuestionSource(self, device)


class QuestionSource:
    """Batches of windows, each as long as its longest row.

    Padding up to max_length would give the same losses up to rounding, since masked tokens have no effect, but other
    draws of dropout. With 384 tokens at most, rows of SQuAD have 176 on average.
    """

    is_random = False

    def __init__(self, dataset: QuestionDataset, device: torch.device) -> None:
        self._dataset, self._device = dataset, device

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        return self._batch(self._dataset.train, indices)

    def test(self) -> Iterator[Batch]:
        windows = self._dataset.test
        for start in range(0, len(windows), TEST_BATCH):
            yield self._batch(windows, np.arange(start, min(start + TEST_BATCH, len(windows))))

    def score(self, firsts: Tensor, lasts: Tensor) -> tuple[float, float]:
        """The official exact match and F1, fractions of the questions.

        Args:
            firsts, lasts: logits float [W, L] of the answer's first and last token, for all test rows in order.
        """
        questions = self._dataset.test_questions
        return score(predict(self._dataset.test, questions, firsts, lasts), questions)

    def _batch(self, windows: Windows, indices: npt.NDArray[np.int64]) -> Batch:
        answers = windows.answers[indices].astype(np.int64)
        arrays = (*windows.rows(indices), answers[:, 0].copy(), answers[:, 1].copy())
        return tuple(torch.from_numpy(array).to(self._device) for array in arrays)


def question_dataset(
    name: str,
    train: Sequence[Question],
    test: Sequence[Question],
    vocabulary: Sequence[str],
    max_length: int,
    stride: int,
) -> QuestionDataset:
    """Tokenise and split both parts; arguments as for `wordpiece.tokenizer` and `question_windows.cut`."""
    pieces = tokenizer(vocabulary)
    windows, test_windows = (cut(part, pieces, max_length, stride) for part in (train, test))
    return QuestionDataset(name, QuestionShape(len(vocabulary), max_length), windows, train, test_windows, test)
