"""The metrics on the test set by task. The first one of a task is its default for targets and the best value."""

from collections.abc import Mapping
from math import inf
from typing import Any

METRICS: dict[str, tuple[str, ...]] = {
    # fractions of the test set; loss is the mean log loss in nats
    "classification": ("accuracy", "top5", "loss"),
    # bound on the negative log-likelihood, nats an image
    "generation": ("bound",),
    # fractions of the questions, as SQuAD's own script gives them; loss in nats, mean over first and last token
    "qa": ("f1", "exact_match", "loss"),
    # area under the ROC curve; mean log loss in nats
    "ctr": ("auc", "loss"),
    # mean squared error; mean absolute error; both of one value, in the targets' units
    "regression": ("squared_error", "absolute_error"),
    # bits a character; perplexity a word; loss in nats a symbol
    "language": ("bits_per_character", "word_perplexity", "loss"),
    # loss in nats a symbol; its exponential
    "next_token": ("loss", "perplexity"),
}
LOSSES = ("loss", "bound", "squared_error")  # minimised by a task; infinite or nan only after divergence
LOWER_IS_BETTER = frozenset(
    {"loss", "bound", "bits_per_character", "word_perplexity", "perplexity", "squared_error", "absolute_error"}
)

# Least and largest value of each, for targets.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("accuracy", "top5", "f1", "exact_match", "auc"), (0, 1)),
    **dict.fromkeys(("loss", "bound", "bits_per_character", "squared_error", "absolute_error"), (0, inf)),
    **dict.fromkeys(("word_perplexity", "perplexity"), (1, inf)),
}


def is_lower_better(summary: Mapping[str, Any]) -> bool:
    """Whether lower values are better of the metric by which a run is judged, from its summary.

    Only a task of the user's own says so there.
    """
    return bool(summary.get("lower_is_better", summary["metric"] in LOWER_IS_BETTER))
