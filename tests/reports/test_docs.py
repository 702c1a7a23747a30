"""The documentation's tables are those of the reference: what is marked is made anew, and nothing else is touched."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from adasync_records import fig6_runs
from commands import ROOT
from hypothesis import given
from hypothesis import strategies as st
from written import ENVIRONMENT, write_records

from reports.claims import FAILS, HOLDS, LEARNED, NOT_RUN, UNDECIDED, ArmVerdict, Claim, Verdict
from reports.docs import BEGIN, CURRENT, END, KEPT, STALE, Block, Kept, _verdicts, pages, refresh, remade
from reports.exhibits import ArtefactStore, Paper
from reports.papers import SHOWN
from reports.records import SAME
from reports.scoreboard import board, claims_table, counts, summary
from reports.tables import Table
from runners.commands import main
from runners.planning import chosen_experiment
from syncline.operations.reference import add
from syncline.records.plans import read_plan
from syncline.records.reference import Reference
from syncline.records.store import RecordError
from tests.refusals import refusal

TEXT = "# Title\n\nBefore.\n\n{}\nAfter.\n"


def marked(words: str, text: str = "") -> str:
    return f"{BEGIN}{words} -->\n{text}{END}\n"


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """Holds AdaSync's Figure 6 at scale laptop."""
    write_records(tmp_path / "results", "adasync/fig6", "laptop", fig6_runs(), {})
    add(read_plan(tmp_path / "results/plans/adasync-fig6-laptop.json"), tmp_path / "reference")
    return tmp_path / "reference"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


def states(blocks: Sequence[Block]) -> list[str]:
    return [block.state for block in blocks]


def own_table(reference: Path) -> Table:
    """As the reports show it."""
    artefact = ArtefactStore(reference / "none", "laptop", reference).artefact("adasync/fig6")
    item = SHOWN["adasync"].shows["fig6"](artefact)["table"]
    assert isinstance(item, Table)
    return item


@pytest.mark.slow
def test_the_tables_of_the_documentation_are_those_of_the_reference() -> None:
    """syncline report docs makes them so."""
    blocks = refresh(pages(), ROOT / "reference", check=True)
    assert [str(block) for block in blocks if block.state == STALE] == []
    assert {"workstation,laptop board", "workstation,laptop summary"} <= {block.words for block in blocks}


@pytest.mark.slow
def test_plans_of_the_reference_declare_what_their_experiments_files_do() -> None:
    """Axes, and targets, rivals and looks of their scale: claims are judged by the plan's."""
    file = cache(lambda name: chosen_experiment([f"+experiment={name}"]).report)
    for scale in ("laptop", "workstation"):
        stored = Reference(ROOT / "reference" / scale)
        plans = [plan for plan in map(stored.plan, stored.stems) if plan is not None and plan.report]
        assert plans
        for plan in plans:
            assert plan.report["axes"] == file(plan.name)["axes"], plan.name
            reports = plan.report, file(plan.name)
            declared = [[(one.get(key) or {}).get(scale) for key in ("targets", "rivals", "looks")] for one in reports]
            assert (plan.name, declared[0]) == (plan.name, declared[1])


def test_a_marked_part_is_made_and_the_rest_is_untouched(page: Path, reference: Path) -> None:
    old = TEXT.format(marked("laptop adasync/fig6-table", "| old |\n"))
    page.write_text(old)
    assert states(refresh([page], reference, check=True)) == [STALE]
    assert page.read_text() == old, "a check writes nothing"
    assert states(refresh([page], reference)) == [STALE]
    new = page.read_text()
    table = own_table(reference).markdown_body()
    made_on = f"{ENVIRONMENT['processor']} with {ENVIRONMENT['cores']} cores"
    assert f"-->\n\n{table}\n\n(`make adasync-fig6 SCALE=laptop`: 24 runs; {made_on}, " in new
    assert new.partition(BEGIN)[0] == old.partition(BEGIN)[0]
    assert new.partition(END)[2] == old.partition(END)[2]
    assert states(refresh([page], reference)) == [CURRENT]
    assert page.read_text() == new


def test_columns_and_rows_are_chosen_by_number(page: Path, reference: Path) -> None:
    page.write_text(marked("laptop adasync/fig6-table columns=2,1 rows=3"))
    refresh([page], reference)
    head, _, *rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
    table = own_table(reference)
    assert head == f"| {table.columns[1].title} | {table.columns[0].title} |"
    assert rows == [f"| {table.texts()[2][1]} | {table.texts()[2][0]} |"]


def test_what_the_reference_lacks_stays(page: Path, reference: Path) -> None:
    words = ("laptop board", "laptop summary", "laptop claims/psp", "laptop dssp/table1", "gpu adasync/fig6-table")
    old = TEXT.format("".join(marked(one, f"{one}, by hand\n") for one in words))
    page.write_text(old)
    blocks = refresh([page], reference)
    assert states(blocks) == [KEPT] * len(words)
    assert "dssp/table1 is not in the reference" in str(blocks[3])
    assert page.read_text() == old
    plan = reference / "laptop/plans/adasync-fig6-laptop.json"
    plan.write_text(plan.read_text().replace("exponential-P10-sync-1", "another"))
    page.write_text(marked("laptop adasync/fig6-table"))
    (block,) = refresh([page], reference)
    assert (block.state, block.why) == (KEPT, "adasync/fig6 misses 1 runs in the reference")


@given(st.text(st.sampled_from("ab|#-<>! \n"), max_size=60), st.text(st.sampled_from("ab|#-<>! \n"), max_size=60))
def test_text_around_a_mark_survives(before: str, after: str) -> None:
    text = before + "\n" + marked("laptop board", "old\n") + after
    stores = {"laptop": ArtefactStore(Path("none"), "laptop", Path("none"))}
    new, blocks = remade(text, Path("page.md"), stores)
    assert new == text
    assert states(blocks) == [KEPT]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tiny board", "the scale must be one of smoke"),
        ("laptop adasync/fig99", "'fig99'"),
        ("laptop adasync/fig6", "it is no table"),
        ("laptop adasync/fig6-table columns=99", "out of range"),
        ("laptop adasync/fig6-table colour=1", "neither columns=1,2 nor rows=1,2"),
        ("laptop,tiny board", "the scale must be one of smoke"),
        ("workstation,laptop adasync/fig6-table", "an artefact has one scale"),
        ("laptop", "not enough values"),
    ],
)
def test_a_mark_without_a_meaning_is_one_line_with_its_place(
    page: Path, reference: Path, words: str, message: str
) -> None:
    page.write_text(TEXT.format(marked(words)))
    line = refusal(ValueError, refresh, [page], reference)
    assert line.startswith(f"{page}:5: cannot make {words!r}: ")
    assert message in line


def test_a_mark_without_an_end_and_a_broken_reference_are_one_line(page: Path, reference: Path) -> None:
    page.write_text(f"{BEGIN}laptop board -->\ntext\n")
    with pytest.raises(ValueError, match="has no <!-- end -->"):
        refresh([page], reference)
    (part,) = (reference / "laptop/runs").iterdir()
    part.write_bytes(b"PAR1")
    page.write_text(marked("laptop adasync/fig6-table"))
    with pytest.raises(RecordError, match="broken reference"):
        refresh([page], reference)


def test_the_command_says_what_it_did_and_a_check_fails_where_a_table_would_change(
    page: Path, reference: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page.write_text(marked("laptop adasync/fig6-table") + marked("laptop board", "by hand\n"))
    monkeypatch.setattr("reports.docs.pages", lambda: [page])
    assert main(["report", "docs", "--check", "--reference", str(reference)]) == 1
    assert f"{page}:1: laptop adasync/fig6-table: not what the reference gives\n" in capsys.readouterr().out
    assert main(["report", "docs", "--reference", str(reference)]) == 0
    assert "written\n" in capsys.readouterr().out
    assert main(["report", "docs", "--check", "--reference", str(reference)]) == 0
    assert "up to date\n" in capsys.readouterr().out


def verdict(key: str, kind: str, basis: str = LEARNED, scale: str = "laptop") -> Verdict:
    claim = Claim(key, (), lambda: (), "It may.", basis)
    return Verdict(claim, scale, (ArmVerdict(SAME, "one rate for all", kind, f"why {key} {kind}"),))


class Judged:
    """A store of one scale whose verdicts are given, without artefacts."""

    def __init__(self, *verdicts: Verdict) -> None:
        self._verdicts = [*verdicts]

    def verdicts(self, paper: Paper) -> list[Verdict]:
        return self._verdicts

    def has(self, name: str) -> bool:
        return False


def test_of_several_scales_the_first_that_judges_a_claim_is_shown() -> None:
    large = Judged(verdict("a", HOLDS, scale="workstation"), verdict("b", NOT_RUN, scale="workstation"))
    small = Judged(verdict("a", FAILS), verdict("b", UNDECIDED))
    chosen = _verdicts([large, small], "psp")  # type: ignore[list-item]
    assert [(one.verdict, one.scale) for one in chosen] == [(HOLDS, "workstation"), (UNDECIDED, "laptop")]
    scales = ["workstation", "laptop"]
    assert board(scales, {"psp": chosen}).texts()[0][1:5] == ["a", "—", "—", "b (laptop)"]
    assert [row[:5] for row in counts(scales, {"psp": chosen}).texts()] == [
        ["psp", "1", "0", "0", "1"],
        ["of 2", "1", "0", "0", "1"],
    ]
    assert claims_table(scales, chosen).texts()[1][2] == "laptop"
    assert summary(scales, {"psp": chosen}).startswith("Of the 2 claims at scale workstation or else laptop: ")
    (a, b) = _verdicts([large, large], "psp")  # type: ignore[list-item]
    assert (a.verdict, b.verdict, b.because) == (HOLDS, NOT_RUN, "why b not run")
    absent = Judged(replace(b, claim=replace(b.claim, artefacts=("psp/table1",))))
    with pytest.raises(Kept, match="psp/table1 is not in the reference"):
        _verdicts([absent], "psp")  # type: ignore[list-item]
