"""The five papers, and the overview that belongs to none: the strategies' timelines, side by side."""

from reports import adasync, backup, dssp, dssync, psp
from reports.exhibits import Exhibit, Paper, Picture
from reports.records import Artefact, published


def show_timelines(artefact: Artefact) -> Exhibit:
    """One picture a strategy, all of the same seconds."""
    about = published("overview")["strategies"]
    end_s = min(run.time_s for run in artefact.runs)
    return {run.label: Picture(run.label, run, 0.0, end_s, [about[run.label]]) for run in artefact.runs}


OVERVIEW = Paper("overview", {"timelines": show_timelines}, ())
PAPERS: dict[str, Paper] = {paper.PAPER.key: paper.PAPER for paper in (psp, backup, adasync, dssp, dssync)}
SHOWN: dict[str, Paper] = {**PAPERS, OVERVIEW.key: OVERVIEW}
SHORT = {"psp": "PSP", "backup": "Backup workers", "adasync": "AdaSync", "dssp": "DSSP", "dssync": "DS-Sync"}
