"""Scores of a whole test set that are not means over batches. Legend: N samples."""

import math

import torch
from torch import Tensor


def auc(scores: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve: the probability that a random positive scores above a random negative; ties count 1/2.

    Computed in integers, so exact except for the last division; O(N log N).

    Args:
        scores: [N], any real dtype; higher means more likely positive.
        labels: [N], positive where not 0.

    Returns:
        0..1; nan if undefined: one class only, or a score that is nan.

    Source: Mann and Whitney 1947; Hanley and McNeil 1982, "The meaning and use of the area under a ROC curve".
    """
    assert scores.ndim == 1
    assert scores.shape == labels.shape
    positive, negative = scores[labels != 0].sort().values, scores[labels == 0].sort().values
    if len(positive) == 0 or len(negative) == 0 or bool(scores.isnan().any()):
        return math.nan
    below = torch.searchsorted(negative, positive)  # of each positive: negatives below it
    not_above = torch.searchsorted(negative, positive, right=True)
    twice_won = int((below + not_above).sum())
    return twice_won / (2 * len(positive) * len(negative))
