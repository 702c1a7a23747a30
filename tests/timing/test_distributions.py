"""Distributions against closed forms, and `distribution`, which builds them from config."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline.timing import distributions
from syncline.timing.distributions import (
    DISTRIBUTIONS,
    INLINE,
    Constant,
    Distribution,
    Exponential,
    Gamma,
    LogNormal,
    Normal,
    Occasional,
    Pareto,
    ShiftedExponential,
    Trace,
    TwoState,
    Uniform,
    Weibull,
    distribution,
)
from syncline.timing.draws import Draws

U = np.concatenate([[0.0, 2.0**-53], np.linspace(1e-6, 1 - 1e-6, 4001), [1 - 2.0**-53]])  # the range of a generator
MEASURED = (0.3, 0.1, 0.2, 0.2, 0.9)

# Of scipy.stats: the name, the shapes, and loc and scale.
CONTINUOUS: list[tuple[Distribution, str, tuple[float, ...], tuple[float, float]]] = [
    (Normal(1.0, 0.05), "norm", (), (1.0, 0.05)),
    (Exponential(0.02), "expon", (), (0.0, 0.02)),
    (ShiftedExponential(0.3, 2.0), "expon", (), (0.3, 2.0)),
    (Pareto(0.5, 3.0), "pareto", (3.0,), (0.0, 0.5)),
    (Pareto(2.0, 1.2), "pareto", (1.2,), (0.0, 2.0)),
    (LogNormal(1.5, 0.3), "lognorm", (0.3,), (0.0, 1.5)),
    (LogNormal(0.02, 1.0), "lognorm", (1.0,), (0.0, 0.02)),
    (Weibull(0.5, 1.7), "weibull_min", (1.7,), (0.0, 0.5)),
    (Weibull(0.02, 0.6), "weibull_min", (0.6,), (0.0, 0.02)),
    (Gamma(3.0, 0.5), "gamma", (3.0,), (0.0, 0.5)),
    (Gamma(0.4, 0.02), "gamma", (0.4,), (0.0, 0.02)),
    (Uniform(0.9, 1.1), "uniform", (), (0.9, 0.2)),
]
ALL = [
    Constant(0.7),
    Normal(1.0, 0.0),
    Normal(1.0, 2.0),
    LogNormal(0.7, 0.0),
    Uniform(0.7, 0.7),
    Trace(MEASURED),
    TwoState(0.1, 0.7, 30.0, 10.0),
    Occasional(0.3, Exponential(2.0)),
    Occasional(0.0016, Constant(4.0)),
    Occasional(1.0, Exponential(2.0)),
    Occasional(0.0, Constant(4.0)),
    *(source for source, *_ in CONTINUOUS if source.name != "pareto" or source.shape > 2),  # finite variance
]


@pytest.mark.parametrize(
    ("source", "name", "shapes", "place"), CONTINUOUS, ids=[str(source) for source, *_ in CONTINUOUS]
)
def test_quantiles_are_those_of_scipy(
    source: Distribution, name: str, shapes: tuple[float, ...], place: tuple[float, float]
) -> None:
    from scipy import stats

    known = getattr(stats, name)(*shapes, *place)
    inner = U[1:-1]
    np.testing.assert_allclose(source.quantile(inner), known.ppf(inner), rtol=1e-9)
    np.testing.assert_allclose(known.cdf(source.quantile(U)), U, atol=1e-12)
    assert source.expectation() == pytest.approx(known.mean(), rel=1e-9)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_quantiles_rise_are_finite_and_never_negative_and_each_depends_on_its_own_u_alone(source: Distribution) -> None:
    durations = source.quantile(U)
    assert durations.shape == U.shape
    assert np.isfinite(durations).all()
    assert (durations >= 0).all()
    assert (np.diff(durations) >= 0).all()
    square = U[:1000].reshape(40, 25)
    np.testing.assert_array_equal(source.quantile(square), durations[:1000].reshape(40, 25))


def test_a_normal_moves_its_negative_part_to_zero() -> None:
    from scipy import stats

    source, whole = Normal(1.0, 2.0), stats.norm(1.0, 2.0)
    np.testing.assert_allclose(source.quantile(U[1:]), np.maximum(whole.ppf(U[1:]), 0.0), rtol=1e-9, atol=1e-12)
    assert source.expectation() == pytest.approx(float(stats.truncnorm(-0.5, np.inf, 1.0, 2.0).mean()) * whole.sf(0))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A file of measured durations."""
    path = tmp_path / "trace.txt"
    path.write_text("0\n0.3\n0.1\n\n0.2\n2e-1\n0.9\n")
    return path


def test_a_file_of_the_same_content_elsewhere_is_the_same_distribution(trace: Path, tmp_path: Path) -> None:
    before = Trace(path=str(trace))
    elsewhere = Trace(path=str(trace.rename(tmp_path / "moved.txt")))
    assert elsewhere == before
    elsewhere_changed = Path(elsewhere.path)
    elsewhere_changed.write_text("0\n0.3\n")
    assert Trace(path=elsewhere.path) != before


def test_the_numbers_of_a_file_are_read_when_they_are_needed_and_only_if_they_are_the_same(trace: Path) -> None:
    content = Trace(path=str(trace)).content
    trace.write_text("0\n0.4\n")
    known = Trace(path=str(trace), content=content)
    distributions._columns.cache_clear()
    with pytest.raises(ValueError, match="has changed: it has checksum ") as refused:
        known.expectation()
    assert content in str(refused.value)
    trace.unlink()
    with pytest.raises(ValueError, match=r"cannot read .*trace\.txt': No such file"):
        known.quantile(U)


def test_the_numbers_of_a_trace_become_an_array_once_however_many_blocks_are_drawn() -> None:
    source = Trace(tuple(np.random.default_rng(0).random(20_000)))
    assert source.columns is source.columns
    drawn = Draws(0, "compute", source, [1.0])
    assert {drawn.next(0) for _ in range(500)} <= set(source.values)


def test_a_config_holds_a_few_numbers_and_no_more() -> None:
    few = [0.1] * INLINE
    assert distribution("cluster.jitter", {"name": "trace", "values": few}) == Trace(tuple(few))
    with pytest.raises(
        ValueError, match=r"^cluster\.jitter\.values must hold at most 100 numbers; more go into a file, "
    ):
        distribution("cluster.jitter", {"name": "trace", "values": [*few, 0.1]})


def test_occasional_happens_with_its_probability_and_then_follows_its_source() -> None:
    source, u = Exponential(2.0), (np.arange(1000) + 0.5) / 1000
    drawn = Occasional(0.25, source).quantile(u)
    np.testing.assert_array_equal(drawn[:750], 0.0)
    np.testing.assert_allclose(drawn[750:], source.quantile((np.arange(250) + 0.5) / 250))
    for probability in (0.0, 1e-12, 0.1, 1.0 / 3.0, 1.0):  # dividing by it may not reach 1
        assert np.isfinite(Occasional(probability, source).quantile(U)).all()


NAN = math.nan
# Other bounds are those of the table in docs/clusters.md: test_distributions_table.py.
OUT_OF_RANGE = [
    ("normal", {"mean": 1.0, "std": NAN}, "normal.std must be >= 0"),
    ("log_normal", {"median": 1.0, "sigma": 10.1}, "log_normal.sigma must be in 0 .. 10"),
    ("gamma", {"shape": NAN, "scale": 1.0}, "gamma.shape must be >= 0.01"),
    ("uniform", {"low": 0.5, "high": 0.4}, "uniform.high must be >= uniform.low = 0.5"),
    ("uniform", {"low": 0.5, "high": NAN}, "uniform.high must be >= 0"),
    ("trace", {"values": (0.1, -0.1)}, "trace needs durations >= 0"),
    ("trace", {"values": (0.1, math.inf)}, "trace needs durations >= 0"),
    ("trace", {"values": (0.1,), "content": "0"}, "trace.content goes with path"),
    ("trace", {"values": (0.1,), "block": 0.5}, "trace.block must be >= 1"),
    ("trace", {"values": (0.0,), "relative": True}, "trace.relative needs columns of means > 0"),
    ("two_state", {"low": 2.0, "high": 1.0, "every": 9.0, "lasting": 9.0}, "two_state.high must be >= two_state.low"),
    (
        "two_state",
        {"low": 0.0, "high": 1.0, "every": 1.0, "lasting": 9.0},
        r"1 / two_state.every \+ 1 / two_state.lasting must be <= 1, got every = 1.0 and ",
    ),
]


@pytest.mark.parametrize(("name", "parameters", "rule"), OUT_OF_RANGE)
def test_a_parameter_out_of_range_is_refused_with_the_rule_and_what_was_given(
    name: str, parameters: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ValueError, match=rule) as refused:
        DISTRIBUTIONS[name](**parameters)
    assert ", got " in str(refused.value)
    options = {key: list(value) if isinstance(value, tuple) else value for key, value in parameters.items()}
    with pytest.raises(ValueError, match=rf"^cluster\.jitter: {rule}"):
        distribution("cluster.jitter", {"name": name, **options})


@pytest.mark.parametrize("probability", [-0.1, 1.1, NAN])
def test_a_probability_lies_between_0_and_1(probability: float) -> None:
    with pytest.raises(ValueError, match=r"probability must be in \[0, 1\], got "):
        Occasional(probability, Constant(1.0))


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({"name": "constant", "value": 4}, Constant(4)),
        ({"name": "normal", "mean": 1.0, "std": 0.1}, Normal(1.0, 0.1)),
        ({"name": "trace", "values": [0.3, 0.1, 0.2, 0.2, 0.9], "block": 7}, Trace(MEASURED, block=7.0)),
        ({"name": "two_state", "low": 0, "high": 3, "every": 9, "lasting": 3}, TwoState(0.0, 3.0, 9.0, 3.0)),
    ],
)
def test_options_build_the_distribution_that_they_describe(options: dict[str, Any], made: Distribution) -> None:
    before = dict(options)
    assert distribution("somewhere", options) == made
    assert made.name == options["name"]
    assert options == before


def test_the_names_are_sorted_and_each_is_tested_above() -> None:
    assert list(DISTRIBUTIONS) == sorted(DISTRIBUTIONS)
    assert set(DISTRIBUTIONS) == {source.name for source in ALL if not isinstance(source, Occasional)} | {"pareto"}


@pytest.mark.parametrize(
    ("options", "named", "allowed"),
    [
        ({"name": "nope", "mean": 1}, ["cluster.jitter.name", "nope"], list(DISTRIBUTIONS)),
        ({"mean": 1}, ["cluster.jitter.name"], list(DISTRIBUTIONS)),
        ({"name": ["normal"]}, ["cluster.jitter.name"], list(DISTRIBUTIONS)),
        ({"name": "normal", "mean": 1, "std": 1, "spread": 2}, ["cluster.jitter.spread"], ["mean", "std"]),
        ({"name": "exponential", "mean": 1, "std": 1}, ["cluster.jitter.std", "exponential"], ["mean"]),
        ({"name": "normal", "mean": 1}, ["cluster.jitter", "normal"], ["std"]),
        ({"name": "normal", "mean": "fast", "std": 1}, ["cluster.jitter.mean", "'fast'"], ["a number"]),
        ({"name": "normal", "mean": [1, 2], "std": 1}, ["cluster.jitter.mean"], ["a number"]),
        ({"name": "normal", "mean": True, "std": 1}, ["cluster.jitter.mean", "True"], ["a number"]),
        ({"name": "trace", "values": [1], "relative": 1}, ["cluster.jitter.relative", "1"], ["true or false"]),
        ({"name": "trace", "values": 3}, ["cluster.jitter.values"], ["list"]),
        ({"name": "trace", "values": [1, "fast"]}, ["cluster.jitter.values", "fast"], ["a list of numbers"]),
        ({"name": "trace", "path": 3}, ["cluster.jitter.path"], ["3"]),
        ({"name": "trace"}, ["cluster.jitter", "trace"], ["values", "path"]),
        ({"name": "trace", "values": [1], "path": "x"}, ["cluster.jitter", "trace"], ["values", "path"]),
        ({"name": "trace", "path": "/no/such/file"}, ["cluster.jitter", "/no/such/file"], ["No such file"]),
    ],
)
def test_bad_options_are_refused_in_one_line_with_the_key_and_what_is_allowed(
    options: dict[str, Any], named: list[str], allowed: list[str]
) -> None:
    with pytest.raises(ValueError, match=r"^cluster\.jitter") as refused:
        distribution("cluster.jitter", options)
    line = str(refused.value)
    assert "\n" not in line
    assert [word for word in named + allowed if word not in line] == [], line
