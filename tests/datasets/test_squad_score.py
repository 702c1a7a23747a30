"""SQuAD's official score, sentence by sentence of the official script, and answers from logits."""

import math
import string

import pytest
import torch
from datasets.drawn_questions import asked, perfect
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from syncline.datasets.question_windows import Question, Windows, cut
from syncline.datasets.squad_score import MAX_ANSWER, exact_match, f1, normalise, predict, score
from syncline.datasets.wordpiece import SPECIAL, tokenizer

ALPHABET = string.ascii_lowercase
TOKENIZER = tokenizer([*SPECIAL, *ALPHABET, *(f"##{letter}" for letter in ALPHABET)])  # a letter a token


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The Denver Broncos", "denver broncos"),
        ("  an  Apple a\tday ", "apple day"),
        ("Theatre, Anne & Andes", "theatre anne andes"),  # articles are whole words
        ("U.S.-led", "usled"),  # punctuation leaves no gap
        ("the-end", "theend"),  # and is removed before the articles
        ("$3.5 million", "35 million"),
        ("A.", ""),
        ("the the a an", ""),
        ("“Ümlaut” – Straße", "“ümlaut” – straße"),  # only ASCII's punctuation
        ("a\u00a0cat", "cat"),  # a no-break space is white space
        ("l'a", "la"),
        ("ÉCOLE", "école"),
    ],
)
def test_normalised_answers(answer: str, expected: str) -> None:
    assert normalise(answer) == expected


@pytest.mark.parametrize(
    ("prediction", "answer", "exact", "overlap"),
    [
        ("Denver Broncos", "the Denver Broncos!", 1, 1),
        ("Broncos", "Denver Broncos", 0, 2 / 3),  # precision 1, recall 1/2
        ("Denver Broncos of Denver", "Denver Broncos", 0, 2 / 3),  # the second Denver has no match
        ("in 1990 and 1991", "1990", 0, 0.4),
        ("Broncos Denver", "Denver Broncos", 0, 1),  # a bag of words has no order
        ("Carolina", "Denver", 0, 0),
        ("", "Denver", 0, 0),
        ("the", "a", 1, 0),  # both are empty then; the official script agrees
        ("50", "50.", 1, 1),
        ("5.0", "50", 1, 1),
    ],
)
def test_known_pairs(prediction: str, answer: str, exact: float, overlap: float) -> None:
    assert exact_match(prediction, answer) == exact
    assert f1(prediction, answer) == pytest.approx(overlap)


def test_each_measure_takes_its_best_answer() -> None:
    one = Question("?", "", (("Denver", 0), ("Denver Broncos of Colorado", 0), ("the Broncos", 0)))
    other = Question("?", "", (("Santa Clara", 0),))
    assert score(["Broncos", "Clara"], [one, other]) == pytest.approx((1 / 2, (1 + 2 / 3) / 2))


QUESTIONS = asked(st.text(ALPHABET, min_size=1, max_size=60), st.text(ALPHABET, min_size=1, max_size=5))


def spaced(question: Question) -> Question:
    """The same with a space between any two letters, so that each is a word."""
    ((answer, start),) = question.answers
    return Question(question.text, " ".join(question.paragraph), ((" ".join(answer), 2 * start),))


def windows(questions: list[Question]) -> Windows:
    return cut(questions, TOKENIZER, max_length=88, stride=10)


def brute_force(cutting: Windows, questions: list[Question], firsts: Tensor, lasts: Tensor) -> list[str]:
    """Each window, each pair among its twenty best of both, one at a time."""
    best: dict[int, tuple[float, str]] = {}
    for window in range(len(cutting)):
        question = int(cutting.question_of[window])
        low, high = cutting.bounds[window]
        begin, end = int(cutting.begins[window]), int(cutting.begins[window] + high - low)
        spans = cutting.characters[int(cutting.text_of[question])]
        rows = [sorted(range(end + 1), key=lambda i, r=r: -float(r[window, i]))[:20] for r in (firsts, lasts)]  # type: ignore[misc]
        for a in rows[0]:
            for b in rows[1]:
                if begin <= a <= b < end and b - a < MAX_ANSWER:
                    total = float(firsts[window, a] + lasts[window, b])
                    text = questions[question].paragraph[spans[low + a - begin, 0] : spans[low + b - begin, 1]]
                    if question not in best or total > best[question][0]:
                        best[question] = (total, text)
    return [best[question][1] if question in best else "" for question in range(len(questions))]


@given(st.lists(QUESTIONS.map(spaced), min_size=1, max_size=4), st.integers(0, 2**31))
def test_any_logits_give_the_best_allowed_pair(questions: list[Question], seed: int) -> None:
    cutting = windows(questions)
    generator = torch.Generator().manual_seed(seed)
    shape = perfect(cutting)[0].shape
    firsts, lasts = (torch.randn(shape, generator=generator) for _ in range(2))
    assert predict(cutting, questions, firsts, lasts) == brute_force(cutting, questions, firsts, lasts)


def test_twenty_first_tokens_are_paired_with_twenty_last_tokens() -> None:
    """n_best_size of the code of BERT's authors; [CLS], question and [SEP] take their places too."""
    letters = list(ALPHABET * 2)
    questions = [Question("w", " ".join(letters), (("b", 2),))]
    cutting = windows(questions)
    begin, end = 3, 3 + len(letters)
    firsts, lasts = torch.zeros(2, 1, end + 1)
    firsts[0, end - 18 : end + 1] = 2.0  # 19 that no last token follows
    firsts[0, begin + 5] = 1.0
    lasts[0, begin + 10 : begin + 30] = 1.0
    lasts[0, begin + 7] = 1.5
    assert predict(cutting, questions, firsts, lasts) == ["f g h"]
    firsts[0, end - 19] = 2.0
    assert predict(cutting, questions, firsts, lasts) == [""]


def test_a_diverged_network_scores_zero() -> None:
    questions = [Question("what", "a b c", (("b", 2),))]
    cutting = windows(questions)
    lost = torch.full_like(perfect(cutting)[0], math.nan)
    assert predict(cutting, questions, lost, lost) == [""]
    assert score([""], questions) == (0.0, 0.0)
