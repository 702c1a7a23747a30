"""Figures 3 and 4: top-1 error against epoch and against time, without and with injected delays."""

from collections.abc import Callable

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Points, Series, curve
from reports.psp.runs import DELAYED, IN_TIME, NEWEST, SETTINGS, by_epoch, by_minutes, name_of
from reports.records import Artefact, Run, published


def show_fig3(artefact: Artefact) -> Exhibit:
    return {"": errors(artefact, IN_TIME, "PSP, Figure 3: no delays")}


def show_fig4(artefact: Artefact) -> Exhibit:
    return {"": errors(artefact, DELAYED, "PSP, Figure 4: 0.16 % of the responses 4 s late")}


def errors(artefact: Artefact, scenario: str, title: str) -> Figure:
    """Two panels: against epoch and against time; a curve a setting, the other reading of the counter dashed."""
    panels = [
        Panel("epoch", "top-1 error, %", _curves(artefact, scenario, by_epoch) + _published(artefact, scenario, 0)),
        Panel(
            "virtual time, min",
            "top-1 error, %",
            _curves(artefact, scenario, by_minutes) + _published(artefact, scenario, 1),
        ),
    ]
    return Figure(f"{title} (scale {artefact.scale}, {len(artefact.seeds)} seeds)", panels, notes(artefact))


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    lines = [
        "An epoch is a worker's pass over its own data, as the rate's drops count it: with c < 32 an update uses fewer "
        "samples than are computed. Mean over the seeds, with a band from the lowest to the highest."
    ]
    if not _is_papers_size(artefact):
        full = published("psp")["table1"]["updates"]
        lines.append(
            f"The run is shorter than the paper's {full} updates, and so are its minutes; a second is the paper's. The "
            "published final errors are in Table 1."
        )
    return lines + artefact.closing_notes


def _curves(artefact: Artefact, scenario: str, points: Callable[[Run], Points]) -> list[Series]:
    rows = artefact.rows()
    wanted = [(setting + suffix, suffix) for suffix in ("", NEWEST) for setting in SETTINGS]
    return [
        curve(
            name_of(setting),
            [points(run) for run in rows[f"{scenario}/{setting}"]],
            SETTINGS.index(setting.removesuffix(NEWEST)),
            "--" if suffix else "-",
        )
        for setting, suffix in wanted
        if f"{scenario}/{setting}" in rows
    ]


def _published(artefact: Artefact, scenario: str, axis: int) -> list[Series]:
    """Table 1's final errors, where the runs are of the paper's size; axis 0: epochs, 1: minutes."""
    if scenario != DELAYED or not _is_papers_size(artefact):
        return []
    table = published("psp")["table1"]
    rows = list(table["rows"].values())
    places = [[float(table["epochs"])] * len(rows), [row[2] for row in rows]][axis]
    return [Series("published, Table 1", places, [100.0 * row[3] for row in rows], "points", published=True)]


def _is_papers_size(artefact: Artefact) -> bool:
    full: int = published("psp")["table1"]["updates"]
    return bool(artefact.runs[0].config["max_updates"] == full)
