"""A study's items: of tuning the score against the value that is tuned, a curve a row, and where a row is ahead of its
baseline; of judging the verdicts; of a race races.py."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series
from reports.races import race_exhibit
from reports.tables import DASH, Heading, Table
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy, read_study

# The stages of tuning by the first word of their names -> title of their panel.
PANELS = {"screen": "one seed, a share of the length", "full": "full length, mean ± standard error"}


BEHIND, EQUAL, AHEAD = "behind", "equal", "ahead"

Scores = Sequence[Mapping[str, Any]]


def study_exhibit(path: Path) -> Exhibit:
    """The items of a study.

    Raises:
        RecordError: there is no such study, or no stage of it is complete.
    """
    study = read_study(path)
    if study.kind == "judge":
        return {"": verdict_table(study)}
    if study.kind == "race":
        return race_exhibit(study, path)
    if not study.stages:
        raise RecordError(f"study {path.stem} has no figure yet: no stage of it is complete")
    figure = settings_figure(study) if study.declaration["rows"][0]["settings"] else tuning_figure(study)
    if not any(row["baseline"] for row in study.declaration["rows"]):
        return {"": figure}
    return {"": figure, "order": order_table(study)}


def verdict_table(study: WrittenStudy) -> Table:
    """A row a claim. Raises RecordError before the study's answer."""
    if study.answer is None:
        raise RecordError(f"the study of {study.name} at scale {study.scale} has no verdicts yet")
    names = ("claim", "verdict", "because")
    rows = [[*(claim[name] for name in names), float(claim["num_seeds"])] for claim in study.answer["claims"]]
    headings = [*map(Heading, names), Heading("seeds", digits=0)]
    return Table(f"Verdicts on {study.name} at scale {study.scale}", headings, rows)


def order_table(study: WrittenStudy) -> Table:
    """For each row with a baseline, the values of the key at which it is behind, equal to, and ahead of it."""
    key, rows = study.declaration["key"], []
    for row in study.declaration["rows"]:
        for kind, length in (("screen", "a share, one seed"), ("full", "full")):
            found = list(_order(_scores(study, kind), row["label"], row["baseline"]))
            if row["baseline"] not in (None, row["label"]) and found:
                cells = [_intervals(found, verdict) for verdict in (BEHIND, EQUAL, AHEAD)]
                rows.append([row["label"], row["baseline"], length, *cells])
    headings = list(map(Heading, ("row", "baseline", "length", *(f"{name} at" for name in (BEHIND, EQUAL, AHEAD)))))
    note = (
        f"Values of {key} at which the row's mean score is behind its baseline's at the same value, ahead of it, or "
        "equal: they differ by one standard error of the difference at most, sqrt(a² + b²). One seed has no standard "
        "error: there equal scores are equal. A row that diverged or failed is behind one that did not."
    )
    return Table(f"Where rows are ahead of their baselines, by {key}", headings, rows, [note])


def _order(scores: Scores, label: str, baseline: str | None) -> Iterator[tuple[float, str]]:
    """(value, BEHIND, EQUAL or AHEAD) of each value that both have; left out where both were lost."""
    own, other = ({score["at"]: score for score in scores if score["label"] == name} for name in (label, baseline))
    for at in sorted(own.keys() & other.keys()):
        mean, by = own[at]["mean"], other[at]["mean"]
        if mean is None or by is None:
            if (mean is None) != (by is None):
                yield at, BEHIND if mean is None else AHEAD
            continue
        ahead = by - mean if own[at]["lower_is_better"] else mean - by
        error = math.hypot(own[at]["error"] or 0.0, other[at]["error"] or 0.0)
        yield at, EQUAL if abs(ahead) <= error else AHEAD if ahead > 0 else BEHIND


def _intervals(found: Sequence[tuple[float, str]], verdict: str) -> str:
    """The runs of neighbouring values with this verdict: "0.01 to 0.04, 0.2"."""
    runs = [[at for at, _ in own] for each, own in groupby(found, key=lambda one: one[1]) if each == verdict]
    texts = (f"{run[0]:g}" if len(run) == 1 else f"{run[0]:g} to {run[-1]:g}" for run in runs)
    return ", ".join(texts) or DASH


def _scores(study: WrittenStudy, kind: str) -> list[Mapping[str, Any]]:
    return [score for stage in study.stages if stage["name"].split()[0] == kind for score in stage["scores"]]


def tuning_figure(study: WrittenStudy) -> Figure:
    """A panel for the screening and one for the full length, of the rows of each baseline.

    Values whose runs were lost are left out.
    """
    scores = {kind: _scores(study, kind) for kind in PANELS}
    key = study.declaration["key"]
    metric = next((score["metric"] for own in scores.values() for score in own if score["metric"]), "score")
    groups: dict[str | None, list[str]] = {}  # baseline -> labels
    for row in study.declaration["rows"]:
        groups.setdefault(row["baseline"], []).append(row["label"])
    panels = []
    for kind, own in scores.items():
        for labels in groups.values() if own else ():
            shared, names = _apart(labels)
            series = [replace(each, label=name) for each, name in zip(_series(labels, own), names, strict=True)]
            marks = _chosen(labels, study) if kind == "full" else ()
            title = f"{shared}, {PANELS[kind]}" if shared else PANELS[kind]
            what = f"{metric.replace('_', ' ')} on held-out training data"
            panels.append(Panel(key, what, [*series, *marks], title, log_x=True))
    num_lost = sum(score["mean"] is None for own in scores.values() for score in own)
    lost = [f"{num_lost} values are left out: of these at least one run diverged or failed."] if num_lost else []
    told = ["A mark is the chosen value of its row."] if study.answer else []
    title = f"Tuning of {key}, {study.name} at scale {study.scale}"
    return Figure(title, panels, [*told, *lost], columns=max(2, len(groups)))


def _apart(labels: Sequence[str]) -> tuple[str, list[str]]:
    """The words that all of these labels have, and each label without them."""
    words = [label.split() for label in labels]
    shared = [word for word in words[0] if len(words) > 1 and all(word in other for other in words)]
    return " ".join(shared), [" ".join(word for word in own if word not in shared) for own in words]


def settings_figure(study: WrittenStudy) -> Figure:
    """Of several keys that are tuned: a panel each, with the scores of the screening against its values."""
    scores = [score for score in _scores(study, "screen") if score["mean"] is not None]
    metric = next((score["metric"] for score in scores), "score")
    panels = []
    for key in study.declaration["key"].split():
        series = []
        for number, row in enumerate(study.declaration["rows"]):
            settings = [dict(word.split("=", 1) for word in setting) for setting in row["settings"]]
            own = [(settings[int(score["at"]) - 1], score) for score in scores if score["label"] == row["label"]]
            points = [(float(setting[key]), score["mean"]) for setting, score in own if key in setting]
            x, y = [at for at, _ in points], [mean for _, mean in points]
            series.append(Series(row["label"], x, y, "points", colour=number))
        is_log = min((at for each in series for at in each.x), default=0.0) > 0.0
        panels.append(Panel(key, f"{metric.replace('_', ' ')} on held-out training data", series, log_x=is_log))
    chosen = [f"{each['label']}: {' '.join(each['words'])}." for each in (study.answer or {"choices": []})["choices"]]
    return Figure(f"Tuning of {study.declaration['key']}, {PANELS['screen']}", panels, chosen, columns=2)


def _series(labels: Sequence[str], scores: Scores) -> list[Series]:
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


def _chosen(labels: Sequence[str], study: WrittenStudy) -> Iterator[Series]:
    """A mark at the chosen value of each row; none before the answer."""
    for choice in study.answer["choices"] if study.answer else ():
        if choice["label"] in labels and choice["value"] is not None:
            colour = labels.index(choice["label"])
            yield Series("", [choice["value"]], [choice["score"]], "points", colour=colour)
