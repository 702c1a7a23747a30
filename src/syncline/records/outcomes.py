"""What a run left behind, as a study asks for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.metrics import is_lower_better
from syncline.records.store import FAILED, FINISHED, read_metrics, read_summary, status
from syncline.studies.study import ABSENT, Counts, Evaluation, Outcome


def read_outcome(folder: Path) -> Outcome:
    """The outcome of a run from its record; an unfinished record is an absent one.

    Raises:
        RecordError: the record is broken.
    """
    state = status(folder)
    if state != FINISHED:
        return Outcome("failed") if state == FAILED else ABSENT
    summary = read_summary(folder)
    metric, diverged = summary["metric"], summary["status"] == "diverged"
    curve = tuple(Evaluation(row["epoch"], row["time_s"], row[metric], row["updates"]) for row in read_metrics(folder))
    return Outcome("finished", metric, is_lower_better(summary), curve, diverged, _counts(summary))


def _counts(summary: Mapping[str, Any]) -> Counts:
    by_worker = summary["used_by_worker"]
    used, discarded = summary["gradients_used"], summary["gradients_discarded"]
    return Counts(
        summary["time_s"],
        summary["updates"],
        used,
        discarded + summary["gradients_interrupted"],
        used + discarded + summary["gradients_wasted"],
        summary["mean_staleness"],
        min(by_worker) * len(by_worker) / max(1, sum(by_worker)),
        summary["wall_s"],
    )
