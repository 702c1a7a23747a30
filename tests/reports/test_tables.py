"""One table in four forms that say the same."""

import csv
import io
import pickle

import pytest
from rich.console import Console

from reports.statistics import Sample
from reports.tables import Column, Table

ROWS = {
    "BSP": (6159.2, Sample((10.0, 12.0)), 1),
    "ASP": (None, Sample((None, 5.25)), 40_000),
    "SSP": (float("nan"), Sample((None, None)), None),
}
TABLE = Table.of(
    "A & B, 100 %",
    ROWS,
    [
        Column("name", str),
        Column("paper", lambda name: ROWS[name][0]),
        Column("s to x_1", lambda name: ROWS[name][1], show_n=True),
        Column("lead", lambda name: ROWS[name][2], 0),
    ],
    ["50 % faster"],
)


def test_markdown_has_a_row_a_row_and_the_notes():
    lines = TABLE.markdown().splitlines()
    assert "| BSP | 6,159.2 | 11.0 ± 1.4 | 1 |" in lines
    assert "| ASP | — | 5.2 (1/2) | 40,000 |" in lines
    assert "| SSP | — | — (0/2) | — |" in lines
    assert lines[-1] == "- 50 % faster"


def test_csv_holds_plain_numbers_with_mean_deviation_and_count():
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows[0] == ["name", "paper", "s to x_1 mean", "s to x_1 std", "s to x_1 n", "lead"]
    assert float(rows[1][2]) == 11
    assert float(rows[1][3]) == pytest.approx(2**0.5)
    assert rows[2] == ["ASP", "", "5.25", "", "1", "40000"]
    assert rows[3][2:5] == ["", "", "0"]
    assert len({len(row) for row in rows}) == 1


def test_latex_is_booktabs_with_its_specials_escaped():
    text = TABLE.latex()
    for part in (
        "\\toprule",
        "\\midrule",
        "\\bottomrule",
        "A \\& B, 100 \\%",
        "s to x\\_1",
        "11.0 $\\pm$ 1.4",
        "{lrrr}",
    ):
        assert part in text
    assert text.count("\\\\") == 4


def test_latex_has_signs_of_comparison_and_braces_as_characters():
    table = Table.of("", ["{a} ≤ 1", "b < 2", "c ≥ 3", "d > 4"], [Column("what", str)])
    for part in ("\\{a\\} $\\leq$ 1", "b $<$ 2", "c $\\geq$ 3", "d $>$ 4"):
        assert part in table.latex()


def test_on_a_terminal_every_cell_is_there():
    shown = io.StringIO()
    Console(file=shown, width=120).print(TABLE.rich())
    assert all(cell in shown.getvalue() for row in TABLE.texts() for cell in row)


def test_on_a_narrow_terminal_each_piece_has_the_names_and_no_cell_is_broken_or_lost():
    first, second = TABLE.pieces(width=32)
    assert [column.title for column in first.columns] == ["name", "paper", "s to x_1"]
    assert [column.title for column in second.columns] == ["name", "lead"]
    shown = io.StringIO()
    TABLE.print(Console(file=shown, width=32))
    assert all(cell in shown.getvalue() for row in TABLE.texts() for cell in row)
    assert len(list(TABLE.pieces(width=80))) == 1


def test_a_table_travels_to_another_process():
    assert pickle.loads(pickle.dumps(TABLE)).csv() == TABLE.csv()
