"""Tables, figures and verdicts from stored records.

python -m reports <paper>/<artefact>     one table or figure
python -m reports <paper>                all of a paper, and its claims
python -m reports all                    all papers
python -m reports fidelity               what `make fidelity` measured
python -m reports site                   all of this as pages to be opened in a browser
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from reports.claims import scoreboard
from reports.exhibits import SCALES, Exhibit, Paper, Shelf, write
from reports.fidelity import fidelity
from reports.overview import OVERVIEW
from reports.papers import PAPERS
from reports.records import stem_of
from reports.tables import Table
from syncline.records.store import RecordError

LISTED = 8  # files that are named one by one
SHOWN = {**PAPERS, OVERVIEW.key: OVERVIEW}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m reports", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    artefacts = [f"{paper.key}/{name}" for paper in SHOWN.values() for name in paper.shows]
    parser.add_argument("what", choices=["site", "all", "fidelity", *SHOWN, *artefacts], metavar="what")
    parser.add_argument("--scale", default="laptop", choices=SCALES, help="as it was run (laptop)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the records (results)")
    asked = parser.parse_args(arguments)
    shelf, folder, console = Shelf(asked.results, asked.scale), asked.results / "reports", Console()
    try:
        files = _made(asked.what, shelf, folder, console)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("written:", *(files if len(files) <= LISTED else [f"{len(files)} files in {files[0].parent}"]))
    return 0


def _made(what: str, shelf: Shelf, folder: Path, console: Console) -> list[Path]:
    if what == "site":
        from reports.site import build

        return [build(shelf, list(PAPERS.values()), OVERVIEW, shelf.results / "site")]
    if what == "all":
        return [path for paper in SHOWN.values() for path in show_paper(paper, shelf, folder, console)]
    if what == "fidelity":
        return _show(fidelity(shelf.results), folder, "fidelity", console)
    if what in SHOWN:
        return show_paper(SHOWN[what], shelf, folder, console)
    return show_artefact(what, shelf, folder, console)


def show_artefact(name: str, shelf: Shelf, folder: Path, console: Console) -> list[Path]:
    """Print the tables of an artefact and write all its files; returns them."""
    paper, _, own = name.partition("/")
    exhibit = SHOWN[paper].shows[own](shelf.artefact(name))
    return _show(exhibit, folder, stem_of(name, shelf.scale), console)


def show_paper(paper: Paper, shelf: Shelf, folder: Path, console: Console) -> list[Path]:
    """What there is of a paper, and its claims; an artefact that was not run is named."""
    files: list[Path] = []
    for name in paper.shows:
        try:
            files += show_artefact(f"{paper.key}/{name}", shelf, folder, console)
        except RecordError as error:
            console.print(f"- {error}", markup=False, highlight=False)
    if not files:
        command = f"make {paper.key} SCALE={shelf.scale}"
        raise RecordError(f"nothing of {paper.key} was run at scale {shelf.scale}; {command}")
    if not paper.claims:
        return files
    claims = scoreboard(f"{paper.title}: claims at scale {shelf.scale}", shelf.verdicts(paper))
    claims.print(console)
    return files + claims.write(folder, f"{paper.key}-claims-{shelf.scale}")


def _show(exhibit: Exhibit, folder: Path, stem: str, console: Console) -> list[Path]:
    for item in exhibit.values():
        if isinstance(item, Table):
            item.print(console)
    return write(exhibit, folder, stem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
