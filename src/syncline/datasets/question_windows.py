"""Questions and their texts as rows of tokens: [CLS] question [SEP] window of the text [SEP].

Legend: T tokens of all texts together, Q questions, W windows, B rows of a batch, L tokens of a row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from syncline.datasets.wordpiece import CLS, SEP

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

MAX_QUESTION = 64  # tokens; longer questions are truncated, as in the code of BERT's authors
NUM_SPECIAL = 3  # tokens of a row that are neither question nor text


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    paragraph: str
    answers: tuple[tuple[str, int], ...]  # each with its first character in the paragraph; training uses the first


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths, concatenated."""

    values: Ints  # [all elements] or [all elements, 2]
    starts: Longs  # [rows + 1], first element of each row

    def __getitem__(self, row: int) -> Ints:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def part(self, rows: Longs) -> "Ragged":
        """These rows."""
        lengths = np.diff(self.starts)[rows]
        return Ragged(np.concatenate([self[row] for row in rows]), np.concatenate([[0], np.cumsum(lengths)]))


@dataclass(frozen=True, slots=True)
class Windows:
    """Each question with each window of its text, in the order of the questions."""

    questions: Ragged  # tokens of each question
    texts: Ragged  # tokens of each text
    characters: Ragged  # first and one past the last character of each token, [T, 2]
    text_of: Ints  # [Q], text of each question
    question_of: Ints  # [W], ascending
    bounds: Ints  # [W, 2]: first token of the window in its text, and the one after its last
    begins: Ints  # [W], position of the window in its row
    answers: Ints  # [W, 2]: positions in the row of the answer's first and last token; 0, [CLS], if outside the window
    cls: int
    sep: int

    def __len__(self) -> int:
        return len(self.question_of)

    def of_questions(self, numbers: Longs) -> "Windows":
        """The windows of these questions, ascending, which are then numbered from 0."""
        chosen = np.isin(self.question_of, numbers)
        return replace(
            self,
            questions=self.questions.part(numbers),
            text_of=self.text_of[numbers],
            question_of=np.searchsorted(numbers, self.question_of[chosen]).astype(np.int32),
            bounds=self.bounds[chosen],
            begins=self.begins[chosen],
            answers=self.answers[chosen],
        )

    def rows(self, indices: Longs) -> tuple[Longs, Longs, Longs]:
        """Tokens, mask and types [B, L] of these windows, L that of the longest; padding is 0 in all three."""
        widths = self.bounds[indices, 1] - self.bounds[indices, 0]
        lengths = self.begins[indices] + widths + 1
        tokens, mask, types = np.zeros((3, len(indices), int(lengths.max())), np.int64)
        for row, window in enumerate(indices):
            question = self.question_of[window]
            (first, stop), begin, end = self.bounds[window], self.begins[window], lengths[row]
            tokens[row, 0] = self.cls
            tokens[row, 1 : begin - 1] = self.questions[question]
            tokens[row, begin : end - 1] = self.texts[self.text_of[question]][first:stop]
            tokens[row, [begin - 1, end - 1]] = self.sep
            mask[row, :end] = 1
            types[row, begin:end] = 1
        return tokens, mask, types


def cut(questions: Sequence[Question], tokenizer: "Tokenizer", max_length: int, stride: int) -> Windows:
    """Tokenise, and split each text into windows that fit next to the question.

    Args:
        questions: >= 1.
        tokenizer: from `wordpiece.tokenizer`.
        max_length: largest number of tokens of a row.
        stride: tokens that two neighbouring windows of a text share, 0 .. max_length - 68.

    Source: Devlin et al. 2019, section 4.2. These are the windows of transformers' run_qa, which reads "stride" as the
    tokens that neighbours share; in the code of BERT's authors it is the step from one window to the next.
    """
    assert 0 <= stride < max_length - MAX_QUESTION - NUM_SPECIAL
    cls, sep = tokenizer.token_to_id(CLS), tokenizer.token_to_id(SEP)
    assert cls is not None
    assert sep is not None
    numbers = {text: number for number, text in enumerate(dict.fromkeys(q.paragraph for q in questions))}
    texts, characters = _tokenise(tokenizer, numbers)
    asked, _ = _tokenise(tokenizer, (q.text for q in questions), MAX_QUESTION)
    text_of = np.array([numbers[q.paragraph] for q in questions], np.int32)
    question_of, bounds, begins, answers = [], [], [], []
    for number, question in enumerate(questions):
        spans = characters[text_of[number]]
        begin = len(asked[number]) + 2
        first, last = _answer(question, spans)
        for start, stop in _bounds(len(spans), max_length - begin - 1, stride):
            inside = start <= first and last < stop
            question_of.append(number)
            bounds.append((start, stop))
            begins.append(begin)
            answers.append((begin + first - start, begin + last - start) if inside else (0, 0))
    owners, edges, places, targets = (np.array(rows, np.int32) for rows in (question_of, bounds, begins, answers))
    return Windows(asked, texts, characters, text_of, owners, edges, places, targets, cls, sep)


def _bounds(num_tokens: int, room: int, stride: int) -> Iterable[tuple[int, int]]:
    start = 0
    while start + room < num_tokens:
        yield start, start + room
        start += room - stride
    yield start, num_tokens


def _answer(question: Question, spans: Ints) -> tuple[int, int]:
    """First and last token of the first answer: the shortest row of tokens that covers its characters."""
    answer, start = question.answers[0]
    first = int(np.searchsorted(spans[:, 0], start, side="right")) - 1
    last = int(np.searchsorted(spans[:, 1], start + len(answer), side="left"))
    return first, last


def _tokenise(tokenizer: "Tokenizer", texts: Iterable[str], most: int | None = None) -> tuple[Ragged, Ragged]:
    """Tokens of each text and their characters; at most `most` of each."""
    # One text at a time: a batch would start threads, of which a later fork would warn.
    encodings = (tokenizer.encode(text, add_special_tokens=False) for text in texts)
    rows = [_arrays(encoding, most) for encoding in encodings]
    starts = np.cumsum([0, *(len(tokens) for tokens, _ in rows)], dtype=np.int64)
    tokens = np.concatenate([tokens for tokens, _ in rows])
    characters = np.concatenate([spans for _, spans in rows])
    return Ragged(tokens, starts), Ragged(characters, starts)


def _arrays(encoding: "Encoding", most: int | None) -> tuple[Ints, Ints]:
    return np.array(encoding.ids[:most], np.int32), np.array(encoding.offsets[:most], np.int32).reshape(-1, 2)
