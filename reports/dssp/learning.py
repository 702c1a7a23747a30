"""Figure 3 and its numbers: accuracy against time on four equal servers."""

from collections.abc import Sequence
from dataclasses import replace

from reports.dssp.runs import AVERAGE, Network, Paradigm, learned_with, networks, threshold
from reports.figures import Figure, Panel, Series, curve
from reports.records import Artefact, in_summary, published
from reports.statistics import Sample
from reports.tables import Column, Table

ALL = ("bsp", "asp", AVERAGE, "dssp", "dssp_hard")  # of panels a, c, e
LETTERS = (("a", "b"), ("c", "d"), ("e", "f"))


def fig3(artefact: Artefact) -> Figure:
    """Two panels a network: all paradigms with the average of the SSPs, and DSSP with each SSP."""
    panels = []
    for (left, right), of in zip(LETTERS, networks(artefact).values(), strict=False):
        about = f"{of.name} (here {_learned_with(of)})"
        shown = [name for name in ALL if name in of.learned or (name == AVERAGE and of.thresholds)]
        every = [_series(of, name, ALL.index(name)) for name in shown]
        thresholds = [_series(of, name, 1 + position, False) for position, name in enumerate(of.thresholds)]
        for title, series in (
            (f"({left}) {about}: all", every),
            (f"({right}) {about}: DSSP and SSPs", [_series(of, "dssp", 0), *thresholds]),
        ):
            panels.append(Panel("virtual time, s", "test accuracy", series, title))
    title = f"DSSP, Figure 3, at scale {artefact.scale}: {len(artefact.seeds)} seeds"
    return Figure(title, panels, columns=2)


TABLE: Sequence[Column[Paradigm]] = (
    Column("network, paradigm", lambda row: f"{row.of.name}: {title_of(row.name, row.of)}"),
    Column("accuracy at the end, %", lambda row: row.of.final(row.name)),
    Column("s to BSP's best", lambda row: row.to_goal, show_n=True),
    Column("time / BSP's", lambda row: row.to_goal / row.of.seconds_to_goal("bsp"), 2, show_n=True),
    Column("largest lead", lambda row: _of_one_run(row, "max_lead"), 0),
    Column("mean staleness", lambda row: _of_one_run(row, "mean_staleness"), 2),
)


def fig3_table(artefact: Artefact) -> Table:
    """What Figure 3 shows, in numbers. The text gives none for it."""
    rows = []
    for of in networks(artefact).values():
        names = [*(name for name in ALL if name in of.learned), *([AVERAGE] if of.thresholds else []), *of.thresholds]
        rows += [Paradigm(of, name) for name in names]
    return Table.of_artefact(artefact, "DSSP, Figure 3 in numbers", rows, TABLE, _notes(artefact))


def _of_one_run(row: Paradigm, key: str) -> Sample | None:
    """A number of the summaries; None of the average of several runs."""
    return None if row.name == AVERAGE else row.of.learning_runs(row.name, in_summary(key))


def title_of(paradigm: str, of: Network) -> str:
    """As the paper names it."""
    name, _, reading = paradigm.partition("/")
    names = published("dssp")["names"]
    if name == AVERAGE:
        title = f"average of {len(of.thresholds)} SSPs"
    elif name.startswith("ssp_s"):
        title = f"SSP s={threshold(name)}"
    else:
        title = names[name]
    return f"{title}, {reading}" if reading else title


def _learned_with(of: Network) -> str:
    run = next((run for runs in of.learned.values() for run in runs.values()), None)
    return "not run yet" if run is None else learned_with(run.config)


def _series(of: Network, paradigm: str, position: int, has_band: bool = True) -> Series:
    curves = [drawn for drawn in of.each(lambda seed: of.curve(paradigm, seed)) if drawn is not None]
    title = title_of(paradigm, of)
    if not curves:
        return Series(title, [], [], colour=position)
    series = curve(title, curves, position)
    return series if has_band else replace(series, low=None, high=None)


def _notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    first = next(run for run in artefact.runs if run.config["gradients"])
    goals = [
        f"{of.name} {', '.join('—' if goal is None else f'{goal:.2f}' for goal in values)}"
        for of in networks(artefact).values()
        if (values := of.each(of.goal))
    ]
    return [
        "The paper prints no number of Figure 3. Seconds are virtual: the epochs until an evaluation times the seconds "
        "an epoch takes with the paper's network, 50,000 images and batches of 128 (times alone).",
        "Learned with: "
        + "; ".join(f"{_learned_with(of)} in place of {of.name}" for of in networks(artefact).values())
        + f". Gradients' times vary by {100 * first.config['cluster']['jitter']['std']:g} % here: with the 3 % of the "
        "paper's cluster no lead would pass s = 3 in so few gradients, and all asynchronous paradigms would be one.",
        "The target is the best accuracy that BSP reaches under the same seed, cut to whole per cent: "
        f"{'; '.join(goals)}.",
        "SSP is averaged over the thresholds that are shown here; the paper averages thirteen, s = 3 to 15.",
    ]
