"""The pages: static, self-contained, readable without scripts; what may be toggled is drawn again by Plotly's."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import interactive
from reports.claims import VERDICTS, Verdict, scoreboard
from reports.exhibits import Exhibit, Item, Paper, Shelf
from reports.fidelity import fidelity
from reports.figures import Figure
from reports.records import Artefact, published, stem_of
from reports.settings import settings
from reports.tables import Table
from syncline.records.store import RecordError

TEMPLATES = Path(__file__).parent / "templates"
STATIC = ("style.css", "page.js")
FILES = "files"  # beside the pages: pictures, scripts, what can be downloaded


@dataclass(frozen=True, slots=True)
class Shown:
    """One table, figure or timeline on a page."""

    item: Item
    kind: str  # table, figure, picture
    image: str  # its SVG, relative to the page; "" for a table
    downloads: Sequence[str]  # relative to the page
    panels: Markup  # Plotly's figures as JSON, for a figure


@dataclass(frozen=True, slots=True)
class Section:
    """One artefact on its paper's page."""

    name: str
    caption: str
    command: str
    source: str
    shown: Sequence[Shown]
    settings: Table | None
    missing: str  # why there is nothing, or not all


def build(shelf: Shelf, papers: Sequence[Paper], overview: Paper, folder: Path) -> Path:
    """Write all pages from what was run at the shelf's scale; returns the first.

    Whatever lay in the folder is removed. An artefact that was not run has its command in its place.

    Raises:
        RecordError: nothing at all was run at this scale.
    """
    if not any((shelf.results / "plans").glob(f"*-{shelf.scale}.json")):
        raise RecordError(f"nothing was run at scale {shelf.scale}; make papers SCALE={shelf.scale}")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / FILES).mkdir(parents=True)
    _static(folder / FILES)
    verdicts = {paper.key: shelf.verdicts(paper) for paper in papers}
    pages = [("index.html", "Scoreboard"), *((f"{paper.key}.html", SHORT[paper.key]) for paper in papers)]
    pages += [("strategies.html", "Timelines"), ("fidelity.html", "Fidelity")]
    environment = _environment()

    def page(name: str, **content: Any) -> None:
        template = environment.get_template(content.pop("template", name))
        text = template.render(pages=pages, page=name, scale=shelf.scale, **content)
        (folder / name).write_text(text)

    for paper in papers:
        page(
            f"{paper.key}.html",
            template="paper.html",
            paper=paper,
            short=SHORT[paper.key],
            about=published(paper.key),
            verdicts=verdicts[paper.key],
            claims=scoreboard("Claims, number by number", verdicts[paper.key]),
            sections=[section(paper, name, shelf, folder) for name in paper.shows],
        )
    page("strategies.html", sections=[section(overview, name, shelf, folder) for name in overview.shows])
    theory = [section(paper, name, shelf, folder) for paper in papers for name in THEORY.get(paper.key, ())]
    page("fidelity.html", sections=theory, live=live_section(shelf.results, folder))
    page(
        "index.html",
        papers=[(paper, SHORT[paper.key], verdicts[paper.key], counts(verdicts[paper.key])) for paper in papers],
        kinds=VERDICTS,
        total=counts([verdict for of_paper in verdicts.values() for verdict in of_paper]),
    )
    return folder / "index.html"


SHORT = {"psp": "PSP", "backup": "Backup workers", "adasync": "AdaSync", "dssp": "DSSP", "dssync": "DS-Sync"}
# Artefacts that set the simulator against a formula: repeated on the page about fidelity.
THEORY: Mapping[str, Sequence[str]] = {"adasync": ("table_runtime", "fig6"), "dssync": ("table1",)}


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many of each verdict."""
    return {kind: sum(verdict.verdict == kind for verdict in verdicts) for kind in VERDICTS}


def section(paper: Paper, name: str, shelf: Shelf, folder: Path) -> Section:
    """An artefact's part of a page; writes its files."""
    full = f"{paper.key}/{name}"
    caption = published(paper.key)["artefacts"][name]
    command = f"make {full.replace('/', '-')} SCALE={shelf.scale}"
    try:
        artefact = shelf.artefact(full)
        exhibit = paper.shows[name](artefact)
    except RecordError as error:
        return Section(full, caption, command, "", (), None, str(error))
    except LookupError as error:
        return Section(full, caption, command, "", (), None, f"not complete, or not part of this scale: {error}")
    return Section(
        full,
        caption,
        command,
        artefact.report.get("source", ""),
        show(exhibit, folder, stem_of(full, shelf.scale)),
        settings(artefact),
        _missing(artefact),
    )


def live_section(results: Path, folder: Path) -> Section:
    """What live runs were measured to take, and what was foreseen."""
    caption, command = "Live runs, and what the simulator foresaw of them", "make fidelity"
    try:
        return Section("fidelity", caption, command, "", show(fidelity(results), folder, "fidelity"), None, "")
    except RecordError as error:
        return Section("fidelity", caption, command, "", (), None, str(error))


def show(exhibit: Exhibit, folder: Path, stem: str) -> list[Shown]:
    """The items of an exhibit with their files, which are written beside the pages."""
    shown = []
    for suffix, item in exhibit.items():
        own = f"{stem}-{suffix}" if suffix else stem
        if isinstance(item, Table):
            files = item.write(folder / FILES, own)
            shown.append(Shown(item, "table", "", [f"{FILES}/{path.name}" for path in files], Markup()))
            continue
        files = item.write(folder / FILES, own, ("svg", "csv"))
        names = [f"{FILES}/{path.name}" for path in files]
        if isinstance(item, Figure):
            # in a script element nothing but its own end may be mistaken for it
            text = json.dumps(interactive.panels(item), separators=(",", ":")).replace("<", "\\u003c")
            shown.append(Shown(item, "figure", names[0], names, Markup(text)))
        else:
            shown.append(Shown(item, "picture", names[0], names, Markup()))
    return shown


def _missing(artefact: Artefact) -> str:
    if not artefact.missing:
        return ""
    return f"NOT COMPLETE: {len(artefact.missing)} runs are missing: {', '.join(artefact.missing[:6])}"


def _static(folder: Path) -> None:
    from plotly.offline import get_plotlyjs

    for name in STATIC:
        shutil.copy(TEMPLATES / name, folder / name)
    (folder / "plotly.min.js").write_text(get_plotlyjs())


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["slug"] = lambda text: str(text).replace(" ", "-").replace("/", "-")
    return environment
