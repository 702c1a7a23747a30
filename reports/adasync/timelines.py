"""Figures 4 and 5: timelines of the four variants."""

from reports.exhibits import Exhibit, Picture
from reports.records import Artefact, published


def show_fig4_5(artefact: Artefact) -> Exhibit:
    """A picture a variant; the first one has the artefact's own name."""
    paper = published("adasync")
    pictures: dict[str, Picture] = {}
    for label, (run, *_) in artefact.rows().items():
        about = f"{run.num_workers} workers, K = {run.config['strategy']['k']}"
        title = f"{paper['names'][label]}: {about}"
        pictures[label if pictures else ""] = Picture(title, run, notes=[paper["pictures"][label]])
    return pictures
