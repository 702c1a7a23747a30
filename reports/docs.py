"""Tables of the documentation that are made from the reference: syncline report docs writes them anew.

A page marks what is made. The first word is the scale, the second what is shown there:

    <!-- made by syncline report docs: laptop dssp/table1 columns=1,3,8 rows=1,2 -->
    <!-- end -->

    board           the claims by paper and verdict
    summary         how many claims got which verdict, as a sentence
    claims/<paper>  the claims of a paper, with their verdicts and what decided them

    declared        the numbers of each claim, the regions in which they must lie, and what of these is ours
    settings        of each experiment that claims are judged by: seeds, looks, rates of both arms, targets

The first three may name several scales (`workstation,laptop`): each claim is shown at the first one that judges it.

    <paper>/<artefact>[-<suffix>]   a table of an artefact; `columns` and `rows` choose some of it, counted from 1
    races           all races of strategies side by side
    phases          those of one training by slowest worker and noise
    workers         those by their number of workers
    pushes          those of local steps and compression, as a map
    rules           those of update rules
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
from reports.exhibits import SCALES, ArtefactStore, verdicts
from reports.papers import COLLECTIONS, PAPERS, SHORT, SHOWN
from reports.races import by_subject
from reports.records import OWN, SAME, Artefact
from reports.scoreboard import board, claims_table, declared, summary
from reports.tables import DASH, Heading, Table
from syncline.records.sources import Record, where_and_when
from syncline.records.store import RecordError, write_file

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- made by syncline report docs: ", "<!-- end -->"
MARKED = re.compile(rf"(?m)^{re.escape(BEGIN)}(?P<words>.*?) -->\n(?P<text>.*?)^{re.escape(END)}$", re.DOTALL)
CURRENT, STALE, KEPT = "up to date", "not what the reference gives", "kept"
WIDTH = 120  # of a line of text
FIRST_SEEDS = 5  # of scale workstation, where an experiment has none of its own
Stores = Mapping[str, ArtefactStore]  # by scale


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
    stores = {scale: ArtefactStore(reference / "none", scale, reference) for scale in SCALES}  # without results
    blocks: list[Block] = []
    for path in paths:
        old = path.read_text()
        new, made = remade(old, path.relative_to(ROOT) if path.is_relative_to(ROOT) else path, stores)
        blocks += made
        if new != old and not check:
            write_file(path, new)
    return blocks


def remade(old: str, name: Path, stores: Stores) -> tuple[str, list[Block]]:
    """A page's text with all marked parts made anew, and these."""
    blocks: list[Block] = []

    def made(found: re.Match[str]) -> str:
        place, words = f"{name}:{old.count(chr(10), 0, found.start()) + 1}", found["words"]
        text, why = found["text"], ""
        try:
            text = _text(words, stores)
        except Kept as reason:
            why = str(reason)
        except RecordError:
            raise
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"{place}: cannot make {words!r}: {error}") from None
        blocks.append(Block(place, words, KEPT if why else CURRENT if text == found["text"] else STALE, why))
        return f"{BEGIN}{words} -->\n{text}{END}"

    new = MARKED.sub(made, old)
    if len(re.findall(rf"(?m)^{re.escape(BEGIN)}", old)) != len(blocks):
        raise ValueError(f"{name}: a line {BEGIN}... --> has no {END}")
    return new, blocks


def _text(words: str, stores: Stores) -> str:
    """What a mark asks for, in whole lines."""
    named, what, *options = words.split()
    chosen = dict(map(_option, options))
    scales = named.split(",")
    if not set(scales) <= set(stores):
        raise ValueError(f"the scale must be one of {', '.join(SCALES)}")
    store = stores[scales[0]]
    kind, _, name = what.partition("/")
    if what == "settings":
        return f"\n{_settings(store.scale).markdown_body()}\n\n"
    if what == "declared":
        judged = {key: store.verdicts(paper) for key, paper in PAPERS.items()}
        if lacking := [f"{key}/{one.claim.key}" for key, own in judged.items() for one in own if not one.numbers]:
            raise Kept(f"no numbers of {', '.join(lacking)}")
        return f"\n{declared(judged).markdown_body()}\n\n"
    if what in COLLECTIONS:
        table, about = _collection(what, store)
    elif what in ("board", "summary") or kind == "claims":
        keys = [name] if kind == "claims" else list(PAPERS)
        by_paper = {SHORT[key]: _verdicts([stores[scale] for scale in scales], key) for key in keys}
        if what == "summary":
            return _filled(summary(scales, by_paper)) + "\n"
        found = [one for of_paper in by_paper.values() for one in of_paper]
        table = claims_table(scales, found) if kind == "claims" else board(scales, by_paper, mark="`{}`")
        shown = [one for one in found if one.numbers]
        about = _about([stores[one.scale].artefact(name) for one in shown for name in one.claim.artefacts])
    elif len(scales) > 1:
        raise ValueError("an artefact has one scale")
    else:
        artefact, table = _of_artefact(kind, name, store)
        about = f"`{artefact.command}`: {_about([artefact])}"
    part = _part(table, chosen.get("columns", []), chosen.get("rows", []))
    return f"\n{part.markdown_body()}\n\n{_filled(f'({about})')}\n\n"


def _option(word: str) -> tuple[str, list[int]]:
    key, _, numbers = word.partition("=")
    if key not in ("columns", "rows") or not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", numbers):
        raise ValueError(f"{word!r} is neither columns=1,2 nor rows=1,2")
    return key, list(map(int, numbers.split(",")))


def _verdicts(stores: Sequence[ArtefactStore], key: str) -> list[Verdict]:
    """One a claim of a paper, as `verdicts`. Raises Kept where the reference lacks runs of a claim."""
    found = verdicts(stores, PAPERS[key])
    for one in found:
        if one.verdict == NOT_RUN and not one.numbers:
            for name in one.claim.artefacts:
                _complete(stores[-1], name, SAME)
    return found


def _complete(store: ArtefactStore, name: str, arm: str) -> Artefact:
    """Raises Kept where the reference has no plan of it, or runs of the arm are missing."""
    if not store.has(name):
        raise Kept(f"{name} is not in the reference")
    artefact = store.artefact(name)
    missing = artefact.arm(arm).missing if arm in artefact.arms else []
    if missing:
        raise Kept(f"{name} misses {len(missing)} runs in the reference")
    return artefact


def _of_artefact(paper: str, name: str, store: ArtefactStore) -> tuple[Artefact, Table]:
    """A table of an artefact. Raises Kept where it is not complete, LookupError or ValueError if there is none."""
    own, _, suffix = name.partition("-")
    if own not in SHOWN[paper].shows:
        raise KeyError(own)
    artefact = _complete(store, f"{paper}/{own}", OWN if suffix.partition("-")[0] == OWN else SAME)
    item = SHOWN[paper].exhibit(own, artefact)[suffix]
    if not isinstance(item, Table):
        raise ValueError("it is no table")
    return artefact, item


def _collection(what: str, store: ArtefactStore) -> tuple[Table, str]:
    """Races side by side or how far the edges of tuned rows are apart, and what they are made of.

    Raises:
        Kept: there is none.
    """
    try:
        item = COLLECTIONS[what](store)[""]
    except RecordError as error:
        raise Kept(str(error)) from None
    assert isinstance(item, Table)
    command = f"`syncline report {what} --scale {store.scale}`"
    if what == "rates":
        return item, command
    chosen = [study for study, _ in by_subject([*store.studies().values()])[what]]
    found: dict[str, Record] = {}
    for source in store.sources:
        plans = filter(None, (source.plan(study.plan) for study in chosen))
        records = filter(None, (source.record(identity) for plan in plans for identity in plan.once()))
        found |= {record.identity: record for record in records}
    return item, f"{command}: {len(found):,} runs; {where_and_when([*found.values()])}"


def _settings(scale: str) -> Table:
    """A row an experiment that claims about learning are judged by, from the experiments' files."""
    claims = [claim for paper in PAPERS.values() for claim in paper.claims if claim.basis == LEARNED]
    names = dict.fromkeys(name for claim in claims for name in claim.artefacts)
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
    return f"{len(records):,} runs; {where_and_when([*records.values()])}"


def _part(table: Table, columns: Sequence[int], rows: Sequence[int]) -> Table:
    """Some columns and rows, by their numbers from 1; all if none are given."""
    chosen = [table.rows[number - 1] for number in rows] if rows else table.rows
    if not columns:
        return replace(table, rows=chosen)
    headings = [table.columns[number - 1] for number in columns]
    return replace(table, columns=headings, rows=[[row[number - 1] for number in columns] for row in chosen])


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
