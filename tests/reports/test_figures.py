"""Figures as data: what a curve is made of, what is written, and the same figure for the page."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.figures import COLOURS, Figure, Panel, Series, curve, points
from reports.statistics import Sample

LINE = Series("BSP", [0.0, 1.0, 2.0], [0.1, 0.5, 0.6], low=[0.0, 0.4, 0.5], high=[0.2, 0.6, 0.7])
STARS = Series("paper", [1.0], [0.55], "points", published=True)
FIGURE = Figure(
    "Two panels",
    [
        Panel("virtual time, s", "test accuracy", [LINE, STARS], title="left", log_x=False),
        Panel(
            "",
            "seconds",
            [
                points("ours", {0: Sample((1.0, 3.0)), 1: Sample((4.0, 4.0))}, 1, "bars"),
                Series("paper", [0, 1], [2.5, 3.5], "bars", published=True),
            ],
            categories=["BSP", "ASP"],
            log_y=True,
        ),
    ],
)


def test_a_curve_is_the_mean_of_its_runs_within_what_all_have():
    """Two straight lines: their mean is one, and the band lies between them."""
    first, second = ([0.0, 10.0], [0.0, 10.0]), ([1.0, 5.0], [3.0, 7.0])  # y = x and y = x + 2
    made = curve("ours", [first, second], 2, "--")
    assert (made.x[0], made.x[-1]) == (1.0, 5.0)
    assert made.y == pytest.approx([x + 1 for x in made.x])
    assert made.low == pytest.approx(list(made.x))
    assert made.high == pytest.approx([x + 2 for x in made.x])
    assert (made.colour, made.dash) == (2, "--")


def test_one_run_has_no_band():
    made = curve("ours", [([0.0, 1.0], [0.0, 2.0])])
    assert (made.low, made.high) == (None, None)


def test_points_are_means_with_a_deviation_and_none_where_no_seed_has_a_value():
    made = points("ours", {1: Sample((1.0, 3.0)), 2: Sample((None, None)), 4: Sample((5.0,))})
    assert (made.x, made.y) == ([1, 4], [2.0, 5.0])
    assert made.low == pytest.approx([2 - 2**0.5, 5.0])
    assert made.high == pytest.approx([2 + 2**0.5, 5.0])


@given(st.integers(0, 40), st.integers(0, 40))
def test_no_two_of_the_first_28_lines_look_alike(one, other):
    looks = {(series.hex, series.dash) for series in (Series("", [], [], colour=n % 28) for n in (one, other))}
    assert len(looks) == (1 if one % 28 == other % 28 else 2)


def test_it_is_written_in_every_format_and_twice_the_same(tmp_path: Path):
    one_panel = replace(FIGURE, panels=FIGURE.panels[:1])
    files, again = (one_panel.write(tmp_path / folder, "dssp-fig3-smoke") for folder in ("a", "b"))
    assert [path.suffix for path in files] == [".svg", ".png", ".pdf", ".csv"]
    for path, other in zip(files, again, strict=True):
        assert path.read_bytes() == other.read_bytes()
        assert path.stat().st_size > 100


def test_its_drawing_has_every_panel_label_and_name(tmp_path: Path):
    drawing, _ = FIGURE.write(tmp_path, "dssp-fig3-smoke", ["svg"])
    text = drawing.read_text()
    for words in ("virtual time, s", "test accuracy", "Two panels", "BSP", "ASP", "paper"):
        assert words in text
    assert COLOURS[1].lower() in text.lower()


def test_its_csv_has_every_point_by_name():
    rows = list(csv.DictReader(io.StringIO(FIGURE.csv())))
    assert len(rows) == 3 + 1 + 2 + 2
    assert rows[1] == {
        "panel": "left",
        "series": "BSP",
        "published": "0",
        "x": "1.0",
        "y": "0.5",
        "low": "0.4",
        "high": "0.6",
    }
    assert [row["x"] for row in rows[-2:]] == ["BSP", "ASP"]
    assert [row["published"] for row in rows] == ["0"] * 3 + ["1"] + ["0"] * 2 + ["1"] * 2


@pytest.mark.parametrize(("most", "is_plain"), [(5.0, True), (5000.0, False)])
def test_a_logarithmic_axis_of_few_powers_has_plain_numbers(most: float, is_plain: bool, tmp_path: Path):
    panel = Panel("", "", [Series("", [0.0, 1.0, 2.0], [0.4, 1.0, most])], log_y=True)
    text = Figure("", [panel]).write(tmp_path, "log", ["svg"])[0].read_text()
    assert all(f">{number}</text>" in text for number in ("0.5", "2")) == is_plain


def test_a_logarithmic_axis_with_nothing_to_show_is_linear(tmp_path: Path):
    panel = Panel("", "", [Series("", [0.0, 0.0], [0.0, math.nan])], log_x=True, log_y=True)
    assert Figure("", [panel]).write(tmp_path, "empty")[0].exists()
