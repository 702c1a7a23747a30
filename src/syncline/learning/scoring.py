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
    positive = labels != 0
    num_positive = int(positive.sum())
    num_negative = len(labels) - num_positive
    if num_positive == 0 or num_negative == 0 or bool(scores.isnan().any()):
        return math.nan
    ordered, order = scores.sort()
    _, group = torch.unique_consecutive(ordered, return_inverse=True)  # [N]: which of the distinct scores, ascending
    positives = torch.bincount(group[positive[order]], minlength=int(group[-1]) + 1)  # [G]
    negatives = torch.bincount(group) - positives
    below = negatives.cumsum(0) - negatives  # of each distinct score: negatives below it
    twice_won = int((positives * (2 * below + negatives)).sum())
    return twice_won / (2 * num_positive * num_negative)
