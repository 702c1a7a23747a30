"""Clicks drawn from a known factorisation machine: needs no download, and the best possible score is known.

Legend: N rows, F = 26 categorical fields of V values, D = 13 counts, R = 2 factors.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.datasets.clicks import NUM_CATEGORIES, NUM_COUNTS, RECORD, ClickDataset, Records
from syncline.datasets.streams import Purpose, stream

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

DEFAULT_TRAIN, DEFAULT_TEST = 20_000, 4_000
NUM_FACTORS = 2  # R
BIAS = -1.35  # of the log-odds: about a quarter of the rows are clicked, as in Criteo's
MEDIAN_COUNT, SIGMA_COUNT, ZERO_COUNTS = 3.0, 1.5, 0.2  # counts are log-normal, and some more of them are 0
BLOCK = 1_000  # rows drawn from one stream
TRIAL = 10_000  # rows from which the scale of the terms is estimated


def ctr_synthetic(
    train_size: int | None = None, test_size: int | None = None, seed: int = 0, values: int = 20
) -> ClickDataset:
    """Rows in Criteo's form, clicked with the probability that a factorisation machine gives.

    z = b + sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j over the 39 fields, P(clicked) = 1 / (1 + exp(-z)), where x_i
    is log(1 + count) less its mean for a count, and 1 at the value drawn for a category. Value k = 1 .. V of a field
    occurs with probability proportional to 1 / k. The linear term and that of pairs have standard deviation 1 each. The
    mean of w and v over the values of a field is 0, so a linear model cannot represent any part of the pairs.

    A data set of size n is a prefix of any larger one. Training and test rows come from independent streams.

    Args:
        train_size: >= 1; None for 20,000.
        test_size: >= 1; None for 4,000.
        seed: >= 0, of the machine and of the rows.
        values: V of each categorical field, >= 2; the joint table has 26 V rows.

    Returns:
        The dataset, whose `best` holds the AUC and the log loss of the true probabilities on the test rows.

    Source: ours; the machine is that of Rendle 2010, "Factorization machines", equation 1.
    """
    machine = _Machine.draw(values, seed)
    train, _ = _part(Purpose.TRAIN_CLICKS, machine, train_size or DEFAULT_TRAIN, seed)
    test, chances = _part(Purpose.TEST_CLICKS, machine, test_size or DEFAULT_TEST, seed)
    return ClickDataset("ctr_synthetic", train, test, NUM_CATEGORIES * values, chances)


@dataclass(frozen=True)
class _Machine:
    share: Floats  # [V], of each value among the rows
    count_mean: Floats  # [D], of log(1 + count)
    count_weights: Floats  # [D]
    count_factors: Floats  # [D, R]
    weights: Floats  # [F, V]
    factors: Floats  # [F, V, R]

    @staticmethod
    def draw(values: int, seed: int) -> "_Machine":
        generator = stream(Purpose.CLICK_MACHINE, 0, 0, seed)
        share = 1 / np.arange(1, values + 1)
        share /= share.sum()
        weights = generator.normal(size=(NUM_CATEGORIES, values))
        factors = generator.normal(size=(NUM_CATEGORIES, values, NUM_FACTORS))
        weights -= (weights @ share)[:, None]
        factors -= np.einsum("fvr,v->fr", factors, share)[:, None]
        count_weights = generator.normal(size=NUM_COUNTS)
        count_factors = generator.normal(size=(NUM_COUNTS, NUM_FACTORS))
        counts, categories = _features(generator, share, TRIAL)
        mean = counts.mean(axis=0, dtype=np.float64)
        raw = _Machine(share, mean, count_weights, count_factors, weights, factors)
        linear, pairs = (term.std() for term in raw.terms(counts, categories))
        root = pairs**0.5
        return _Machine(share, mean, count_weights / linear, count_factors / root, weights / linear, factors / root)

    def terms(self, counts: Array, categories: Array) -> tuple[Floats, Floats]:
        """The linear term and that of pairs [N], of log counts [N, D] and values [N, F]."""
        x = counts - self.count_mean
        fields = np.arange(NUM_CATEGORIES)
        linear = x @ self.count_weights + self.weights[fields, categories].sum(axis=1)
        of_counts, of_categories = x[..., None] * self.count_factors, self.factors[fields, categories]
        vectors = np.concatenate([of_counts, of_categories], axis=1)  # [N, D + F, R]
        # Rendle 2010, lemma 3.1: all pairs in linear time.
        pairs = (vectors.sum(axis=1) ** 2 - (vectors**2).sum(axis=1)).sum(axis=1) / 2
        return linear, pairs


def _features(generator: np.random.Generator, share: Floats, size: int) -> tuple[Array, Array]:
    """Log counts float32 [size, D] and values int64 [size, F]."""
    counts = np.floor(MEDIAN_COUNT * np.exp(SIGMA_COUNT * generator.normal(size=(size, NUM_COUNTS))))
    counts[generator.random((size, NUM_COUNTS)) < ZERO_COUNTS] = 0
    categories = generator.choice(len(share), size=(size, NUM_CATEGORIES), p=share)
    return np.log1p(counts).astype(np.float32), categories


def _part(purpose: Purpose, machine: _Machine, size: int, seed: int) -> tuple[Records, Floats]:
    """Rows [size], and the probability that each is clicked [size]."""
    records = np.empty(size, RECORD)
    chances = np.empty(size)
    begins = np.arange(NUM_CATEGORIES) * len(machine.share)
    for start in range(0, size, BLOCK):
        generator = stream(purpose, start // BLOCK, 0, seed)
        counts, categories = _features(generator, machine.share, BLOCK)
        linear, pairs = machine.terms(counts, categories)
        chance = 1 / (1 + np.exp(-(BIAS + linear + pairs)))
        clicked = generator.random(BLOCK) < chance
        kept = slice(start, min(start + BLOCK, size))
        number = kept.stop - start
        records["counts"][kept] = counts[:number]
        records["rows"][kept] = (begins + categories)[:number]
        records["clicked"][kept] = clicked[:number]
        chances[kept] = chance[:number]
    return records, chances
