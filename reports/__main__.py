"""Tables, figures and verdicts from stored records.

python -m reports <paper>/<artefact>     one table or figure
python -m reports <paper>                all of a paper, and its claims
python -m reports all                    all papers
python -m reports fidelity               what `make fidelity` measured
python -m reports site                   all of this as pages to be opened in a browser
"""

import argparse
import sys
from concurrent.futures import Future
from pathlib import Path

from rich.console import Console

from reports.claims import scoreboard
from reports.exhibits import DRAWN, SCALES, ArtefactStore, Exhibit, ExhibitWriter, Paper
from reports.fidelity import fidelity
from reports.papers import SHOWN
from reports.tables import Table
from syncline.records.plans import stem_of
from syncline.records.store import RecordError

LISTED = 8  # files that are named one by one


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m reports", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    artefacts = [f"{paper.key}/{name}" for paper in SHOWN.values() for name in paper.shows]
    parser.add_argument("what", choices=["site", "all", "fidelity", *SHOWN, *artefacts], metavar="what")
    parser.add_argument("--scale", default="laptop", choices=SCALES, help="as it was run (laptop)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the records (results)")
    asked = parser.parse_args(arguments)
    shelf = ArtefactStore(asked.results, asked.scale)
    try:
        files = _site(shelf) if asked.what == "site" else Printer(shelf).show(asked.what)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("written:", *(files if len(files) <= LISTED else [f"{len(files)} files in {files[0].parent}"]))
    return 0


def _site(shelf: ArtefactStore) -> list[Path]:
    from reports.site import build

    first = build(shelf, shelf.results / "site")
    print(f"to be opened in a browser: {first.resolve().as_uri()}")
    return [first]


class Printer:
    """Prints tables on the terminal and writes all files of what is shown."""

    def __init__(self, shelf: ArtefactStore) -> None:
        self._shelf, self._console = shelf, Console()

    def show(self, what: str) -> list[Path]:
        """An artefact, a paper, `all`, or `fidelity`; returns the files.

        Raises:
            RecordError: nothing of it was run.
        """
        with ExhibitWriter(self._shelf.results / DRAWN) as press:
            if what == "all":
                written = [files for paper in SHOWN.values() for files in self._paper(paper, press)]
            elif what == "fidelity":
                written = self._exhibit(fidelity(self._shelf.results), "fidelity", press)
            elif what in SHOWN:
                written = self._paper(SHOWN[what], press)
            else:
                written = self._artefact(what, press)
            return [path for files in written for path in files.result()]

    def _artefact(self, name: str, press: ExhibitWriter) -> list[Future[list[Path]]]:
        paper, _, own = name.partition("/")
        exhibit = SHOWN[paper].shows[own](self._shelf.artefact(name))
        return self._exhibit(exhibit, stem_of(name, self._shelf.scale), press)

    def _paper(self, paper: Paper, press: ExhibitWriter) -> list[Future[list[Path]]]:
        """What there is of a paper, and its claims; an artefact that was not run is named."""
        files: list[Future[list[Path]]] = []
        for name in paper.shows:
            try:
                files += self._artefact(f"{paper.key}/{name}", press)
            except RecordError as error:
                self._console.print(f"- {error}", markup=False, highlight=False)
        scale = self._shelf.scale
        if not files:
            command = f"make {paper.key} SCALE={scale}"
            raise RecordError(f"nothing of {paper.key} was run at scale {scale}; {command}")
        if paper.claims:
            claims = scoreboard(f"{paper.title}: claims at scale {scale}", self._shelf.verdicts(paper))
            files += self._exhibit({"": claims}, f"{paper.key}-claims-{scale}", press)
        return files

    def _exhibit(self, exhibit: Exhibit, stem: str, press: ExhibitWriter) -> list[Future[list[Path]]]:
        for item in exhibit.values():
            if isinstance(item, Table):
                item.print(self._console)
        return [files for _, files in press.print(exhibit, stem)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
