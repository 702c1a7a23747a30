"""The bounds on the error against the recursion that they solve (appendix C of the paper)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.timing.convergence import StronglyConvex, stale_progress

PROBLEM = StronglyConvex(first_error=1.0, rate=0.05, smoothness=2.0, convexity=0.2, variance=1.0)


@given(st.integers(1, 8), st.integers(0, 300), st.floats(0.5, 1.0))
def test_the_closed_form_is_the_recursion(k: int, updates: int, progress: float) -> None:
    """Equation 52: e_{J+1} = (1 - eta c g) e_J + eta^2 L s^2 / (2 K)."""
    error = PROBLEM.first_error
    for _ in range(updates):
        error = (1 - 0.05 * 0.2 * progress) * error + 0.05**2 * 2.0 * 1.0 / (2 * k)
    assert PROBLEM.error(k, updates, progress) == pytest.approx(error)


@given(st.integers(1, 8), st.floats(0.5, 1.0))
def test_the_floor_is_its_fixed_point_and_falls_as_one_over_k(k: int, progress: float) -> None:
    floor = PROBLEM.floor(k, progress)
    assert (1 - 0.05 * 0.2 * progress) * floor + 0.05**2 * 2.0 / (2 * k) == pytest.approx(floor)
    assert floor == pytest.approx(PROBLEM.floor(1, progress) / k)
    assert PROBLEM.error(k, 1e6, progress) == pytest.approx(floor)
    assert PROBLEM.floor(1) == pytest.approx(0.25)


@given(st.integers(1, 8), st.floats(1.1, 1.9), st.floats(0.5, 1.0))  # below the first error for K = 1 as well
def test_the_updates_to_a_multiple_of_the_floor(k: int, multiple: float, progress: float) -> None:
    updates = PROBLEM.updates_to(multiple, k, progress)
    assert PROBLEM.error(k, updates, progress) == pytest.approx(multiple * PROBLEM.floor(k, progress))
    assert updates > 0


def test_from_the_floor_no_updates_are_needed() -> None:
    assert StronglyConvex(0.1, 0.05, 2.0, 0.2, 1.0).updates_to(2.0, 1) == 0.0


def test_stale_gradients_descend_more_slowly_unless_most_are_fresh() -> None:
    assert stale_progress(0.1, 1 / 8) == pytest.approx(0.9625)
    assert stale_progress(0.0, 1 / 8) > 1
    assert PROBLEM.floor(2, 0.9625) > PROBLEM.floor(2)
    assert PROBLEM.error(1, 50, 0.9625) > PROBLEM.error(1, 50)


@pytest.mark.parametrize(("gamma", "fresh"), [(-0.1, 0.5), (1.1, 0.5), (1.0, 0.0), (0.5, 1.5)])
def test_probabilities_and_bounds_out_of_range_are_refused(gamma: float, fresh: float) -> None:
    with pytest.raises(ValueError, match=r"^stale_progress: "):
        stale_progress(gamma, fresh)


@pytest.mark.parametrize(
    "values", [(0, 1, 2, 1, 1), (1, 0, 2, 1, 1), (1, 1, 0.5, 1, 1), (1, 2, 2, 1, 1), (1, 1, 2, 0, 1)]
)
def test_an_invalid_problem_is_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must be"):
        StronglyConvex(*values)
