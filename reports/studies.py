"""A study's figure: the score against the value that is tuned, a curve a row."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy, read_study

# The stages of tuning by the first word of their names -> title of their panel.
PANELS = {"screen": "screening: the first seed, a share of the length", "full": "full length: mean ± standard error"}


def study_exhibit(path: Path) -> Exhibit:
    """The figure of a study.

    Raises:
        RecordError: there is no such study, it is no tuning, or no stage of it is complete.
    """
    study = read_study(path)
    if study.kind != "tune" or not study.stages:
        raise RecordError(f"study {path.stem} has no figure yet: it needs a complete stage of tuning")
    return {"": tuning_figure(study)}


def tuning_figure(study: WrittenStudy) -> Figure:
    """A panel for the screening and one for the full length; values whose runs were lost are left out."""
    scores = {
        kind: [score for stage in study.stages if stage["name"].split()[0] == kind for score in stage["scores"]]
        for kind in PANELS
    }
    key = study.declaration["key"]
    metric = next((score["metric"] for own in scores.values() for score in own if score["metric"]), "score")
    panels = [
        Panel(
            key, f"{metric.replace('_', ' ')} on held-out training data", _series(study, own), PANELS[kind], log_x=True
        )
        for kind, own in scores.items()
        if own
    ]
    num_lost = sum(score["mean"] is None for own in scores.values() for score in own)
    lost = [f"{num_lost} values are left out: of these at least one run diverged or failed."] if num_lost else []
    of = f"{study.name} at scale {study.scale}" if study.scale else "a sweep"
    return Figure(f"Tuning of {key}, {of}", panels, lost, columns=2)


def _series(study: WrittenStudy, scores: Sequence[Mapping[str, Any]]) -> list[Series]:
    labels = [row["label"] for row in study.declaration["rows"]]
    series = []
    for number, label in enumerate(labels):
        own = sorted((score["at"], score) for score in scores if score["label"] == label and score["mean"] is not None)
        x, y = [at for at, _ in own], [score["mean"] for _, score in own]
        errors = [score["error"] for _, score in own]
        low = high = None
        if errors and None not in errors:
            low = [value - error for value, error in zip(y, errors, strict=True)]
            high = [value + error for value, error in zip(y, errors, strict=True)]
        series.append(Series(label, x, y, colour=number, low=low, high=high))
    return series
