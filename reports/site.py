"""The pages: static, self-contained, without scripts."""

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from reports.claims import BASES, Verdict, verdicts_at
from reports.exhibits import REPORTS, ArtefactStore, ExhibitWriter, Item, Paper
from reports.fidelity import fidelity
from reports.figures import FORMATS
from reports.papers import OVERVIEW, PAPERS, SHORT, SHOWN
from reports.races import of_pushes, together
from reports.records import published
from reports.settings import settings
from reports.studies import study_exhibit
from reports.tables import Table
from syncline.installation import command_name, make_command, shipped
from syncline.records.plans import stem_of
from syncline.records.store import RecordError

TEMPLATES = Path(__file__).parent / "templates"
FINDINGS = shipped("docs/findings")  # README.md and a page a paper: scale laptop in words
FILES = "files"  # beside the pages: pictures, the style sheet, downloads


@dataclass(frozen=True, slots=True)
class Shown:
    """One table, figure or timeline on a page."""

    item: Item
    files: Future[list[Path]]

    @property
    def kind(self) -> str:
        """`table`, `figure` or `picture`."""
        return type(self.item).__name__.lower()

    @property
    def downloads(self) -> list[str]:
        """Its files, relative to the page."""
        return [f"{FILES}/{path.name}" for path in self.files.result()]

    @property
    def image(self) -> str:
        """Its picture, relative to the page."""
        return next(name for name in self.downloads if name.endswith(".svg"))


@dataclass(frozen=True, slots=True)
class Section:
    """One artefact on its paper's page."""

    name: str
    caption: str
    command: str
    shown: Sequence[Shown] = ()
    settings: Table | None = None
    source: str = ""
    missing: str = ""  # why it is empty or incomplete
    origins: str = ""  # where its runs are from

    def files(self) -> list[Path]:
        """Of all items; waits until they are written."""
        return [path for one in self.shown for path in one.files.result()]


def build(store: ArtefactStore, folder: Path) -> Path:
    """Write all pages of the store's scale; returns the first.

    The folder is emptied first. An artefact that was not run is shown by its command.

    Raises:
        RecordError: nothing was run at this scale.
    """
    if not store.has_plans:
        raise RecordError(f"nothing was run at scale {store.scale}; {make_command('all', store.scale)}")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / FILES).mkdir(parents=True)
    shutil.copy(TEMPLATES / "style.css", folder / FILES)
    with ExhibitWriter(store.results / REPORTS, FORMATS[:1]) as writer:
        places = [(key, name) for key, paper in SHOWN.items() for name in paper.shows]
        sections = {(key, name): section(SHOWN[key], name, store, writer) for key, name in places}
        live, studies = live_section(store.results, writer), list(study_sections(store, writer))
        verdicts = {key: store.verdicts(paper) for key, paper in PAPERS.items()}  # while others draw
        for part in (*sections.values(), live, *studies):
            for path in part.files():
                shutil.copy(path, folder / FILES)
        for name, content in _contents(store, verdicts, sections, live, studies).items():
            (folder / name).write_text(rendered(name, store.scale, content))
    return folder / "index.html"


def _contents(
    store: ArtefactStore,
    verdicts: Mapping[str, list[Verdict]],
    sections: Mapping[tuple[str, str], Section],
    live: Section,
    studies: Sequence[Section],
) -> dict[str, dict[str, Any]]:
    """Page -> the variables of its template, in the order of the menu."""

    def of(key: str) -> list[Section]:
        return [part for (paper, _), part in sections.items() if paper == key]

    pages: dict[str, dict[str, Any]] = {
        "index.html": {
            "papers": [(paper, SHORT[key], verdicts[key], counts(verdicts[key])) for key, paper in PAPERS.items()],
            "kinds": verdicts_at(store.scale),
            "bases": BASES,
            "origins": store.origins(),
            "total": counts([verdict for of_paper in verdicts.values() for verdict in of_paper]),
        }
    }
    for key, paper in PAPERS.items():
        pages[f"{key}.html"] = {
            "paper": paper,
            "short": SHORT[key],
            "verdicts": verdicts[key],
            "claims": store.board(paper, "Claims, number by number"),
            "sections": of(key),
        }
    pages["findings.html"] = {"parts": findings()}
    pages["studies.html"] = {"sections": studies}
    pages["strategies.html"] = {"sections": of(OVERVIEW.key)}
    pages["fidelity.html"] = {"live": live, "sections": [sections[place] for place in THEORY if place in sections]}
    return pages


def findings() -> dict[str, Markup]:
    """Name -> the text of a page of findings: the overview first, whose links lead to the papers' parts."""
    parts = {}
    for key in ("README", *PAPERS):
        text = MarkdownIt().enable("table").render((FINDINGS / f"{key}.md").read_text())
        parts[key] = Markup(re.sub(r'href="(\w+)\.md"', r'href="#\1"', text))
    return parts


def rendered(name: str, scale: str, content: Mapping[str, Any]) -> str:
    """A page's text."""
    menu = [("index.html", "Scoreboard"), *((f"{key}.html", SHORT[key]) for key in PAPERS)]
    menu += [("findings.html", "Findings"), ("studies.html", "Studies"), ("strategies.html", "Timelines")]
    menu += [("fidelity.html", "Fidelity")]
    template = _templates().get_template("paper.html" if "paper" in content else name)
    return template.render(pages=menu, page=name, scale=scale, **content)


@cache
def _templates() -> Environment:
    """Of all pages; each is compiled once."""
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["slug"] = lambda text: str(text).replace(" ", "-").replace("/", "-")
    return environment


# Artefacts that compare the simulator with a formula: repeated on the page about fidelity.
THEORY = (("adasync", "table_runtime"), ("adasync", "fig6"), ("dssync", "table1"))


def counts(verdicts: Sequence[Verdict]) -> Counter[str]:
    """How many of each verdict."""
    return Counter(verdict.verdict for verdict in verdicts)


def section(paper: Paper, name: str, store: ArtefactStore, writer: ExhibitWriter) -> Section:
    """An artefact's part of a page; its files are written meanwhile."""
    full = f"{paper.key}/{name}"
    caption = published(paper.key)["artefacts"][name]
    command = make_command(full, store.scale)
    try:
        artefact = store.artefact(full)
        exhibit = paper.exhibit(name, artefact)
    except RecordError as error:
        return Section(full, caption, command, missing=str(error))
    shown = [Shown(*one) for one in writer.submit(exhibit, stem_of(full, store.scale))]
    source: str = artefact.report.get("source", "")
    return Section(full, caption, command, shown, settings(artefact), source, artefact.incomplete, artefact.origins)


def live_section(results: Path, writer: ExhibitWriter) -> Section:
    """Measured times of live runs, and the simulator's predictions."""
    caption, command = "Live runs, and what the simulator foresaw of them", "make fidelity"
    try:
        shown = [Shown(*one) for one in writer.submit(fidelity(results), "fidelity")]
        return Section("fidelity", caption, command, shown)
    except RecordError as error:
        return Section("fidelity", caption, command, missing=str(error))


def study_sections(store: ArtefactStore, writer: ExhibitWriter) -> Iterator[Section]:
    """The studies of the store's scale, of the results and of the reference, that have something to show."""
    studies = store.studies()
    written = list(studies.values())
    for what, of_all, caption in (
        ("races", together, "Which strategy first: all races"),
        ("pushes", of_pushes, "Races of local steps and compression: what to push where"),
    ):
        with suppress(RecordError):  # there is no such race
            shown = [Shown(*one) for one in writer.submit(of_all(written), what)]
            yield Section(what, caption, f"{command_name('report')} {what}", shown)
    for path, study in studies.items():
        caption = f"{study.kind.capitalize()} of {study.name}: {path.stem}"
        again = f"{command_name('run')} {shlex.join(study.command)}"
        try:
            shown = [Shown(*one) for one in writer.submit(study_exhibit(path), path.stem)]
        except RecordError as error:
            yield Section(path.stem, caption, again, missing=str(error))
            continue
        missing = "" if study.answer else "The study has no answer yet."
        yield Section(path.stem, caption, again, shown, missing=missing, origins=f"From {path}")
