"""Accuracy against the rate of rows that were tuned: where a row's edge is, and how far edges are apart."""

import pytest

from reports.rates import KEPT, TunedRow, rates
from syncline.records.store import RecordError

GRID = [0.001 * 2.0**step for step in range(12)]


def test_the_edge_lies_between_two_rates_where_a_fifth_is_lost() -> None:
    skills = dict(zip(GRID, [0.5, 0.9, 1.0, 0.9, 0.7, 0.1, *[0.0] * 6], strict=True))
    found = TunedRow("dssp/fig3 (bsp)", 1.0, 0.9, skills)
    assert found.best == GRID[2]
    assert found.edge == pytest.approx(GRID[3] * 2.0 ** ((0.9 - KEPT) / 0.2))
    assert found.scale == pytest.approx(20.0)


def test_a_row_whose_grid_ends_before_has_no_edge() -> None:
    rising = {rate: rate / GRID[-1] for rate in GRID}
    assert TunedRow("dssp/fig3 (bsp)", 0.0, 0.9, rising).edge is None


def test_without_a_study_of_rates_one_line_says_so() -> None:
    with pytest.raises(RecordError, match="no study has tuned the rates of several rows"):
        rates([], [])
