"""AUC: equal to its definition by pairs, ties and all."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.learning.scoring import auc

# Few distinct scores make many ties.
few = st.sampled_from([-math.inf, -2.0, -0.0, 0.0, 1e-40, 0.5, 0.5000001, 7.0, math.inf])
labelled = st.lists(st.tuples(few | st.floats(allow_nan=False, width=32), st.integers(0, 1)), min_size=2, max_size=60)


def share_of_pairs_won(scores: torch.Tensor, labels: torch.Tensor) -> float:
    positive, negative = scores[labels == 1][:, None], scores[labels == 0]
    return ((positive > negative).double() + 0.5 * (positive == negative).double()).mean().item()


@given(labelled)
def test_it_is_the_share_of_pairs_won(pairs: list[tuple[float, int]]) -> None:
    scores, labels = torch.tensor([score for score, _ in pairs]), torch.tensor([label for _, label in pairs])
    assert auc(scores, labels) == pytest.approx(share_of_pairs_won(scores, labels), nan_ok=True, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("levels", [3, 10**9])
def test_scores_may_be_of_any_type(dtype: torch.dtype, levels: int) -> None:
    random = np.random.default_rng(levels)
    labels = torch.from_numpy(random.integers(0, 2, 1000))
    scores = (torch.from_numpy(random.integers(0, levels, 1000)) / levels + 0.1 * labels).to(dtype)
    assert auc(scores, labels) == pytest.approx(share_of_pairs_won(scores, labels), abs=1e-12)


def test_a_large_set_does_not_overflow() -> None:
    labels = torch.arange(400_000) % 2
    assert auc(labels.float(), labels) == 1.0
    assert auc(torch.zeros(400_000), labels) == 0.5


def test_there_is_no_area_without_both_classes_or_with_nan() -> None:
    assert math.isnan(auc(torch.tensor([0.1, 0.2]), torch.tensor([1, 1])))
    assert math.isnan(auc(torch.tensor([0.1, 0.2]), torch.tensor([0, 0])))
    assert math.isnan(auc(torch.tensor([]), torch.tensor([])))
    assert math.isnan(auc(torch.tensor([0.1, math.nan]), torch.tensor([0, 1])))
