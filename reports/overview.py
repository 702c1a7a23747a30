"""What is of no paper: the strategies' timelines, side by side."""

from reports.exhibits import Exhibit, Paper, Picture
from reports.records import Artefact, published


def show_timelines(artefact: Artefact) -> Exhibit:
    """One picture a strategy."""
    about = published("overview")["strategies"]
    return {run.label: Picture(run.label, run, notes=[about[run.label]]) for run in artefact.runs}


OVERVIEW = Paper("overview", {"timelines": show_timelines}, ())
