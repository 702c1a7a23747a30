"""Clicks of a known factorisation machine: its probabilities are exact, and pairs of fields matter."""

from itertools import combinations

import numpy as np
import pytest

from syncline.datasets.ctr_synthetic import BIAS, _Machine, ctr_synthetic


def test_probabilities_of_a_larger_test_part_begin_alike() -> None:
    one, other = ctr_synthetic(1000, 1500, seed=3), ctr_synthetic(1, 700, seed=3)
    assert one.chances is not None
    assert other.chances is not None
    np.testing.assert_array_equal(one.chances[:700], other.chances)
    assert not np.array_equal(one.train[:700], one.test[:700])


def test_rows_stay_in_their_fields_and_follow_zipf() -> None:
    dataset = ctr_synthetic(20_000, 1, values=20)
    assert (dataset.shape.num_rows, dataset.shape.num_counts, dataset.shape.num_categories) == (520, 13, 26)
    place = dataset.train["rows"] - 20 * np.arange(26)
    assert place.min() == 0
    assert place.max() == 19
    share = np.bincount(place.reshape(-1), minlength=20) / place.size
    expected = 1 / np.arange(1, 21)
    np.testing.assert_allclose(share, expected / expected.sum(), rtol=0.05)  # 520,000 draws: 1 % is 3 deviations
    counts = np.expm1(dataset.train["counts"])
    np.testing.assert_allclose(counts, np.rint(counts), rtol=1e-5)


def test_probabilities_are_those_of_all_pairs() -> None:
    machine = _Machine.draw(5, 0)
    random = np.random.default_rng(0)
    counts, categories = random.random((4, 13)), random.integers(0, 5, (4, 26))
    linear, pairs = machine.terms(counts, categories)
    for row in range(4):
        x = counts[row] - machine.count_mean
        chosen = [machine.factors[field, categories[row, field]] for field in range(26)]
        vectors = [*(x[:, None] * machine.count_factors), *chosen]
        assert pairs[row] == pytest.approx(sum(a @ b for a, b in combinations(vectors, 2)))
        weights = [machine.weights[field, categories[row, field]] for field in range(26)]
        assert linear[row] == pytest.approx(x @ machine.count_weights + sum(weights))


def test_clicks_happen_as_often_as_their_probabilities_say() -> None:
    dataset = ctr_synthetic(1, 40_000)
    chances, clicked = dataset.chances, dataset.test["clicked"]
    assert chances is not None
    for tenth in np.array_split(np.argsort(chances), 10):
        deviation = np.sqrt((chances[tenth] * (1 - chances[tenth])).mean() / len(tenth))
        assert abs(clicked[tenth].mean() - chances[tenth].mean()) < 5 * deviation
    logits = np.log(chances / (1 - chances))
    assert logits.mean() == pytest.approx(BIAS, abs=0.05)
    assert logits.std() == pytest.approx(2**0.5, abs=0.1)  # two independent terms of deviation 1


def test_the_best_is_that_of_the_true_probabilities() -> None:
    from sklearn.metrics import log_loss, roc_auc_score

    dataset = ctr_synthetic(1, 3000)
    clicked = dataset.test["clicked"]
    assert dataset.best == {"auc": roc_auc_score(clicked, dataset.chances), "loss": log_loss(clicked, dataset.chances)}


def test_a_test_part_of_one_class_has_a_best_loss_alone() -> None:
    assert ctr_synthetic(64, 1).best.keys() == {"loss"}


def test_the_linear_terms_alone_leave_a_gap() -> None:
    """Half of the log-odds' variance lies in pairs: a test part of 4,000 rows has standard errors of 0.01."""
    from sklearn.metrics import log_loss, roc_auc_score

    dataset = ctr_synthetic(1, 4000, values=100)
    clicked, rows = dataset.test["clicked"], dataset.test["rows"] - 100 * np.arange(26)
    linear, _ = _Machine.draw(100, 0).terms(dataset.test["counts"], rows)
    chances = 1 / (1 + np.exp(-(BIAS + linear)))
    assert 0.64 < roc_auc_score(clicked, chances) < dataset.best["auc"] - 0.055
    assert log_loss(clicked, chances) > dataset.best["loss"] + 0.04
