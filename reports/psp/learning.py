"""Figures 3 and 4: top-1 error against epoch and against time, without and with injected delays."""

from collections.abc import Callable, Mapping, Sequence

from reports.figures import Figure, Panel, Points, Series, curve
from reports.psp.runs import DELAYED, IN_TIME, SETTINGS, by_epoch, by_minutes, name_of
from reports.records import Artefact, Run, published


def fig3(artefact: Artefact) -> Figure:
    return errors(artefact, IN_TIME, "PSP, Figure 3: no delays")


def fig4(artefact: Artefact) -> Figure:
    return errors(artefact, DELAYED, "PSP, Figure 4: 0.16 % of the responses 4 s late")


def errors(artefact: Artefact, scenario: str, title: str) -> Figure:
    """Two panels: against epoch and against time; a curve a setting."""
    table = published("psp")["table1"]
    printed = list(table["rows"].values()) if scenario == DELAYED else []
    panels = []
    for name, points, places in (
        ("epoch", by_epoch, [float(table["epochs"])] * len(printed)),
        ("virtual time, min", by_minutes, [row["minutes"] for row in printed]),
    ):
        series = _curves(artefact, scenario, points) + _published(artefact, printed, places)
        panels.append(Panel(name, "top-1 error, %", series))
    return Figure(f"{title} (scale {artefact.scale}, {len(artefact.seeds)} seeds)", panels, notes(artefact))


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    about = published("psp")["notes"]
    if _is_papers_size(artefact):
        return [about["epoch"], *artefact.closing_notes]
    shorter = about["shorter"].format(updates=published("psp")["table1"]["updates"])
    return [about["epoch"], shorter, *artefact.closing_notes]


def _curves(artefact: Artefact, scenario: str, points: Callable[[Run], Points]) -> list[Series]:
    rows = artefact.by("setting", scenario=scenario, timed=False)
    return [
        curve(name_of(setting).removeprefix("Sync+"), [points(run) for run in rows[setting]], colour)
        for colour, setting in enumerate(SETTINGS)
        if setting in rows
    ]


def _published(artefact: Artefact, rows: Sequence[Mapping[str, float]], places: Sequence[float]) -> list[Series]:
    """Table 1's final errors, where the runs are of the paper's size."""
    if not rows or not _is_papers_size(artefact):
        return []
    return [Series("published, Table 1", places, [100.0 * row["error"] for row in rows], "points", published=True)]


def _is_papers_size(artefact: Artefact) -> bool:
    full: int = published("psp")["table1"]["updates"]
    return bool(artefact.runs[0].config["max_updates"] == full)
