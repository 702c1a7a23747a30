"""syncline report: tables, figures and verdicts from stored records."""

import argparse
from concurrent.futures import Future
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console

from reports.exhibits import REPORTS, ArtefactStore, Exhibit, ExhibitWriter, Paper, numbers
from reports.fidelity import fidelity
from reports.papers import SHOWN
from reports.races import of_pushes, together
from reports.rates import rates
from reports.studies import study_exhibit
from reports.tables import Table
from syncline.installation import IS_INSTALLED, make_command, reference_folder
from syncline.records.plans import stem_of
from syncline.records.store import RecordError
from syncline.records.studies import find_study, study_stems

MAX_LISTED = 8  # files that are named one by one
BEST_FIRST = ("workstation", "laptop")  # scales of the pages: each claim is shown at the first one that judges it


def main(asked: argparse.Namespace) -> int:
    """Returns 1 if a table of the documentation would change, and is only checked.

    Raises:
        ValueError: words that do not go together, or nothing that they name.
    """
    artefacts = [f"{paper.key}/{name}" for paper in SHOWN.values() for name in paper.shows]
    kinds = ["site", "docs", "all", "fidelity", "races", "pushes", "rates", "study", *SHOWN]
    if asked.what not in (*kinds, *artefacts):
        near = get_close_matches(asked.what, [*kinds, *artefacts], 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        what = f"{', '.join(kinds)} or an artefact (psp/table1)"
        raise ValueError(f"report is of {what}; got {asked.what}{hint}")
    if (asked.what == "study") != (asked.study is not None):
        raise ValueError("study takes the stem of a study, and nothing else does")
    if asked.check and asked.what != "docs":
        raise ValueError("--check goes with docs")
    asked.reference = asked.reference or reference_folder()
    return _docs(asked.reference, asked.check) if asked.what == "docs" else _show(asked)


def _show(asked: argparse.Namespace) -> int:
    if asked.what == "site":
        return _site(asked)
    store = ArtefactStore(asked.results, asked.scale or "laptop", asked.reference)
    if asked.study is not None:
        path = find_study(asked.results, asked.reference, asked.study)
        if path is None:
            known = {stem for folder in (asked.results, asked.reference) for stem in study_stems(folder)}
            raise RecordError(f"no study {asked.study!r}; there are {', '.join(sorted(known)) or 'none'}")
        files = Printer(store).study(path)
        print(f"from {path}")
    else:
        files = Printer(store).show(asked.what)
    if from_where := store.origins():
        print(from_where)
    print("written:", *(files if len(files) <= MAX_LISTED else [f"{len(files)} files in {files[0].parent}"]))
    return 0


def _site(asked: argparse.Namespace) -> int:
    from reports.site import build

    scales = [asked.scale] if asked.scale else BEST_FIRST
    first = build([ArtefactStore(asked.results, scale, asked.reference) for scale in scales], asked.results / "site")
    print(f"open in a browser: {first.resolve().as_uri()}")
    return 0


def _docs(reference: Path, check: bool) -> int:
    """Returns 1 if a part of a page is not what the reference gives, and only checked."""
    if IS_INSTALLED:
        raise ValueError("docs writes the pages of a checkout, and this is none")
    from reports.docs import STALE, pages, refresh

    blocks = refresh(pages(), reference, check)
    for block in blocks:
        print(f"{block}: written" if block.state == STALE and not check else block)
    return 1 if check and any(block.state == STALE for block in blocks) else 0


class Printer:
    """Prints tables on the terminal and writes the files of all items."""

    def __init__(self, store: ArtefactStore) -> None:
        self._store, self._console = store, Console()

    def show(self, what: str) -> list[Path]:
        """An artefact, a paper, `all`, `races`, `pushes`, `rates` or `fidelity`; returns the files.

        Raises:
            RecordError: none of it was run.
        """
        with ExhibitWriter(self._store.results / REPORTS) as writer:
            if what == "all":
                written = [files for paper in SHOWN.values() for files in self._paper(paper, writer)]
            elif what == "races":
                written = self._exhibit(together(list(self._store.studies().values())), what, writer)
            elif what == "pushes":
                written = self._exhibit(of_pushes(list(self._store.studies().values())), what, writer)
            elif what == "rates":
                found = rates(list(self._store.studies().values()), self._store.sources)
                written = self._exhibit(found, what, writer)
            elif what == "fidelity":
                written = self._exhibit(fidelity(self._store.results), "fidelity", writer)
            elif what in SHOWN:
                written = self._paper(SHOWN[what], writer)
            else:
                written = self._artefact(what, writer)
            return [path for files in written for path in files.result()]

    def study(self, path: Path) -> list[Path]:
        """Returns the files of a study's items. Raises RecordError if there are none."""
        exhibit = study_exhibit(path)
        with ExhibitWriter(self._store.results / REPORTS) as writer:
            return [file for files in self._exhibit(exhibit, path.stem, writer) for file in files.result()]

    def _artefact(self, name: str, writer: ExhibitWriter) -> list[Future[list[Path]]]:
        paper, _, own = name.partition("/")
        exhibit = SHOWN[paper].exhibit(own, self._store.artefact(name))
        return self._exhibit(exhibit, stem_of(name, self._store.scale), writer)

    def _paper(self, paper: Paper, writer: ExhibitWriter) -> list[Future[list[Path]]]:
        """The artefacts of a paper that were run, and its claims; one line for each that was not run."""
        files: list[Future[list[Path]]] = []
        for name in paper.shows:
            try:
                files += self._artefact(f"{paper.key}/{name}", writer)
            except RecordError as error:
                self._console.print(f"- {error}", markup=False, highlight=False)
        scale = self._store.scale
        if not files:
            command = make_command(paper.key, scale)
            raise RecordError(f"no artefact of {paper.key} was run at scale {scale}; {command}")
        if paper.claims:
            claims = numbers([self._store], paper, f"{paper.title}: claims at scale {scale}")
            files += self._exhibit({"": claims}, f"{paper.key}-claims-{scale}", writer)
        return files

    def _exhibit(self, exhibit: Exhibit, stem: str, writer: ExhibitWriter) -> list[Future[list[Path]]]:
        for item in exhibit.values():
            if isinstance(item, Table):
                item.print(self._console)
        return [files for _, files in writer.submit(exhibit, stem)]
