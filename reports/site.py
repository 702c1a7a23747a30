"""The pages: static, self-contained, without scripts."""

import re
import shlex
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from reports.claims import BASES, Verdict
from reports.exhibits import REPORTS, ArtefactStore, Exhibit, ExhibitWriter, Item, Paper, numbers, verdicts
from reports.figures import FORMATS
from reports.papers import COLLECTIONS, OVERVIEW, PAPERS, SHORT, SHOWN
from reports.races import by_subject
from reports.records import published
from reports.scoreboard import counts
from reports.settings import settings
from reports.studies import study_exhibit
from reports.tables import Table
from syncline.installation import make_command, shipped
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
    """One artefact on its paper's page, at one scale."""

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


def build(stores: Sequence[ArtefactStore], folder: Path) -> Path:
    """Write all pages; returns the first.

    The folder is emptied first. A claim is shown at the first scale that judges it, an artefact at those of its claims,
    else at the first at which it was run. One that was not run is shown by its command.

    Args:
        stores: one a scale, the best first, all of one folder of results.

    Raises:
        RecordError: nothing was run at these scales.
    """
    if not any(store.has_plans for store in stores):
        scales = " or ".join(store.scale for store in stores)
        raise RecordError(f"nothing was run at scale {scales}; {make_command('all', stores[-1].scale)}")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / FILES).mkdir(parents=True)
    shutil.copy(TEMPLATES / "style.css", folder / FILES)
    with ExhibitWriter(stores[0].results / REPORTS, FORMATS[:1]) as writer:
        found = {key: verdicts(stores, paper) for key, paper in PAPERS.items()}
        sections = {
            key: [
                part
                for name in paper.shows
                for part in artefact_sections(stores, paper, name, found.get(key, ()), writer)
            ]
            for key, paper in SHOWN.items()
        }
        studies = [part for store in stores for part in study_sections(store, writer)]
        for part in (*chain(*sections.values()), *studies):
            for path in part.files():
                shutil.copy(path, folder / FILES)
        scale = " or else ".join(store.scale for store in stores)
        for name, content in _contents(stores, found, sections, studies).items():
            (folder / name).write_text(rendered(name, scale, content))
    return folder / "index.html"


def _contents(
    stores: Sequence[ArtefactStore],
    found: Mapping[str, list[Verdict]],
    sections: Mapping[str, Sequence[Section]],
    studies: Sequence[Section],
) -> dict[str, dict[str, Any]]:
    """Page -> the variables of its template, in the order of the menu."""
    scales, by_paper = [store.scale for store in stores], {SHORT[key]: found[key] for key in PAPERS}
    pages: dict[str, dict[str, Any]] = {
        "index.html": {
            "papers": [(paper, SHORT[key], found[key]) for key, paper in PAPERS.items()],
            "counts": counts(scales, by_paper),
            "bases": BASES,
            "timelines": _shown_of(sections, "overview/timelines")[:2],
            "headline": [
                *_shown_of(sections, "dssp/fig4"),
                *_figures_of(studies, *_largest_tuning(stores)),
                *_figures_of(studies, "rates", "races", "phases", "workers"),
            ],
            "origins": list(filter(None, (store.origins() for store in stores))),
        }
    }
    for key, paper in PAPERS.items():
        pages[f"{key}.html"] = {
            "paper": paper,
            "short": SHORT[key],
            "verdicts": found[key],
            "claims": numbers(stores, paper, "Claims, number by number"),
            "sections": sections[key],
        }
    pages["findings.html"] = {"parts": findings()}
    pages["studies.html"] = {"sections": studies}
    pages["strategies.html"] = {"sections": sections[OVERVIEW.key]}
    return pages


def _shown_of(sections: Mapping[str, Sequence[Section]], name: str) -> Sequence[Shown]:
    """The items of a section; none where it was not run."""
    return next((part.shown for part in chain(*sections.values()) if part.name == name), ())


def _figures_of(studies: Sequence[Section], *names: str) -> Iterator[Shown]:
    """Those of the collections of these names."""
    return (one for part in studies if part.name.startswith(names) for one in part.shown if one.kind == "figure")


def _largest_tuning(stores: Sequence[ArtefactStore]) -> list[str]:
    """The name of the study that tunes the most rows, if there is one: accuracy against rate."""
    tuned = [(path.stem, study) for store in stores for path, study in store.studies().items() if study.kind == "tune"]
    return [name for name, _ in sorted(tuned, key=lambda each: len(each[1].declaration["rows"]))[-1:]]


def findings() -> dict[str, Markup]:
    """Name -> the text of a page of findings: the overview first, whose links lead to the other parts."""
    parts = {}
    for key in ("README", *PAPERS, "declared", "referee"):
        text = MarkdownIt().enable("table").render((FINDINGS / f"{key}.md").read_text())
        linked = re.sub(r'href="(\w+)\.md(?:#[\w-]+)?"', r'href="#\1"', text)
        parts[key] = Markup(re.sub(r'src="([\w-]+\.svg)"', _inside, linked))
    return parts


def _inside(found: re.Match[str]) -> str:
    """The drawing itself in place of its file, which lies beside the pages' sources."""
    drawing = b64encode((FINDINGS / found[1]).read_bytes()).decode()
    return f'src="data:image/svg+xml;base64,{drawing}"'


def rendered(name: str, scale: str, content: Mapping[str, Any]) -> str:
    """A page's text."""
    menu = [("index.html", "Scoreboard"), *((f"{key}.html", SHORT[key]) for key in PAPERS)]
    menu += [("findings.html", "Findings"), ("studies.html", "Studies"), ("strategies.html", "Side by side")]
    template = _templates().get_template("paper.html" if "paper" in content else name)
    return template.render(pages=menu, page=name, scale=scale, **content)


@cache
def _templates() -> Environment:
    """Of all pages; each is compiled once."""
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["slug"] = lambda text: str(text).replace(" ", "-").replace("/", "-")
    return environment


def artefact_sections(
    stores: Sequence[ArtefactStore], paper: Paper, name: str, of_paper: Sequence[Verdict], writer: ExhibitWriter
) -> Iterator[Section]:
    """An artefact's parts of a page, one a scale; their files are written meanwhile."""
    full = f"{paper.key}/{name}"
    scales = {one.scale for one in of_paper if full in one.claim.artefacts and one.numbers}
    chosen = [store for store in stores if store.scale in scales] or [store for store in stores if store.has(full)][:1]
    for place, store in enumerate(chosen or stores[-1:]):
        yield section(paper, name, store, writer, full if place == 0 else f"{full}-{store.scale}")


def section(paper: Paper, name: str, store: ArtefactStore, writer: ExhibitWriter, anchor: str) -> Section:
    """An artefact's part of a page at one scale."""
    full = f"{paper.key}/{name}"
    empty = Section(anchor, published(paper.key)["artefacts"][name], make_command(full, store.scale))
    shown = filled(empty, writer, stem_of(full, store.scale), lambda: paper.exhibit(name, store.artefact(full)))
    if not shown.shown:
        return shown
    artefact = store.artefact(full)
    return replace(
        shown,
        settings=settings(artefact),
        source=artefact.report.get("source", ""),
        missing=artefact.incomplete,
        origins=artefact.origins,
    )


def filled(empty: Section, writer: ExhibitWriter, stem: str, exhibit: Callable[[], Exhibit]) -> Section:
    """The section with its items, or with what is missing."""
    try:
        return replace(empty, shown=[Shown(*one) for one in writer.submit(exhibit(), stem)])
    except RecordError as error:
        return replace(empty, missing=str(error))


def study_sections(store: ArtefactStore, writer: ExhibitWriter) -> Iterator[Section]:
    """The studies of the store's scale, of the results and of the reference, that have something to show.

    Races of a grid of clusters are shown together alone.
    """
    for what, caption in (
        ("rates", "What staleness does to the rate: tuning runs of all papers"),
        ("races", "Which strategy first: all races"),
        ("phases", "Which strategy first, by slowest worker and noise"),
        ("workers", "Which strategy first, by number of workers"),
        ("pushes", "Races of local steps and compression: what to push where"),
        ("rules", "Races of update rules: what a stale push counts"),
    ):
        stem = f"{what}-{store.scale}"
        empty = Section(stem, caption, f"syncline report {what} --scale {store.scale}")
        together = filled(empty, writer, stem, partial(COLLECTIONS[what], store))
        if not together.missing:
            yield together
    of_subject = by_subject([*store.studies().values()])
    plans = {study.plan for what in ("phases", "workers") for study, _ in of_subject[what]}
    for path, study in store.studies().items():
        if study.plan in plans:
            continue
        caption = f"{study.kind.capitalize()} of {study.name}: {path.stem}"
        empty = Section(path.stem, caption, f"syncline {shlex.join(study.command)}")
        shown = filled(empty, writer, path.stem, partial(study_exhibit, path))
        if not shown.missing:
            missing = "" if study.answer else "The study has no answer yet."
            shown = replace(shown, missing=missing, origins=f"From {path}")
        yield shown
