"""Tables, figures and verdicts from stored records.

python -m reports <paper>/<artefact>     one table or figure
python -m reports <paper>                all of a paper, and its claims
python -m reports site                   all papers as pages to be opened in a browser
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from reports.claims import scoreboard
from reports.exhibits import SCALES, Paper, Shelf, write
from reports.papers import PAPERS
from reports.records import stem_of
from reports.tables import Table
from syncline.records.store import RecordError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m reports", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [f"{paper.key}/{name}" for paper in PAPERS.values() for name in paper.shows]
    parser.add_argument(
        "what", choices=["site", *PAPERS, *names], metavar="what", help=f"site, {', '.join(PAPERS)}, or an artefact"
    )
    parser.add_argument("--scale", default="laptop", choices=SCALES, help="as it was run (laptop)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the records (results)")
    asked = parser.parse_args(arguments)
    shelf, folder, console = Shelf(asked.results, asked.scale), asked.results / "reports", Console()
    try:
        if asked.what == "site":
            from reports.site import build

            files = [build(shelf, list(PAPERS.values()), asked.results / "site")]
        elif asked.what in PAPERS:
            files = show_paper(PAPERS[asked.what], shelf, folder, console)
        else:
            files = show_artefact(asked.what, shelf, folder, console)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("written:", *files)
    return 0


def show_artefact(name: str, shelf: Shelf, folder: Path, console: Console) -> list[Path]:
    """Print the tables of an artefact and write all its files; returns them."""
    paper, _, own = name.partition("/")
    exhibit = PAPERS[paper].shows[own](shelf.artefact(name))
    for item in exhibit.values():
        if isinstance(item, Table):
            item.print(console)
    return write(exhibit, folder, stem_of(name, shelf.scale))


def show_paper(paper: Paper, shelf: Shelf, folder: Path, console: Console) -> list[Path]:
    """What there is of a paper, and its claims; an artefact that was not run is named."""
    files: list[Path] = []
    for name in paper.shows:
        try:
            files += show_artefact(f"{paper.key}/{name}", shelf, folder, console)
        except RecordError as error:
            console.print(f"- {error}", markup=False, highlight=False)
    if not files:
        raise RecordError(
            f"nothing of {paper.key} was run at scale {shelf.scale}; make {paper.key} SCALE={shelf.scale}"
        )
    claims = scoreboard(f"{paper.title}: claims at scale {shelf.scale}", shelf.verdicts(paper))
    claims.print(console)
    return files + claims.write(folder, f"{paper.key}-claims-{shelf.scale}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
