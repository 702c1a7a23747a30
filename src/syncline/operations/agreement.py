"""Whether one's own runs agree with those of the reference: row by row of a plan, number by number, with a test.

Where two seeds or more are shared, Student's test of the differences by seed; else, or where all differences are the
same, Student's two-sample test, which takes both sides to have one spread, as runs of the same settings have. Holm's
procedure corrects for the number of tests, those of equal numbers included: if all numbers come from the same normal
distributions on both sides, one of them is said to differ with probability LEVEL at most. With one seed on a side and a
skewed distribution it is more.

A number without any spread over seeds, as a time without chance, cannot be tested. It is told apart where it is another
one, which has a verdict of its own.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncline.records.plans import WrittenPlan
from syncline.records.sources import Source
from syncline.statistics import holm, mean_p, two_sample_p

EQUAL, WITHIN, DIFFERS = "equal in every digit", "within the spread", "differs"
CONSTANT = "differs, without any spread"
UNKNOWN = "too few seeds"
ALARMS = (DIFFERS, CONSTANT)
LEVEL = 0.05  # of all comparisons together
ROUNDING = 1e-9  # relative: another processor may add in another order

Numbers = Mapping[int, float]  # seed -> one number of its run


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number of one row, on both sides."""

    plan: str
    row: str
    number: str
    own: Numbers
    reference: Numbers
    p: float  # of the two-sided test; 1 for equal numbers, nan where there is no test
    verdict: str = UNKNOWN


def _of_metric(part: str) -> Callable[[Mapping[str, Any]], Any]:
    def read(summary: Mapping[str, Any]) -> Any:
        if summary.get(part) is None:
            return None
        found = summary[part][summary["metric"]]
        return found["value"] if part == "best" else found

    return read


NUMBERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "final": _of_metric("final"),
    "best": _of_metric("best"),
    "time_s": lambda summary: summary["time_s"],
    "updates": lambda summary: summary["updates"],
    "mean_staleness": lambda summary: summary["mean_staleness"],
}


def compare_plans(plans: Sequence[tuple[WrittenPlan, Source, WrittenPlan, Source]]) -> list[Comparison]:
    """All comparisons of these plans, each beside that of the reference, with verdicts.

    Args:
        plans: own plan and where its runs are, the reference's and where its runs are.

    Raises:
        RecordError: a record is broken.
    """
    return judged([one for sides in plans for one in _compared(*sides)])


def _compared(own: WrittenPlan, source: Source, other: WrittenPlan, reference: Source) -> Iterator[Comparison]:
    ours, theirs = _rows(own, source), _rows(other, reference)
    for row in (row for row in ours if row in theirs):
        for number, read in NUMBERS.items():
            sides = _finite(ours[row], read), _finite(theirs[row], read)
            if all(sides):
                yield Comparison(own.stem, row, number, *sides, p_value(*sides))


def _rows(plan: WrittenPlan, source: Source) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Row -> seed -> summary of its finished run."""
    rows: dict[str, dict[int, Mapping[str, Any]]] = {}
    for run in plan.runs:
        if (record := source.record(run.identity)) is not None:
            rows.setdefault(run.label, {})[run.seed] = record.summary()
    return rows


def _finite(summaries: Mapping[int, Mapping[str, Any]], read: Callable[[Mapping[str, Any]], Any]) -> Numbers:
    values = {seed: read(summary) for seed, summary in summaries.items()}
    return {seed: float(value) for seed, value in values.items() if value is not None and math.isfinite(value)}


def p_value(own: Numbers, reference: Numbers) -> float:
    """Of the two-sided test that this file describes; nan where there is no spread, or one seed on each side.

    Args:
        own: at least one.
        reference: at least one.
    """
    shared = sorted(own.keys() & reference.keys())
    if shared and all(own[seed] == reference[seed] for seed in shared):
        return 1.0
    slack = ROUNDING * max(map(abs, (*own.values(), *reference.values())))
    differences = [own[seed] - reference[seed] for seed in shared]
    if differences and max(map(abs, differences)) <= slack:
        return 1.0
    if len(shared) > 1 and max(differences) - min(differences) > slack:
        return min(1.0, 2.0 * min(mean_p(differences, 0.0, "less"), mean_p(differences, 0.0, "greater")))
    sides = [*own.values()], [*reference.values()]
    if all(max(side) - min(side) <= slack for side in sides):
        return math.nan if abs(sides[0][0] - sides[1][0]) > slack else 1.0
    return two_sample_p(*sides)


def judged(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same with their verdicts, corrected for their number."""
    tested = [one for one in comparisons if not math.isnan(one.p)]
    rejected = holm([one.p for one in tested], lambda num_tests: LEVEL / num_tests)
    differs = [tested[position] for position in rejected]
    return [replace(one, verdict=DIFFERS if one in differs else _verdict(one)) for one in comparisons]


def _verdict(one: Comparison) -> str:
    """Of numbers that do not differ, or that could not be tested."""
    shared = one.own.keys() & one.reference.keys()
    if math.isnan(one.p):
        smaller, larger = sorted((len(one.own), len(one.reference)))
        return CONSTANT if smaller > 1 or (shared and larger > 1) else UNKNOWN
    return EQUAL if shared and all(one.own[seed] == one.reference[seed] for seed in shared) else WITHIN
