"""Figure 7 and the table of run times: the four variants against what the paper proves of them."""

from collections.abc import Mapping

from reports.adasync.runtimes import VARIANTS, Times, against, bound, distributions, largest, shapes, times_by
from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series, points
from reports.records import Artefact, published
from reports.statistics import Sample, paired_ratio
from reports.tables import Column, Table, Value
from syncline.timing import run_times

SIGNS = {"equality": "= ", "upper bound": "≤ ", "unproved": ""}


def times_of(artefact: Artefact) -> Times:
    """(distribution, K) -> variant -> seconds an update."""
    return times_by(artefact, ("strategy", "k"))


def fig7_table(artefact: Artefact) -> Table:
    """What Figure 7 plots, each variant beside what the paper proves of it."""
    paper, known = published("adasync"), distributions(artefact)
    num_workers = artefact.runs[0].config["cluster"]["workers"]
    body: list[list[Value]] = []
    equalities: list[tuple[str, Value]] = []
    over: list[str] = []  # simulated means above a bound
    for (name, k), times in times_of(artefact).items():
        row: list[Value] = [f"{paper['names'][name]}, K = {k}"]
        for variant in VARIANTS:
            formula, ours = bound(variant, known[name], k, num_workers), times.get(variant)
            row += [ours, f"{SIGNS[formula.claim]}{formula.seconds:.3f}" if SIGNS[formula.claim] else None]
            if ours is None:
                continue
            where = f"{paper['names'][variant]}, {row[0]}"
            if formula.claim == "equality":
                equalities.append((where, 100.0 * (ours.mean / formula.seconds - 1.0)))
            elif formula.claim == "upper bound" and ours.mean > formula.seconds * (1.0 + 1e-9):  # but for rounding
                over.append(where)
        body.append(row)
    columns = [Column("a gradient takes")]
    for variant in VARIANTS:
        columns += [Column(f"{paper['names'][variant]}: ours, s", 3), Column(f"paper: {paper['formulas'][variant]}")]
    lines = [
        shapes(artefact),
        f"P = {num_workers}. What the paper proves of each variant: =, equality; ≤, an upper bound (of two the "
        "smaller); — nothing: Pareto times are not new-longer-than-used (Definition 3), which the bounds need.",
        largest(equalities, "Where equality is proved, the simulated mean"),
        f"Above a proved bound: {', '.join(over) or 'none'}.",
    ]
    return Table(f"AdaSync, Figure 7, at scale {artefact.scale}", columns, body, lines + artefact.closing_notes, 5)


def fig7(artefact: Artefact) -> Figure:
    """A panel a distribution. Points: simulated; solid lines: proved equal; dashed lines: proved upper bounds."""
    names, known = published("adasync")["names"], distributions(artefact)
    num_workers = artefact.runs[0].config["cluster"]["workers"]
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


def runtime_table(artefact: Artefact) -> Table:
    """Every variant's formula, and what was simulated."""
    paper, known = published("adasync"), distributions(artefact)
    num_workers = artefact.runs[0].config["cluster"]["workers"]
    times = times_of(artefact)
    body: list[list[Value]] = []
    deviations: list[tuple[str, Value]] = []
    for variant in paper["formulas"]:
        for (name, k), by_variant in times.items():
            formula, ours = bound(variant, known[name], k, num_workers), by_variant.get(variant)
            ratio = None if ours is None else against(ours, formula.seconds)
            what = f"{paper['names'][variant]}, K = {k}, {paper['names'][name]}"
            if ratio is not None and formula.claim == "equality":
                deviations.append((what, 100.0 * (ratio.mean - 1.0)))
            shown = f"{SIGNS[formula.claim]}{formula.seconds:.4f}"
            body.append([what, paper["formulas"][variant], shown, ours, ratio])
    columns = [
        Column("variant"),
        Column("paper: formula"),
        Column("paper: s an update", 4),
        Column("ours: s an update", 4),
        Column("ours / paper's", 3),
    ]
    lines = [
        f"P = {num_workers}. =, an equality; ≤, an upper bound (of Lemmas 3 and 4 the smaller). For the exponential, "
        "which has no memory, all four are equalities.",
        shapes(artefact),
        largest(deviations, "Where an equality is proved, the simulated mean"),
        *artefact.closing_notes,
    ]
    return Table(f"AdaSync, run times of the variants, at scale {artefact.scale}", columns, body, lines)


def theorem2_table(artefact: Artefact) -> Table:
    """What never being idle is worth, for exponential times."""
    num_workers = artefact.runs[0].config["cluster"]["workers"]
    body: list[list[Value]] = []
    for (name, k), times in times_of(artefact).items():
        if name == "exponential":
            formula = run_times.k_async_over_k_batch_async(k, num_workers)
            ours = [ratio_of(times, variant) for variant in ("k_async", "k_sync")]
            body.append([f"K = {k}", formula, *ours])
    columns = [
        Column("exponential times"),
        Column("Theorem 2: P (H_P - H_{P-K}) / K", 3),
        Column("ours: K-async / K-batch-async", 3),
        Column("ours: K-sync / K-batch-sync", 3),
    ]
    return Table(f"AdaSync, Theorem 2, at scale {artefact.scale}", columns, body, artefact.closing_notes)


def ratio_of(times: Mapping[str, Sample], variant: str) -> Sample | None:
    """E[T] of k_sync or k_async over that of its batch variant, seed by seed; None if one was not run."""
    own, batch = times.get(variant), times.get(variant.replace("k_", "k_batch_"))
    return None if own is None or batch is None else paired_ratio(own.values, batch.values)


def show_table_runtime(artefact: Artefact) -> Exhibit:
    return {"": runtime_table(artefact), "theorem2": theorem2_table(artefact)}


def show_fig7(artefact: Artefact) -> Exhibit:
    return {"": fig7(artefact), "table": fig7_table(artefact)}
