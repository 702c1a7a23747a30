"""What a run left behind, as a study asks for it."""

from pathlib import Path

from syncline.metrics import is_lower_better
from syncline.records.store import FAILED, FINISHED, read_metrics, read_summary, status
from syncline.studies.study import ABSENT, Evaluation, Outcome


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
    curve = tuple(Evaluation(row["epoch"], row["time_s"], row[metric]) for row in read_metrics(folder))
    return Outcome("finished", metric, is_lower_better(summary), curve, diverged)
