"""`make papers SCALE=smoke`, as a whole: every run, every report and every page."""

import json
import os
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from filelock import FileLock

from reports.claims import CONTRADICTED, NOT_JUDGED
from reports.docs import BEGIN, END, refresh
from reports.effects import Effect
from reports.exhibits import ArtefactStore, Item, Picture, numbers
from reports.papers import OVERVIEW, PAPERS, SHOWN
from reports.records import published
from reports.site import build, findings
from runners.commands import call
from runners.commands import main as syncline
from syncline.config import choices
from syncline.operations.names import all_plans
from syncline.operations.reference import add
from syncline.records.reference import Reference

pytestmark = [pytest.mark.papers, pytest.mark.xdist_group("papers")]

ARTEFACTS = {"psp": 4, "backup": 6, "adasync": 11, "dssp": 3, "dssync": 9}
CLAIMS = {"psp": 6, "backup": 11, "adasync": 12, "dssp": 10, "dssync": 9}
IN_WORDS = {"bounded", "fc_higher"}  # whose contradiction is between sentences, or of a number that is not printed
ONE_SEED = ("scale=smoke", "scale.seeds=[0]")
IN_PART = {"psp/fig2"}  # of its event logs the reference has the beginnings
VERDICT = re.compile(r'<span class="verdict [^"]*">([^<]*)<')


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All papers at scale smoke, PSP with both seeds, the others with one: made once, by the first process."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "papers"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            assert call(["run", "+experiment=all", *ONE_SEED, f"results={folder}"]) == 0
            assert call(["run", "+experiment=psp", "scale=smoke", f"results={folder}"]) == 0
    return folder


@pytest.fixture(scope="session")
def site(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build([ArtefactStore(results, "smoke")], tmp_path_factory.mktemp("pages") / "site").parent


@pytest.mark.core
def test_every_artefact_and_claim_of_the_papers_exists() -> None:
    assert {key: len(paper.shows) for key, paper in PAPERS.items()} == ARTEFACTS
    assert {key: len(paper.claims) for key, paper in PAPERS.items()} == CLAIMS
    experiments = {f"{paper.key}/{name}" for paper in (*PAPERS.values(), OVERVIEW) for name in paper.shows}
    assert set(choices("experiment")) == experiments
    for key, paper in PAPERS.items():
        assert list(published(key)["claims"]) == [claim.key for claim in paper.claims]
        assert list(published(key)["artefacts"]) == list(paper.shows)
        for claim in paper.claims:
            assert {f"{key}/{name}" for name in paper.shows} >= set(claim.artefacts)
            assert claim.may_differ.endswith(".")


@pytest.mark.core
def test_the_findings_have_a_part_a_paper_and_lead_to_no_file() -> None:
    parts = findings()
    assert list(parts) == ["README", *PAPERS, "declared", "referee"]
    page = Page("".join(parts.values()))
    assert {f"#{key}" for key in PAPERS} <= set(page.targets)
    assert {target.removeprefix("#") for target in page.targets} <= set(parts)


def test_a_second_time_nothing_is_run(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "+experiment=backup", *ONE_SEED, f"results={results}"]) == 0
    assert re.search(r" 0 to make\b", capfd.readouterr().err)


def test_every_report_is_complete(site: Path, results: Path) -> None:
    """The pages are made of all of them, and their files lie beside the records."""
    for name in (*(f"{key}.html" for key in PAPERS), "strategies.html"):
        assert 'class="missing"' not in (site / name).read_text(), name
    written = {path.name for path in (results / "reports").iterdir()}
    for paper in PAPERS.values():
        for name in paper.shows:
            stem = f"{paper.key}-{name}-smoke"
            of_it = [path for path in written if path.startswith((f"{stem}.", f"{stem}-"))]
            assert of_it, stem
            if name.startswith("fig"):
                assert any(path.endswith(".svg") for path in of_it), f"{stem} has no figure"


def test_the_command_prints_a_paper_and_writes_its_claims(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert syncline(["report", "dssp", "--scale", "smoke", "--results", str(results)]) == 0
    shown = capfd.readouterr().out
    assert "NOT COMPLETE" not in shown
    assert "no such plan" not in shown
    written = {path.name for path in (results / "reports").iterdir()}
    assert {f"dssp-claims-smoke.{suffix}" for suffix in ("md", "csv", "tex")} <= written
    assert {f"dssp-fig4-smoke.{suffix}" for suffix in ("svg", "png", "pdf", "csv")} <= written


def test_every_claim_has_its_numbers_and_none_is_judged(results: Path) -> None:
    """The control of the predicates: on the published numbers each gives what the paper says, or is marked."""
    store, num_published = ArtefactStore(results, "smoke"), 0
    for paper in PAPERS.values():
        for verdict in store.verdicts(paper):
            assert verdict.verdict == (CONTRADICTED if verdict.claim.contradiction else NOT_JUDGED), verdict.because
            assert verdict.effects
            outside = [effect.what for effect in verdict.effects if is_outside(effect)]
            is_marked = bool(verdict.claim.contradiction) and verdict.claim.key not in IN_WORDS
            assert bool(outside) == is_marked, (verdict.claim.key, outside)
            num_published += any(effect.published is not None for effect in verdict.effects)
    assert num_published == 21


def is_outside(effect: Effect) -> bool:
    """Whether the paper's own number, as printed, is outside the region."""
    rounding, region = 0.5 * 10.0**-effect.digits, effect.region
    theirs = effect.published
    return theirs is not None and not region.low - rounding <= theirs <= region.high + rounding


def test_a_fresh_clone_shows_what_was_stored(results: Path, tmp_path: Path) -> None:
    """Every item from the reference alone is that from the results, but for the line that says where runs are from."""
    for plan in all_plans(results):
        add(plan, tmp_path / "reference")
    ours, stored = ArtefactStore(results, "smoke"), ArtefactStore(tmp_path / "none", "smoke", tmp_path / "reference")
    for key, paper in SHOWN.items():
        for name, show in paper.shows.items():
            shown, again = (show(store.artefact(f"{key}/{name}")) for store in (ours, stored))
            assert list(again) == list(shown)
            if f"{key}/{name}" not in IN_PART:
                assert {suffix: texts_of(item) for suffix, item in again.items()} == {
                    suffix: texts_of(item) for suffix, item in shown.items()
                }
        assert texts_of(numbers([stored], paper, "")) == texts_of(numbers([ours], paper, ""))
        assert stored.origins(key).startswith("Runs: 0 from results")
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}smoke board -->\n{END}\n{BEGIN}smoke claims/dssp -->\n{END}\n")
    refresh([page], tmp_path / "reference")
    assert all(f"`{claim.key}`" in page.read_text() for paper in PAPERS.values() for claim in paper.claims)
    assert len(list((tmp_path / "reference/smoke/events").iterdir())) == 15 + 8
    num_bytes = sum(path.stat().st_size for path in (tmp_path / "reference/smoke/runs").iterdir())
    assert num_bytes < 600 * len(Reference(tmp_path / "reference/smoke").identities)


def texts_of(item: Item) -> str:
    """All that it shows, as text, without the notes on where runs are from."""
    notes = [note for note in item.notes if not note.startswith("Runs: ")]
    if isinstance(item, Picture):
        content = {"title": item.title, "summary": item.run.summary, "window": (item.begin_s, item.end_s)}
    else:
        content = asdict(replace(item, notes=()))
    return json.dumps([content, notes], default=list)


# The pages.


class Page(HTMLParser):
    """What a page refers to and what can be referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("href", "src") and value and not value.startswith("data:"):
                self.targets.append(value)
            if key == "id" and value:
                assert value not in self.names, f"two things are called {value}"
                self.names.add(value)


def test_every_link_resolves_and_none_leads_out(site: Path) -> None:
    pages = {path.name: Page(path.read_text()) for path in site.glob("*.html")}
    others = {"index.html", "findings.html", "studies.html", "strategies.html"}
    assert set(pages) == {f"{key}.html" for key in PAPERS} | others
    for name, page in pages.items():
        for target in page.targets:
            file, _, place = unquote(target).partition("#")
            assert not re.match(r"\w+:|//", target), f"{name}: {target} leads out"
            assert not file or (site / file).is_file(), f"{name}: {target}"
            assert not place or place in pages[file or name].names, f"{name}: {target}"


def test_the_pages_say_what_they_show(site: Path) -> None:
    index = (site / "index.html").read_text()
    for key, paper in PAPERS.items():
        page = (site / f"{key}.html").read_text()
        for name in paper.shows:
            assert f"make {key}-{name} SCALE=smoke" in page
        for claim in paper.claims:
            assert f'id="claim-{claim.key}"' in page
            assert f"{key}.html#claim-{claim.key}" in index
        contradicted = {CONTRADICTED for claim in paper.claims if claim.contradiction}
        assert set(VERDICT.findall(page)) == {NOT_JUDGED, *contradicted}
    assert set(VERDICT.findall(index)) == {NOT_JUDGED, CONTRADICTED}
    assert "no conclusion can be drawn" in index
    assert len([target for target in Page(index).targets if target.endswith(".svg")]) == 2 * 3, (
        "one look: three drawings"
    )
