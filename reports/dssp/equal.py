"""Figure 3, four equal servers: accuracy against time, its numbers, times alone, and readings of the rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from reports.dssp.runs import AVERAGE, Network, learning, networks, threshold
from reports.figures import Figure, Panel, Series, curve
from reports.measures import in_summary
from reports.records import Artefact, Run, published
from reports.settings import learned_with
from reports.statistics import Sample
from reports.tables import DASH, Column, Table

ALL = ("bsp", "asp", AVERAGE, "dssp", "dssp_hard")  # of panels a, c, e
LETTERS = (("a", "b"), ("c", "d"), ("e", "f"))


def fig3(artefact: Artefact) -> Figure:
    """Two panels a network: all paradigms with the average of the SSPs, and DSSP with each SSP."""
    panels = []
    for (left, right), of in zip(LETTERS, learning(artefact), strict=False):
        about = f"{of.name} (here {_learned_with(of)})"
        shown = [name for name in ALL if (name, "") in of.learned or (name == AVERAGE and of.thresholds)]
        every = [_series(of, name, ALL.index(name)) for name in shown]
        thresholds = [_series(of, name, 1 + position, False) for position, name in enumerate(of.thresholds)]
        for title, series in (
            (f"({left}) {about}: all", every),
            (f"({right}) {about}: DSSP and SSPs", [_series(of, "dssp", 0), *thresholds]),
        ):
            panels.append(Panel("virtual time, s", "test accuracy", series, title))
    title = f"DSSP, Figure 3, at scale {artefact.scale}: {len(artefact.seeds)} seeds"
    return Figure(title, panels, columns=2)


@dataclass(frozen=True, slots=True)
class Paradigm:
    """One paradigm on one network in one reading: a row of the tables."""

    of: Network
    name: str
    reading: str = ""

    @property
    def final(self) -> Sample:
        return self.of.final(self.name, self.reading)

    @property
    def to_goal(self) -> Sample:
        return self.of.seconds_to_goal(self.name, self.reading)

    @property
    def run(self) -> Run:
        """One with gradients; the others differ by the seed alone."""
        return self.of.learned[self.name, self.reading][0]


TABLE: Sequence[Column[Paradigm]] = (
    Column("network, paradigm", lambda row: f"{row.of.name}: {title_of(row.name, row.of)}"),
    Column("accuracy at the end, %", lambda row: row.final),
    Column("s to the target", lambda row: row.to_goal, show_n=True),
    Column("time / BSP's", lambda row: row.to_goal / row.of.seconds_to_goal("bsp"), 2, show_n=True),
    Column("largest lead", lambda row: _of_one_run(row, "max_lead"), 0),
    Column("mean staleness", lambda row: _of_one_run(row, "mean_staleness"), 2),
)


def fig3_table(artefact: Artefact) -> Table:
    """What Figure 3 shows, in numbers. The text gives none for it."""
    rows = []
    for of in learning(artefact):
        names = [name for name in ALL if (name, "") in of.learned]
        names += [*([AVERAGE] if of.thresholds else []), *of.thresholds]
        rows += [Paradigm(of, name) for name in names]
    return Table.of_artefact(artefact, "DSSP, Figure 3 in numbers", rows, TABLE, _notes(artefact))


def _of_one_run(row: Paradigm, key: str) -> Sample | None:
    """A number of the summaries; None of the average of several runs."""
    return None if row.name == AVERAGE else row.of.of_learned(in_summary(key), row.name)


def title_of(paradigm: str, of: Network) -> str:
    """As the paper names it."""
    if paradigm == AVERAGE:
        return f"average of {len(of.thresholds)} SSPs"
    return f"SSP s={threshold(paradigm)}" if paradigm in of.thresholds else str(published("dssp")["names"][paradigm])


def _learned_with(of: Network) -> str:
    run = next((run for runs in of.learned.values() for run in runs), None)
    return "not run yet" if run is None else learned_with(run.config)


def _series(of: Network, paradigm: str, position: int, has_band: bool = True) -> Series:
    curves = list(of.curves(paradigm).values())
    title = title_of(paradigm, of)
    if not curves:
        return Series(title, [], [], colour=position)
    series = curve(title, curves, position)
    return series if has_band else replace(series, low=None, high=None)


def _notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    first = artefact.first_learned
    about = {
        "networks": "; ".join(f"{_learned_with(of)} in place of {of.name}" for of in learning(artefact)),
        "std": 100 * first.config["cluster"]["jitter"]["std"],
        "goals": "; ".join(f"{of.name} {DASH if of.goal is None else f'{of.goal:g}'}" for of in learning(artefact)),
    }
    return [note.format(**about) for note in published("dssp")["notes"]["fig3"]]


# Times alone.

MICROSECONDS = 1e6


def times_table(artefact: Artefact) -> Table:
    """Seconds of an epoch at the paper's size, and how slow a server would have to be to reverse their order."""

    def to_bsp(of: Network, name: str) -> Sample:
        return of.seconds_an_epoch(name) / of.seconds_an_epoch("bsp")

    def a_tensor(of: Network) -> Sample:
        tensors: int = artefact.report["tensors"][of.key]
        return MICROSECONDS / tensors * turning_point(of)

    columns = [
        Column("network", lambda of: of.name),
        Column("BSP: s an epoch", lambda of: of.seconds_an_epoch("bsp"), 2),
        Column("SSPs' average / BSP's", lambda of: to_bsp(of, AVERAGE), 4),
        Column("DSSP's / BSP's", lambda of: to_bsp(of, "dssp"), 4),
        Column("DSSP's, bound=hard / BSP's", lambda of: to_bsp(of, "dssp_hard"), 4),
        Column("ASP's / BSP's", lambda of: to_bsp(of, "asp"), 4),
        Column("ASP: largest lead", lambda of: of.of_alone(in_summary("max_lead"), "asp")),
        Column("reversed at, ms an update", lambda of: 1e3 * turning_point(of), 2),
        Column("the same, µs a tensor", a_tensor, 0),
    ]
    title = "DSSP, Figure 3: times on equal servers"
    return Table.of_artefact(artefact, title, networks(artefact).values(), columns, published("dssp")["notes"]["times"])


def turning_point(of: Network) -> Sample:
    """Seconds an update of a server that works on one at a time, at which ASP takes as long as BSP."""
    return of.of_alone(lambda run: run.seconds_an_update / (run.num_workers - 1), "bsp")


# Readings of the rate.

READINGS_TABLE: Sequence[Column[Paradigm]] = (
    Column("network, paradigm", lambda row: f"{row.of.name}: {published('dssp')['names'][row.name]}"),
    Column("rate", lambda row: row.run.config["optimizer"]["lr"], 4),
    Column("lr_clock", lambda row: row.run.config["lr_clock"]),
    Column("async_gradient", lambda row: row.run.config["async_gradient"]),
    Column("rate drops after epoch", lambda row: row.of.of_learned(first_drop, row.name, row.reading), 2),
    Column("accuracy at the end, %", lambda row: row.final),
    Column("above BSP's at this rate, points", lambda row: row.final - bsp_at_its_rate(row)),
    Column("s to the target", lambda row: row.to_goal, show_n=True),
    Column("time / BSP's", lambda row: row.to_goal / row.of.seconds_to_goal("bsp"), 2, show_n=True),
)


def readings_table(artefact: Artefact) -> Table:
    """The effect of the stock script's clock, and of gradients as small as BSP's."""
    rows = [
        Paradigm(of, *place)
        for of in learning(artefact)
        if any(reading for _, reading in of.learned)
        for place in product(("bsp", "asp", "ssp_s3", "dssp"), ("", "clock", "share", "paper"))
        if place in of.learned
    ]
    return Table.of_artefact(
        artefact, "DSSP, Figure 3: readings of the rate", rows, READINGS_TABLE, published("dssp")["notes"]["readings"]
    )


def bsp_at_its_rate(row: Paradigm) -> Sample:
    """The end of BSP with the rate of this one."""
    return row.of.final("bsp", row.reading if ("bsp", row.reading) in row.of.learned else "")


def first_drop(run: Run) -> float | None:
    """The epoch of the first evaluation after which updates were applied at a lower rate; None if there is none."""
    epochs, rates = run.curve("learning_rate", "epoch")
    return next((epoch for epoch, rate in zip(epochs, rates, strict=True) if rate < rates[0]), None)
