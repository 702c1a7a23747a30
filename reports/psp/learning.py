"""Figures 3 and 4: top-1 error against epoch and against time, without and with injected delays."""

from collections.abc import Callable, Mapping, Sequence

from reports.figures import Figure, Panel, Points, Series, curve
from reports.psp.runs import DELAYED, IN_TIME, NEWEST, SETTINGS, by_epoch, by_minutes, name_of
from reports.records import Artefact, Run, published

READINGS = tuple(setting + suffix for setting in SETTINGS[1:] for suffix in ("", NEWEST))
LATE = "0.16 % of the responses 4 s late"


def fig3(artefact: Artefact) -> Figure:
    return errors(artefact, IN_TIME, SETTINGS, "PSP, Figure 3: no delays")


def fig4(artefact: Artefact) -> Figure:
    return errors(artefact, DELAYED, SETTINGS, f"PSP, Figure 4: {LATE}")


def fig4_readings(artefact: Artefact) -> Figure:
    title = f"PSP, Figure 4: {LATE}; the counter goes up by one, or jumps (newest)"
    return errors(artefact, DELAYED, READINGS, title)


def errors(artefact: Artefact, scenario: str, settings: Sequence[str], title: str) -> Figure:
    """Two panels: against epoch and against time; a curve a setting, the other reading of the counter dashed."""
    table = published("psp")["table1"]
    printed = [row for setting, row in table["rows"].items() if setting in settings and scenario == DELAYED]
    panels = []
    for name, points, places in (
        ("epoch", by_epoch, [float(table["epochs"])] * len(printed)),
        ("virtual time, min", by_minutes, [row["minutes"] for row in printed]),
    ):
        series = _curves(artefact, scenario, settings, points) + _published(artefact, printed, places)
        panels.append(Panel(name, "top-1 error, %", series))
    return Figure(f"{title} (scale {artefact.scale}, {len(artefact.seeds)} seeds)", panels, notes(artefact))


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    about = published("psp")["notes"]
    if _is_papers_size(artefact):
        return [about["epoch"], *artefact.closing_notes]
    shorter = about["shorter"].format(updates=published("psp")["table1"]["updates"])
    return [about["epoch"], shorter, *artefact.closing_notes]


def _curves(
    artefact: Artefact, scenario: str, settings: Sequence[str], points: Callable[[Run], Points]
) -> list[Series]:
    rows = artefact.by("setting", scenario=scenario, timed=False)
    return [
        curve(
            name_of(setting).removeprefix("Sync+").replace("tag=", ""),
            [points(run) for run in rows[setting]],
            SETTINGS.index(setting.removesuffix(NEWEST)),
            "--" if setting.endswith(NEWEST) else "-",
        )
        for setting in settings
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
