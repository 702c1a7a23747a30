"""Accuracy against the rate of rows that were tuned: where a row's edge is, and how far edges are apart."""

from collections.abc import Callable

import pytest

from reports.rates import KEPT, TunedRow, _spreads, rates
from syncline.records.store import RecordError

GRID = [0.001 * 2.0**step for step in range(12)]


def row(label: str, staleness: float, skill: Callable[[float], float], momentum: float = 0.9) -> TunedRow:
    return TunedRow("dssp/fig3", label, "bsp", staleness, momentum, {rate: skill(rate) for rate in GRID})


def falls_at(limit: float, scale: float = 1.0) -> Callable[[float], float]:
    """Rises to 1, and falls with the logarithm of the number beyond the limit, by a half with each doubling."""
    return lambda rate: min(rate * scale / limit, limit / (rate * scale))


def test_the_edge_lies_between_two_rates_where_a_fifth_is_lost() -> None:
    skills = dict(zip(GRID, [0.5, 0.9, 1.0, 0.9, 0.7, 0.1, *[0.0] * 6], strict=True))
    found = TunedRow("x", "asp", "bsp", 1.0, 0.9, skills)
    assert found.best == GRID[2]
    assert found.edge == pytest.approx(GRID[3] * 2.0 ** ((0.9 - KEPT) / 0.2))
    assert found.scale == pytest.approx(20.0)


def test_a_row_whose_grid_ends_before_has_no_edge() -> None:
    assert row("asp", 0.0, lambda rate: rate / GRID[-1]).edge is None


def test_rows_that_the_number_tells_apart_have_their_edges_at_one_value_of_it() -> None:
    """Staleness + 1 is a power of two, so that the grid meets each curve at the same heights."""
    rows = [row(f"s{tau}", tau, falls_at(0.64, (tau + 1) / 0.1)) for tau in (0, 3, 15)]
    apart = _spreads(rows).rows[0]
    assert apart[:2] == ["dssp/fig3 (bsp)", "all rows"]
    assert (apart[2], apart[3], apart[6]) == (3.0, pytest.approx(16.0), pytest.approx(1.0))
    one_rate = _spreads([row(f"s{tau}", tau, falls_at(0.064)) for tau in (0, 3, 15)]).rows[0]
    assert (one_rate[3], one_rate[6]) == (pytest.approx(1.0), pytest.approx(16.0)), "the rate alone tells them"
    assert [line[1] for line in _spreads(rows).rows] == ["all rows", "with staleness"] * 2


def test_without_a_study_of_rates_one_line_says_so() -> None:
    with pytest.raises(RecordError, match="no study has tuned the rates of several rows"):
        rates([], [])
