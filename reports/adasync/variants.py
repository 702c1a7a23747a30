"""Figure 7 and the table of run times: the four variants against what the paper proves of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.adasync.runtimes import VARIANTS, Times, bound, distributions, largest, shapes, times_by
from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, published
from reports.statistics import Sample, ratio
from reports.tables import Column, Table
from syncline.timing import run_times

SIGNS = {"equality": "= ", "upper bound": "≤ ", "unproved": ""}


@dataclass(frozen=True, slots=True)
class Case:
    """A variant with one K under one distribution: what the paper proves of it, and what was simulated."""

    variant: str
    distribution: str
    k: int
    formula: run_times.RunTime
    ours: Sample | None  # seconds an update

    @property
    def variant_name(self) -> str:
        return str(published("adasync")["names"][self.variant])

    @property
    def place(self) -> str:
        return f"{published('adasync')['names'][self.distribution]}, K = {self.k}"

    @property
    def name(self) -> str:
        return f"{self.variant_name}, K = {self.k}, {published('adasync')['names'][self.distribution]}"

    @property
    def ratio(self) -> Sample | None:
        """Simulated time / the formula's."""
        return None if self.ours is None else self.ours / self.formula.seconds

    def printed(self, digits: int) -> str:
        return f"{SIGNS[self.formula.claim]}{self.formula.seconds:.{digits}f}"


def times_of(artefact: Artefact) -> Times:
    """(distribution, K) -> variant -> seconds an update."""
    return times_by(artefact, lambda run: int(run.config["strategy"]["k"]))


def cases(artefact: Artefact) -> list[dict[str, Case]]:
    """Of each distribution and K: variant -> case."""
    known, num_workers = distributions(artefact), artefact.runs[0].num_workers
    return [
        {
            variant: Case(variant, name, k, bound(variant, known[name], k, num_workers), by_variant.get(variant))
            for variant in published("adasync")["formulas"]
        }
        for (name, k), by_variant in times_of(artefact).items()
    ]


def proved_equal(of: Sequence[Case]) -> list[tuple[Case, float]]:
    """The cases with a proved equality, with the deviation of the simulated mean from it in per cent."""
    return [
        (case, 100.0 * (case.ratio.mean - 1.0))
        for case in of
        if case.ratio is not None and case.formula.claim == "equality"
    ]


def fig7_table(artefact: Artefact) -> Table:
    """What Figure 7 plots, each variant beside what the paper proves of it."""
    rows = cases(artefact)
    columns: list[Column[dict[str, Case]]] = [Column("a gradient takes", lambda row: row[VARIANTS[0]].place)]
    for variant in VARIANTS:
        columns += _columns(variant)
    every = [row[variant] for row in rows for variant in VARIANTS]
    over = [case for case in every if case.formula.claim == "upper bound" and _is_over(case)]
    lines = [
        shapes(artefact),
        f"P = {artefact.runs[0].num_workers}. What the paper proves of each variant: =, equality; ≤, an upper bound "
        "(of two the smaller); — nothing: Pareto times are not new-longer-than-used (Definition 3), which the bounds "
        "need.",
        largest(
            {f"{case.variant_name}, {case.place}": percent for case, percent in proved_equal(every)},
            "Where equality is proved, the simulated mean",
        ),
        f"Above a proved bound: {', '.join(f'{case.variant_name}, {case.place}' for case in over) or 'none'}.",
    ]
    return Table.of(f"AdaSync, Figure 7, at scale {artefact.scale}", rows, columns, lines + artefact.closing_notes, 5)


def _columns(variant: str) -> list[Column[dict[str, Case]]]:
    paper = published("adasync")
    return [
        Column(f"{paper['names'][variant]}: ours, s", lambda row: row[variant].ours, 3),
        Column(
            f"paper: {paper['formulas'][variant]}",
            lambda row: row[variant].printed(3) if SIGNS[row[variant].formula.claim] else None,
        ),
    ]


def _is_over(case: Case) -> bool:
    return case.ours is not None and case.ours.mean > case.formula.seconds * (1.0 + 1e-9)  # beyond rounding


def fig7(artefact: Artefact) -> Figure:
    """A panel a distribution. Points: simulated; solid lines: proved equal; dashed lines: proved upper bounds."""
    names, known = published("adasync")["names"], distributions(artefact)
    num_workers = artefact.runs[0].num_workers
    times = times_of(artefact)
    panels = []
    for name, of in known.items():
        series = []
        for position, variant in enumerate(VARIANTS):
            simulated = {k: by[variant] for (other, k), by in times.items() if other == name and variant in by}
            series.append(points(names[variant], simulated, position))
            for claim, style in (("equality", "-"), ("upper bound", "--")):
                formulas = {k: bound(variant, of, k, num_workers) for k in simulated}
                drawn = {k: formula.seconds for k, formula in formulas.items() if formula.claim == claim}
                if drawn:
                    series.append(Series("", list(drawn), list(drawn.values()), colour=position, style=style))
        panels.append(Panel("K", "virtual seconds an update", series, title=f"{names[name]}, P = {num_workers}"))
    title = (
        f"AdaSync, Figure 7: points simulated, {len(artefact.seeds)} seeds; lines the paper's equalities (solid) and "
        "upper bounds (dashed)"
    )
    return Figure(title, panels)


RUNTIMES: Sequence[Column[Case]] = (
    Column("variant", lambda case: case.name),
    Column("paper: formula", lambda case: str(published("adasync")["formulas"][case.variant])),
    Column("paper: s an update", lambda case: case.printed(4), 4),
    Column("ours: s an update", lambda case: case.ours, 4),
    Column("ours / paper's", lambda case: case.ratio, 3),
)


def runtime_table(artefact: Artefact) -> Table:
    """Every variant's formula, and what was simulated."""
    by_place = cases(artefact)
    rows = [row[variant] for variant in published("adasync")["formulas"] for row in by_place]
    lines = [
        f"P = {artefact.runs[0].num_workers}. =, an equality; ≤, an upper bound (of Lemmas 3 and 4 the smaller). For "
        "the exponential, which has no memory, all four are equalities.",
        shapes(artefact),
        largest(
            {case.name: percent for case, percent in proved_equal(rows)},
            "Where an equality is proved, the simulated mean",
        ),
        *artefact.closing_notes,
    ]
    return Table.of(f"AdaSync, run times of the variants, at scale {artefact.scale}", rows, RUNTIMES, lines)


def theorem2_table(artefact: Artefact) -> Table:
    """The gain from never being idle, for exponential times."""
    num_workers = artefact.runs[0].num_workers
    times = {k: by_variant for (name, k), by_variant in times_of(artefact).items() if name == "exponential"}
    columns: list[Column[int]] = [
        Column("exponential times", lambda k: f"K = {k}"),
        Column("Theorem 2: P (H_P - H_{P-K}) / K", lambda k: run_times.k_async_over_k_batch_async(k, num_workers), 3),
        Column("ours: K-async / K-batch-async", lambda k: over_batch(times[k], "k_async"), 3),
        Column("ours: K-sync / K-batch-sync", lambda k: over_batch(times[k], "k_sync"), 3),
    ]
    return Table.of(f"AdaSync, Theorem 2, at scale {artefact.scale}", times, columns, artefact.closing_notes)


def over_batch(times: Mapping[str, Sample], variant: str) -> Sample | None:
    """E[T] of k_sync or k_async over that of its batch variant, seed by seed; None if one was not run."""
    return ratio(times.get(variant), times.get(variant.replace("k_", "k_batch_")))
