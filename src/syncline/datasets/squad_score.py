"""SQuAD's official scores, and the answers from a network's logits.

Legend: W windows, B of them at a time, L tokens of a row.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.question_windows import Longs, Question, Windows

Floats = npt.NDArray[np.float32]

NUM_BEST = 20  # first and last tokens of a window to combine; n_best_size in BERT's code and transformers' run_qa
MAX_ANSWER = 30  # tokens; max_answer_length, there
CHUNK = 1024  # windows at a time

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> str:
    """Lower case, without ASCII punctuation, English articles and superfluous white space, in this order.

    Source: Rajpurkar et al. 2016, "SQuAD", section 6.1, in the form of the official evaluate-v1.1.py.
    """
    plain = answer.lower().translate(WITHOUT_PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", plain).split())


def exact_match(prediction: str, answer: str) -> float:
    """1.0 if both are the same when normalised, else 0.0. Source: as `normalise`."""
    return float(normalise(prediction) == normalise(answer))


def f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall over the bags of normalised words; 0 if they share none.

    Source: as `normalise`; so two answers without any word score 0 here, though they match exactly.
    """
    predicted, right = normalise(prediction).split(), normalise(answer).split()
    shared = (Counter(predicted) & Counter(right)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(right)
    return 2 * precision * recall / (precision + recall)


def score(predictions: Sequence[str], questions: Sequence[Question]) -> tuple[float, float]:
    """Exact match and F1, means over the questions, each with the correct answer that scores best; in 0..1."""
    exact = overlap = 0.0
    for prediction, question in zip(predictions, questions, strict=True):
        exact += max(exact_match(prediction, answer) for answer, _ in question.answers)
        overlap += max(f1(prediction, answer) for answer, _ in question.answers)
    return exact / len(questions), overlap / len(questions)


def predict(windows: Windows, questions: Sequence[Question], firsts: Tensor, lasts: Tensor) -> list[str]:
    """The answer to each question: of all its windows the span of text with the highest sum of two logits.

    In each window the NUM_BEST highest first tokens are combined with the NUM_BEST highest last ones; pairs outside the
    text, in reverse order or longer than MAX_ANSWER tokens are dropped. Without any pair the answer is ''.

    Args:
        windows: of the questions.
        questions: the argument of `cut`.
        firsts, lasts: logits float [W, L] that a token is the answer's first or last; those of padding are ignored.

    Source: Devlin et al. 2019, section 4.2; transformers' postprocess_qa_predictions. Logits that are not finite count
    as minus infinity.
    """
    assert len(firsts) == len(windows)
    totals, pairs = _best_pairs(windows, firsts, lasts)
    best = [-math.inf] * len(questions)
    predictions = [""] * len(questions)
    shifts = windows.bounds[:, 0] - windows.begins  # from a position in the row to one in the text
    for window, number in enumerate(windows.question_of):
        if totals[window] > best[number]:
            best[number] = totals[window]
            first, last = windows.characters[windows.text_of[number]][pairs[window] + shifts[window]]
            predictions[number] = questions[number].paragraph[first[0] : last[1]]
    return predictions


def _best_pairs(windows: Windows, firsts: Tensor, lasts: Tensor) -> tuple[Floats, Longs]:
    """The highest sum of two logits of each window, -inf without any, [W]; the positions of their tokens [W, 2]."""
    totals, pairs = [], []
    for start in range(0, len(windows), CHUNK):
        rows = slice(start, start + CHUNK)
        begin = torch.from_numpy(windows.begins[rows])[:, None]
        end = begin + torch.from_numpy(windows.bounds[rows]).diff(dim=1)  # [B, 1], position of the last [SEP]
        first_logits, first = _highest(firsts[rows], end)
        last_logits, last = _highest(lasts[rows], end)
        length = last[:, None, :] - first[:, :, None] + 1  # [B, NUM_BEST, NUM_BEST]
        in_text = (first >= begin)[:, :, None] & (last < end)[:, None, :]  # with length >= 1 both tokens are
        allowed = in_text & (length >= 1) & (length <= MAX_ANSWER)
        sums = (first_logits[:, :, None] + last_logits[:, None, :]).masked_fill(~allowed, -math.inf)
        total, pair = sums.flatten(1).max(dim=1, keepdim=True)
        totals.append(total[:, 0].numpy())
        width = last.shape[1]
        pairs.append(torch.cat([first.gather(1, pair // width), last.gather(1, pair % width)], dim=1).numpy())
    return np.concatenate(totals), np.concatenate(pairs)


def _highest(logits: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The highest logits of each row, [B, NUM_BEST], and their positions; of equal ones the left comes first."""
    logits = logits.detach().float().cpu()
    padding = torch.arange(logits.shape[1]) > end
    logits = logits.masked_fill(padding | ~logits.isfinite(), -math.inf)
    values, places = logits.sort(dim=1, descending=True, stable=True)
    return values[:, :NUM_BEST], places[:, :NUM_BEST]
