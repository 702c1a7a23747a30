"""Figure 3 and its numbers: accuracy against time on four equal servers."""

from collections.abc import Sequence
from dataclasses import replace

from reports.dssp.equal import AVERAGE, Network, networks, threshold
from reports.dssp.goals import network
from reports.dssp.times import readings_table, times_table
from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series, curve
from reports.records import Artefact, published
from reports.statistics import paired_ratio
from reports.tables import Column, Table, Value

ALL = ("bsp", "asp", AVERAGE, "dssp", "dssp_hard")  # of panels a, c, e
LETTERS = (("a", "b"), ("c", "d"), ("e", "f"))


def fig3(artefact: Artefact) -> Figure:
    """Two panels a network: all paradigms with the average of the SSPs, and DSSP with each SSP."""
    panels = []
    for (left, right), (key, of) in zip(LETTERS, networks(artefact).items(), strict=False):
        about = f"{published('dssp')['networks'][key]} (here {_learned_with(of)})"
        shown = [name for name in ALL if name in of.learned or (name == AVERAGE and of.thresholds)]
        panels.append(_panel(f"({left}) {about}: all", [_series(of, name, ALL.index(name)) for name in shown]))
        thresholds = [_series(of, name, 1 + position, False) for position, name in enumerate(of.thresholds)]
        panels.append(_panel(f"({right}) {about}: DSSP and SSPs", [_series(of, "dssp", 0), *thresholds]))
    title = f"DSSP, Figure 3, at scale {artefact.scale}: {len(artefact.seeds)} seeds"
    return Figure(title, panels, columns=2)


def fig3_table(artefact: Artefact) -> Table:
    """What Figure 3 shows, in numbers. The text gives none for it."""
    body: list[list[Value]] = []
    for key, of in networks(artefact).items():
        by_bsp = of.seconds_to_goal("bsp")
        for name in [
            *(name for name in ALL if name in of.learned),
            *([AVERAGE] if of.thresholds else []),
            *of.thresholds,
        ]:
            reached = of.seconds_to_goal(name)
            body.append(
                [
                    f"{published('dssp')['networks'][key]}: {title_of(name, of)}",
                    of.final(name),
                    reached,
                    paired_ratio(reached.values, by_bsp.values),
                    None if name == AVERAGE else of.in_summary(name, "max_lead"),
                    None if name == AVERAGE else of.in_summary(name, "mean_staleness"),
                ]
            )
    columns = [
        Column("network, paradigm"),
        Column("accuracy at the end, %", 1),
        Column("s to BSP's best", 1, show_n=True),
        Column("time / BSP's", 2, show_n=True),
        Column("largest lead", 0),
        Column("mean staleness", 2),
    ]
    return Table(f"DSSP, Figure 3 in numbers, at scale {artefact.scale}", columns, body, _notes(artefact))


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


def show_fig3(artefact: Artefact) -> Exhibit:
    exhibit: dict[str, Figure | Table] = {"": fig3(artefact), "table": fig3_table(artefact)}
    return exhibit | {"times": times_table(artefact), "readings": readings_table(artefact)}


def _learned_with(of: Network) -> str:
    run = next((run for runs in of.learned.values() for run in runs.values()), None)
    if run is None:
        return "not run yet"
    config = run.config
    return f"{network(config)} on {config['dataset']['name']}"


def _series(of: Network, paradigm: str, position: int, has_band: bool = True) -> Series:
    curves = [drawn for seed in of.seeds if (drawn := of.curve(paradigm, seed)) is not None]
    title = title_of(paradigm, of)
    if not curves:
        return Series(title, [], [], colour=position)
    series = curve(title, curves, position)
    return series if has_band else replace(series, low=None, high=None)


def _panel(title: str, series: Sequence[Series]) -> Panel:
    return Panel("virtual time, s", "test accuracy", series, title=title)


def _notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    first = next(run for run in artefact.runs if run.config["gradients"])
    goals = [
        f"{published('dssp')['networks'][key]} {', '.join('—' if goal is None else f'{goal:.2f}' for goal in values)}"
        for key, of in networks(artefact).items()
        if (values := [of.goal(seed) for seed in of.seeds])
    ]
    return [
        "The paper prints no number of Figure 3. Seconds are virtual: the epochs until an evaluation times the seconds "
        "an epoch takes with the paper's network, 50,000 images and batches of 128 (times alone).",
        "Learned with: "
        + "; ".join(
            f"{_learned_with(of)} in place of {published('dssp')['networks'][key]}"
            for key, of in networks(artefact).items()
        )
        + f". Gradients' times vary by {100 * first.config['cluster']['jitter']['std']:g} % here: with the 3 % of the "
        "paper's cluster no lead would pass s = 3 in so few gradients, and all asynchronous paradigms would be one.",
        "The target is the best accuracy that BSP reaches under the same seed, cut to whole per cent: "
        f"{'; '.join(goals)}.",
        "SSP is averaged over the thresholds that are shown here; the paper averages thirteen, s = 3 to 15.",
        *artefact.closing_notes,
    ]
