"""The five papers, the overview that belongs to none, and what is shown of several papers or of none."""

from collections.abc import Callable, Mapping

from reports import adasync, backup, dssp, dssync, psp
from reports.exhibits import ArtefactStore, Exhibit, Paper, Picture
from reports.grids import phases, workers
from reports.language import show_language
from reports.races import of_pushes, of_rules, together
from reports.rates import rates
from reports.records import Artefact, published


def show_timelines(artefact: Artefact) -> Exhibit:
    """One picture a strategy, all of the same seconds."""
    about = published("overview")["strategies"]
    end_s = min(run.time_s for run in artefact.runs)
    return {run.label: Picture(run.label, run, 0.0, end_s, [about[run.label]]) for run in artefact.runs}


OVERVIEW = Paper("overview", {"timelines": show_timelines, "language": show_language}, ())
PAPERS: dict[str, Paper] = {paper.PAPER.key: paper.PAPER for paper in (psp, backup, adasync, dssp, dssync)}
SHOWN: dict[str, Paper] = {**PAPERS, OVERVIEW.key: OVERVIEW}
SHORT = {"psp": "PSP", "backup": "Backup workers", "adasync": "AdaSync", "dssp": "DSSP", "dssync": "DS-Sync"}

COLLECTIONS: Mapping[str, Callable[[ArtefactStore], Exhibit]] = {
    "races": lambda store: together([*store.studies().values()]),
    "phases": lambda store: phases([*store.studies().values()]),
    "workers": lambda store: workers([*store.studies().values()]),
    "pushes": lambda store: of_pushes([*store.studies().values()]),
    "rules": lambda store: of_rules([*store.studies().values()]),
    "rates": lambda store: rates([*store.studies().values()], store.sources),
}
"""Name -> its items; RecordError where there is nothing to show."""
