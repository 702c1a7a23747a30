"""Table I and Figure 4: ResNet-110 on two unequal GPUs."""

from collections.abc import Callable, Mapping
from typing import Any

from reports.figures import Figure, Panel, Points, Series, curve
from reports.measures import PERCENT, Target, best, fixed_target, in_summary
from reports.records import Artefact, Run, published
from reports.settings import learned_with
from reports.statistics import Sample, Times, ratio
from reports.tables import DASH, Column, Measured, Table
from reports.targets import over_all_targets, ratios_over_targets

A_POINT = 0.01  # the higher target is a point above the lower one


def accuracy(run: Run) -> Points:
    return run.curve("accuracy")


def target(artefact: Artefact) -> Target:
    """The lower target."""
    return fixed_target(artefact, accuracy)


def higher_target(artefact: Artefact) -> Target:
    low = artefact.target()
    return Target(None if low is None else round(low + A_POINT, 4), accuracy)


def has_papers_targets(artefact: Artefact) -> bool:
    return bool(artefact.target() == published("dssp")["table1"]["targets"]["low"])


def restricted_times(artefact: Artefact, *paradigms: str) -> Times[str]:
    """Virtual seconds to the lower target of these and of BSP, as `restricted` takes them.

    Raises:
        LookupError: the scale has no fixed target, or a paradigm no runs.
    """
    rows = artefact.by("paradigm", timed=False)
    every = {paradigm: rows[paradigm] for paradigm in ("bsp", *paradigms)}
    return target(artefact).restricted(artefact, every)


def alone(artefact: Artefact) -> dict[str, Sample]:
    """Paradigm -> virtual seconds to epoch 200 at the paper's own size."""
    return artefact.samples(in_summary("time_s"), artefact.by("paradigm", timed=True))


def table1(artefact: Artefact) -> Table:
    """Table I: the published seconds beside ours."""
    rows, timed, printed = artefact.by("paradigm", timed=False), alone(artefact), published("dssp")["table1"]["rows"]
    low, high = target(artefact), higher_target(artefact)
    ours = Measured(artefact, rows)

    def theirs(key: str, per: float = 1.0) -> Callable[[str], float | None]:
        return lambda paradigm: None if (seconds := printed.get(paradigm, {}).get(key)) is None else seconds / per

    def to_bsp(paradigm: str) -> Sample | None:
        seconds = {name: artefact.sample(rows[name], low.time) for name in (paradigm, "bsp") if name in rows}
        return ratio(seconds[paradigm], seconds.get("bsp"))

    low_name, high_name = (DASH if one.level is None else f"{one.level:g}" for one in (low, high))
    columns: list[Column[str]] = [
        Column("paradigm", lambda paradigm: str(published("dssp")["names"][paradigm])),
        Column("paper: s to 0.67", theirs("low")),
        Column("paper: s to 0.68", theirs("high")),
        Column("ours: s to epoch 200, paper's size, times alone", timed.get, 0),
        ours.column(f"ours: s to {low_name}", low.time, show_n=True),
        ours.column(f"ours: s to {high_name}", high.time, show_n=True),
        Column("paper: time / BSP's", theirs("low", printed["bsp"]["low"]), 2),
        Column("ours: time / BSP's", to_bsp, 2, show_n=True),
        ours.column("best accuracy, %", best("accuracy", PERCENT)),
        ours.column("largest lead", in_summary("max_lead"), 0),
        ours.column("mean staleness", in_summary("mean_staleness"), 2),
    ]
    return Table.of_artefact(artefact, "DSSP, Table I", rows, columns, _notes(artefact))


def _notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    config, about = artefact.first_learned.config, published("dssp")["notes"]
    if has_papers_targets(artefact):
        targets = "Targets: the published accuracies 0.67 and 0.68."
    elif artefact.target() is not None:
        targets = "Targets: fixed beforehand, 95 % of BSP's mean accuracy, and a point above it."
    else:
        targets = "Targets: none is fixed at this scale."
    return [about["learned"].format(learned=learned_with(config)), targets, about["bounds"]]


def over_targets(artefact: Artefact) -> Figure:
    """Times over BSP's to every target."""
    rows, names = artefact.by("paradigm", timed=False), published("dssp")["names"]
    others = {str(names[paradigm]): runs for paradigm, runs in rows.items() if paradigm != "bsp"}
    panel = ratios_over_targets(artefact, others, rows.get("bsp", []), target(artefact), "test accuracy")
    return over_all_targets("DSSP, Table I: time to a target over BSP's, by the target", [panel], "BSP")


def fig4(artefact: Artefact) -> Figure:
    """Figure 4: accuracy against time, a curve a paradigm; stars at the published times of Table I where they apply."""
    paper, rows = published("dssp"), artefact.by("paradigm", timed=False)
    series = [
        curve(paper["names"][paradigm], list(map(accuracy, runs)), position)
        for position, (paradigm, runs) in enumerate(rows.items())
    ]
    if has_papers_targets(artefact):
        series.append(_stars(paper["table1"]))
    first = artefact.first_learned
    title = f"DSSP, Figure 4, at scale {artefact.scale}: {learned_with(first.config)}, {len(artefact.seeds)} seeds"
    return Figure(title, [Panel(f"{first.summary['time_kind']} time, s", "test accuracy", series)])


def _stars(printed: Mapping[str, Any]) -> Series:
    """Seconds and accuracies of Table I; only where the target is the paper's they lie in our axes."""
    pairs = [
        (row[key], accuracy)
        for row in printed["rows"].values()
        for key, accuracy in printed["targets"].items()
        if row[key] is not None
    ]
    return Series("paper, Table I", [x for x, _ in pairs], [y for _, y in pairs], "points", published=True)
