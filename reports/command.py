"""syncline report: tables, figures and verdicts from stored records."""

import argparse
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console

from reports.exhibits import REPORTS, ArtefactStore, Exhibit, ExhibitWriter, Paper, numbers
from reports.papers import COLLECTIONS, SHOWN
from reports.studies import study_exhibit
from reports.tables import Table
from syncline.installation import IS_INSTALLED, make_command, reference_folder
from syncline.records.plans import stem_of
from syncline.records.store import RecordError
from syncline.records.studies import find_study, study_stems

MAX_LISTED = 8  # files that are named one by one
BEST_FIRST = ("workstation", "laptop")  # scales of the pages: each claim is shown at the first one that judges it
Named = tuple[str, Exhibit]  # stem of the files, items


def main(asked: argparse.Namespace) -> int:
    """Returns 1 if a table of the documentation would change, and is only checked.

    Raises:
        ValueError: words that do not go together, or nothing that they name.
    """
    artefacts = [f"{paper.key}/{name}" for paper in SHOWN.values() for name in paper.shows]
    kinds = ["site", "docs", "all", *COLLECTIONS, "study", *SHOWN]
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
    if asked.what == "docs":
        return _docs(asked.reference, asked.check)
    return _site(asked) if asked.what == "site" else _show(asked)


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


def _show(asked: argparse.Namespace) -> int:
    """Tables on the terminal, and the files of all items."""
    store, console = ArtefactStore(asked.results, asked.scale or "laptop", asked.reference), Console()
    written = []
    with ExhibitWriter(asked.results / REPORTS) as writer:
        for stem, exhibit in _asked_for(asked, store, console):
            for item in exhibit.values():
                if isinstance(item, Table):
                    item.print(console)
            written += [files for _, files in writer.submit(exhibit, stem)]
    files = [path for of_item in written for path in of_item.result()]
    if from_where := store.origins():
        print(from_where)
    print("written:", *(files if len(files) <= MAX_LISTED else [f"{len(files)} files in {files[0].parent}"]))
    return 0


def _asked_for(asked: argparse.Namespace, store: ArtefactStore, console: Console) -> Iterator[Named]:
    """What the words name. Raises RecordError if none of it was run."""
    what = asked.what
    if what == "study":
        path = find_study(asked.results, asked.reference, asked.study)
        if path is None:
            known = {stem for folder in (asked.results, asked.reference) for stem in study_stems(folder)}
            raise RecordError(f"no study {asked.study!r}; there are {', '.join(sorted(known)) or 'none'}")
        yield path.stem, study_exhibit(path)
        print(f"from {path}")
    elif what in COLLECTIONS:
        yield what, COLLECTIONS[what](store)
    elif what == "all" or what in SHOWN:
        for paper in SHOWN.values() if what == "all" else [SHOWN[what]]:
            yield from _of_paper(paper, store, console)
    else:
        yield _of_artefact(what, store)


def _of_artefact(name: str, store: ArtefactStore) -> Named:
    paper, _, own = name.partition("/")
    return stem_of(name, store.scale), SHOWN[paper].exhibit(own, store.artefact(name))


def _of_paper(paper: Paper, store: ArtefactStore, console: Console) -> Iterator[Named]:
    """The artefacts of a paper that were run, and its claims; one line for each that was not run."""
    is_run = False
    for name in paper.shows:
        try:
            yield _of_artefact(f"{paper.key}/{name}", store)
            is_run = True
        except RecordError as error:
            console.print(f"- {error}", markup=False, highlight=False)
    scale = store.scale
    if not is_run:
        raise RecordError(f"no artefact of {paper.key} was run at scale {scale}; {make_command(paper.key, scale)}")
    if paper.claims:
        yield f"{paper.key}-claims-{scale}", {"": numbers([store], paper, f"{paper.title}: claims at scale {scale}")}
