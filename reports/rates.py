"""Accuracy against the rate of all tuning runs: is what staleness costs told by one number?

The number is rate * (staleness + 1) / (1 - momentum): how far the weights move, by gradients of full momentum, in the
time in which a gradient is computed and applied. A row's edge is the rate beyond its best one at which it has lost a
fifth of its best skill (reports/learned.py). If the number tells what staleness costs, then edges of rows that differ
in their staleness are alike in it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series
from reports.learned import chance
from reports.records import Run, artefact_of
from reports.tables import Heading, Table
from syncline.metrics import is_lower_better
from syncline.records.sources import Source
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy

KEPT = 0.8  # of the best skill, at the edge
SCREENING = "screen"  # the first word of the stages whose scores are compared: all rates, one seed, one length
RATE = "optimizer.lr"


@dataclass(frozen=True)
class TunedRow:
    """A row of a tuning study: the skill at each rate over the best one."""

    network: str  # of a sweep its model and data, of an experiment also the baseline
    staleness: float  # mean over its runs
    momentum: float
    skills: Mapping[float, float]  # rate, ascending -> skill over the row's best; 0 where a run was lost

    @property
    def scale(self) -> float:
        return (self.staleness + 1.0) / (1.0 - self.momentum)

    @property
    def best(self) -> float:
        return max(self.skills, key=self.skills.__getitem__)

    @cached_property
    def edge(self) -> float | None:
        """The rate, between two of the grid by its logarithm; None: the grid ends before."""
        beyond = [(rate, skill) for rate, skill in self.skills.items() if rate >= self.best]
        for (low, above), (high, below) in pairwise(beyond):
            if below < KEPT:
                return float(low * (high / low) ** ((above - KEPT) / (above - below)))
        return None


def rates(studies: Sequence[WrittenStudy], sources: Sequence[Source]) -> Exhibit:
    """Every row that learned, of the studies that tuned rates of SGD for several rows, against rate and number.

    Raises:
        RecordError: there is no such study, or a record of one is missing.
    """
    found = [row for study in studies if _is_of_rates(study) for row in _rows(study, sources)]
    if not found:
        raise RecordError("no study has tuned the rates of several rows at this scale")
    return {"": _spreads(found), "figure": _figure(found)}


def _is_of_rates(study: WrittenStudy) -> bool:
    if study.kind != "tune" or study.declaration["key"] != RATE:
        return False
    rows = study.declaration["rows"]
    return len(rows) > 2 and not rows[0]["settings"]


def _rows(study: WrittenStudy, sources: Sequence[Source]) -> Iterator[TunedRow]:
    plan = next((plan for source in sources if (plan := source.plan(study.plan)) is not None), None)
    if plan is None:
        raise RecordError(f"{study.plan}: no such plan")
    made = artefact_of(study.plan, study.scale, {}, plan.runs, sources)
    if made.missing:
        raise RecordError(f"{study.plan}: {made.missing[0]} is missing")
    runs: dict[str, list[Run]] = {}
    for run in made.runs:
        runs.setdefault(run.label.rsplit("/", 2)[0], []).append(run)  # without its value and stage
    scores = [score for stage in study.stages if stage["name"].startswith(SCREENING) for score in stage["scores"]]
    baselines = {row["label"]: row["baseline"] or row["label"] for row in study.declaration["rows"]}
    for label, own in runs.items():
        learned = own[0]
        if "momentum" not in learned.config["optimizer"]:
            continue  # the number is one of SGD
        without, perfect = chance(learned), 0.0 if is_lower_better(learned.summary) else 1.0
        means = {score["at"]: score["mean"] for score in scores if score["label"] == label}
        skills = {at: 0.0 if mean is None else (mean - without) / (perfect - without) for at, mean in means.items()}
        best = max(skills.values())
        if best <= 0.0:
            continue  # it learned at no rate
        staleness = math.fsum(run.number("mean_staleness") for run in own) / len(own)
        momentum = float(learned.config["optimizer"]["momentum"])
        found = {at: skills[at] / best for at in sorted(skills)}
        workload = " on ".join(learned.config[part]["name"] for part in ("model", "dataset"))
        network = f"{study.name} ({baselines[label]})" if study.is_of_experiment else workload
        yield TunedRow(network, staleness, momentum, found)


def _figure(found: Sequence[TunedRow]) -> Figure:
    networks = _networks(found)
    first = {row.network: row for row in reversed(found)}

    def series(is_scaled: bool) -> list[Series]:
        return [
            Series(
                row.network if row is first[row.network] else "",
                [rate * (row.scale if is_scaled else 1.0) for rate in row.skills],
                list(row.skills.values()),
                colour=networks.index(row.network),
                style="--" if row.staleness == 0.0 else "-",
            )
            for row in found
        ]

    label = "skill / the row's best"
    panels = [
        Panel("rate", label, series(False), "against the rate", log_x=True),
        Panel("rate (staleness + 1) / (1 - momentum)", label, series(True), "against the number", log_x=True),
    ]
    notes = ["A line a row, a colour a network. Dashed: synchronous, no staleness. One seed, a third of the length."]
    return Figure("Tuning runs of all papers: what staleness does to the rate", panels, notes, columns=2)


def _spreads(found: Sequence[TunedRow]) -> Table:
    """By which factor edges differ from one row to another, as rates and in the number: of a network, and of all."""
    networks = {network: [row for row in found if row.network == network] for network in _networks(found)}
    rows: list[list[Any]] = []
    for name, of in [*networks.items(), ("all", list(found))]:
        for kind, chosen in (("all rows", of), ("with staleness", [row for row in of if row.staleness > 0.0])):
            edges = [(row.edge, row.edge * row.scale) for row in chosen if row.edge is not None]
            if len(edges) > 1:
                sides = list(zip(*edges, strict=True))
                factors = [max(side) / min(side) for side in sides]
                rows.append([name, kind, float(len(edges)), factors[0], min(sides[1]), max(sides[1]), factors[1]])
    headings = [
        *map(Heading, ("network (its baseline)", "rows")),
        Heading("n", digits=0),
        Heading("largest / smallest edge, rate", digits=1),
        *(Heading(name, digits=2) for name in ("smallest, the number", "largest")),
        Heading("largest / smallest", digits=1),
    ]
    lost = 100.0 * (1.0 - KEPT)
    title = f"How far the edges are apart: the rates at which rows have lost {lost:.0f} % of their best skill"
    return Table(title, headings, rows)


def _networks(found: Sequence[TunedRow]) -> list[str]:
    return list(dict.fromkeys(row.network for row in found))
