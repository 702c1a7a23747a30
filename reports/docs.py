"""Tables of the documentation that are made from the reference: syncline report docs writes them anew.

A page marks what is made. The first word is the scale, the second what is shown there:

    <!-- made by syncline report docs: laptop dssp/table1 columns=1,3,8 rows=1,2 -->
    <!-- end -->

    board           the claims by paper and verdict
    summary         how many claims got which verdict, as a sentence
    claims/<paper>  the claims of a paper, with their verdicts and what decided them

    declared/<paper> the numbers of each claim, the regions in which they must lie, and what of these is ours
    settings/<paper> of each experiment that claims are judged by: seeds, looks, rates of both arms, targets

The first three may name several scales (`workstation,laptop`): each claim is shown at the first one that judges it.

    <paper>/<artefact>[-<suffix>]   a table of an artefact; `columns` and `rows` choose some of it, counted from 1
    races           all races of strategies side by side
    pushes          those of local steps and compression, as a map
    rates           how far the rates are apart beyond which rows that were tuned lose accuracy

What the reference cannot show in full is left as it stands.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from reports.claims import LEARNED, NOT_RUN, Verdict
from reports.exhibits import SCALES, ArtefactStore, first_judged
from reports.papers import PAPERS, SHORT, SHOWN
from reports.races import are_of_pushes, together
from reports.races import of_pushes as map_of_pushes
from reports.rates import rates
from reports.records import OWN, SAME, Artefact
from reports.scoreboard import board, claims_table, declared, summary
from reports.tables import DASH, Heading, Table
from syncline.records.plans import stem_of
from syncline.records.reference import Reference
from syncline.records.sources import provenance
from syncline.records.store import RecordError, write_file

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- made by syncline report docs: ", "<!-- end -->"
MARKED = re.compile(rf"(?m)^{re.escape(BEGIN)}(?P<words>.*?) -->\n(?P<text>.*?)^{re.escape(END)}$", re.DOTALL)
CURRENT, STALE, KEPT = "up to date", "not what the reference gives", "kept"
WIDTH = 120  # of a line of text
FIRST_SEEDS = 5  # of scale workstation, where an experiment has none of its own


@dataclass(frozen=True, slots=True)
class Block:
    """One part of a page that is made."""

    place: str  # page and line
    words: str
    state: str  # CURRENT, STALE: not what the reference gives, KEPT: the reference cannot show it
    why: str = ""  # it is kept

    def __str__(self) -> str:
        return f"{self.place}: {self.words}: {self.state}" + (f", {self.why}" if self.why else "")


class Kept(Exception):
    """The reference lacks what a block shows; the message says what."""


def pages() -> list[Path]:
    """The README and all pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def refresh(paths: Sequence[Path], reference: Path, check: bool = False) -> list[Block]:
    """Make all marked parts of these pages anew. Returns them with the states in which they were, in order.

    Args:
        reference: folder of the reference.
        check: write nothing.

    Raises:
        ValueError: a mark cannot be understood, or the reference is broken (RecordError).
        OSError: a page cannot be read or written.
    """
    makers = {scale: Maker(scale, reference) for scale in SCALES}
    blocks: list[Block] = []
    for path in paths:
        old = path.read_text()
        parts, made = _made(old, path, makers)
        new = "".join(parts)
        blocks += made
        if new != old and not check:
            write_file(path, new)
    return blocks


def _made(old: str, path: Path, makers: Mapping[str, "Maker"]) -> tuple[list[str], list[Block]]:
    """The parts of a page, and its blocks."""
    parts, blocks, end = [], [], 0
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    found = list(MARKED.finditer(old))
    if len(re.findall(rf"(?m)^{re.escape(BEGIN)}", old)) != len(found):
        raise ValueError(f"{name}: a line {BEGIN}... --> has no {END}")
    for match in found:
        place, words = f"{name}:{old.count(chr(10), 0, match.start()) + 1}", match["words"]
        try:
            text, why = _text(words, makers), ""
        except Kept as reason:
            text, why = match["text"], str(reason)
        except (KeyError, IndexError, ValueError) as error:
            if isinstance(error, RecordError):
                raise
            raise ValueError(f"{place}: cannot make {words!r}: {error}") from None
        state = KEPT if why else CURRENT if text == match["text"] else STALE
        parts += [old[end : match.start("text")], text]
        blocks.append(Block(place, words, state, why))
        end = match.end("text")
    return [*parts, old[end:]], blocks


def _text(words: str, makers: Mapping[str, "Maker"]) -> str:
    """What a mark asks for, in whole lines."""
    named, what, *options = words.split()
    chosen = {key: [int(number) for number in numbers.split(",")] for key, _, numbers in map(_option, options)}
    scales = named.split(",")
    if not set(scales) <= set(makers):
        raise ValueError(f"the scale must be one of {', '.join(SCALES)}")
    kind, _, name = what.partition("/")
    if what in ("races", "pushes"):
        made, about = makers[scales[0]].races(of_pushes=what == "pushes")
    elif what == "rates":
        made, about = makers[scales[0]].rates()
    elif kind == "settings":
        return f"\n{_settings(name, scales[0]).markdown_body()}\n\n"
    elif kind == "declared":
        verdicts = makers[scales[0]].verdicts(name)
        if lacking := [one.claim.key for one in verdicts if not one.numbers]:
            raise Kept(f"no numbers of {', '.join(lacking)}")
        return f"\n{declared(verdicts).markdown_body()}\n\n"
    elif what not in ("board", "summary") and kind != "claims":
        if len(scales) > 1:
            raise ValueError("an artefact has one scale")
        artefact, made = makers[scales[0]].shown(kind, name)
        about = f"`{artefact.command}`: {_about([artefact])}"
    else:
        keys = [name] if kind == "claims" else list(PAPERS)
        by_paper = {SHORT[key]: _verdicts([makers[scale] for scale in scales], key) for key in keys}
        if what == "summary":
            return _filled(summary(scales, by_paper)) + "\n"
        verdicts = [one for of_paper in by_paper.values() for one in of_paper]
        made = claims_table(scales, verdicts) if kind == "claims" else board(scales, by_paper, mark="`{}`")
        shown = [one for one in verdicts if one.numbers]
        about = _about([makers[one.scale].artefact(name) for one in shown for name in one.claim.artefacts])
    part = _part(made, chosen.get("columns", []), chosen.get("rows", []))
    return f"\n{part.markdown_body()}\n\n{_filled(f'({about})')}\n\n"


def _verdicts(makers: Sequence["Maker"], key: str) -> list[Verdict]:
    """One a claim of a paper: at the first of these scales that judges it by runs, else why the last one does not.

    Raises:
        Kept: the reference lacks runs of a claim.
    """
    found = [first_judged(of_claim) for of_claim in zip(*(maker.verdicts(key) for maker in makers), strict=True)]
    for one in found:
        if one.verdict == NOT_RUN and not one.numbers:
            for name in one.claim.artefacts:
                makers[-1].complete(name, SAME)
    return found


def _settings(paper: str, scale: str) -> Table:
    """A row an experiment of a paper that claims about learning are judged by, from the experiments' files."""
    names = dict.fromkeys(name for one in PAPERS[paper].claims if one.basis == LEARNED for name in one.artefacts)
    rows = []
    for name in names:
        about = _content(name)
        arms, seeds, looks, targets = (
            (about.get(key) or {}).get(scale) for key in ("arms", "seeds", "looks", "targets")
        )
        rows.append([f"`{name}`", *(_flow(value) for value in (seeds or [*range(FIRST_SEEDS)], looks, arms, targets))])
    return Table("", [Heading(name) for name in ("experiment", "first seeds", "looks", "rates", "targets")], rows)


def _content(name: str) -> dict[str, Any]:
    """The keys of an experiment's file, with those of the one that it begins with."""
    own = yaml.safe_load((ROOT / "conf" / "experiment" / f"{name}.yaml").read_text())
    bases = [base.removeprefix("/experiment/") for base in own.get("defaults", ()) if base != "_self_"]
    return {key: value for content in (*map(_content, bases), own) for key, value in content.items()}


def _flow(value: object) -> str:
    """A value of a file in one line."""
    if value is None:
        return DASH
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
    return text[1:-1] if isinstance(value, dict) else text


def _about(artefacts: Sequence[Artefact]) -> str:
    """How many runs these have, and where and when they were made."""
    records = {run.record.identity: run.record for artefact in artefacts for run in artefact.runs}
    return f"{len(records):,} runs; {provenance([*records.values()])}"


def _option(word: str) -> tuple[str, str, str]:
    key, equals, numbers = word.partition("=")
    if key not in ("columns", "rows") or not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", numbers):
        raise ValueError(f"{word!r} is neither columns=1,2 nor rows=1,2")
    return key, equals, numbers


class Maker:
    """Makes the texts of one scale from the reference alone."""

    def __init__(self, scale: str, reference: Path) -> None:
        self._scale = scale
        self._reference = Reference(reference / scale)
        self._store = ArtefactStore(reference / "results", scale, reference)  # a folder that is not there

    def artefact(self, name: str) -> Artefact:
        """Raises Kept where the reference has no plan of it."""
        if self._reference.plan(stem_of(name, self._scale)) is None:
            raise Kept(f"{name} is not in the reference")
        return self._store.artefact(name)

    def complete(self, name: str, arm: str) -> Artefact:
        """Raises Kept where runs of the arm are missing, too."""
        artefact = self.artefact(name)
        missing = artefact.arm(arm).missing if arm in artefact.arms else []
        if missing:
            raise Kept(f"{name} misses {len(missing)} runs in the reference")
        return artefact

    def shown(self, paper: str, name: str) -> tuple[Artefact, Table]:
        """A table of an artefact. Raises Kept where it is not complete, LookupError or ValueError if there is none."""
        own, _, suffix = name.partition("-")
        if own not in SHOWN[paper].shows:
            raise KeyError(own)
        artefact = self.complete(f"{paper}/{own}", OWN if suffix.partition("-")[0] == OWN else SAME)
        item = SHOWN[paper].exhibit(own, artefact)[suffix]
        if not isinstance(item, Table):
            raise ValueError("it is no table")
        return artefact, item

    def races(self, of_pushes: bool) -> tuple[Table, str]:
        """Races side by side, and how many runs they have. Raises Kept where there is none with an answer.

        Args:
            of_pushes: those of local steps or compression; else the others.
        """
        races = [each for each in self._store.studies().values() if each.kind == "race"]
        races = [each for each in races if are_of_pushes(each) == of_pushes]
        try:
            item = (map_of_pushes if of_pushes else together)(races)[""]
        except RecordError as error:
            raise Kept(str(error)) from None
        assert isinstance(item, Table)
        plans = filter(None, (self._reference.plan(study.plan) for study in races))
        records = filter(None, (self._reference.record(identity) for plan in plans for identity in plan.once()))
        found = {record.identity: record for record in records}
        command = f"syncline report {'pushes' if of_pushes else 'races'} --scale {self._scale}"
        return item, f"`{command}`: {len(found):,} runs; {provenance([*found.values()])}"

    def rates(self) -> tuple[Table, str]:
        """How far the edges of tuned rows are apart. Raises Kept where none was tuned."""
        try:
            item = rates(list(self._store.studies().values()), self._store.sources)["spread"]
        except RecordError as error:
            raise Kept(str(error)) from None
        assert isinstance(item, Table)
        return item, f"`syncline report rates --scale {self._scale}`"

    def verdicts(self, key: str) -> list[Verdict]:
        """On the claims of a paper."""
        return self._store.verdicts(PAPERS[key])


def _part(table: Table, columns: Sequence[int], rows: Sequence[int]) -> Table:
    """Some columns and rows, by their numbers from 1; all if none are given."""
    chosen = [table.rows[number - 1] for number in rows] if rows else table.rows
    if not columns:
        return replace(table, rows=chosen)
    headings = [table.columns[number - 1] for number in columns]
    return replace(table, columns=headings, rows=[[row[number - 1] for number in columns] for row in chosen])


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
