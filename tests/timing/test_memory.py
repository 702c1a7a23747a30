"""Distributions with memory: every draw follows from the key and its number, and from nothing else."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recurrences import first_compute_s

from syncline.config import compose
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Array, Exponential, Remembering, Trace, TwoState, Uniform, distribution
from syncline.timing.draws import BLOCK, Draws

RAW = Uniform(0.0, 1.0)  # its draws are the stream itself
SEQUENCE = tuple((1.0 + np.sin(np.arange(90) / 5.0) + np.arange(90) % 7 / 10.0).tolist())
SOURCES = [
    Trace(SEQUENCE, block=1.0),
    Trace(SEQUENCE, block=20.0),
    Trace(SEQUENCE, block=1000.0),
    TwoState(0.1, 2.0, every=30.0, lasting=12.0),
    TwoState(0.0, 1.0, every=900.0, lasting=300.0),
    TwoState(0.0, 1.0, every=2.0, lasting=2.0),
]


def one_by_one(source: Remembering, worker: int, count: int, seed: int = 3) -> Array:
    """The draws of a worker, from the definition at the head of draws.py."""
    drawn, at, age = [], 0.0, 0
    for number, u in enumerate(Draws(seed, "compute", RAW, [1.0] * (worker + 1)).made(0, count)[worker]):
        if number == 0:
            at = u
        elif u < source.renewal:
            at, age = u / source.renewal, 0
        else:
            age += 1
        drawn.append(source.following(worker, np.array([at]), np.array([age]))[0])
    return np.array(drawn)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: f"{source.name}-{source.renewal:g}")
def test_draws_are_those_of_the_definition_however_they_are_taken(source: Remembering) -> None:
    count = 6 * BLOCK
    expected = np.stack([one_by_one(source, worker, count) for worker in range(3)])
    ones = [1.0] * 3
    made = Draws(3, "compute", source, ones).made
    np.testing.assert_array_equal(made(0, count), expected)
    for begin in (4 * BLOCK, 4 * BLOCK + 7):
        np.testing.assert_array_equal(made(begin, BLOCK), expected[:, begin : begin + BLOCK])
    assert made(0, 0).shape == (3, 0)
    singly = Draws(3, "compute", source, ones)
    np.testing.assert_array_equal([[singly.next(worker) for _ in range(count)] for worker in (0, 1, 2)], expected)


@given(st.sampled_from(SOURCES), st.integers(0, 3 * BLOCK), st.integers(0, 2 * BLOCK))
def test_a_restored_state_goes_on_in_every_bit(source: Remembering, before: int, after: int) -> None:
    draws = Draws(5, "compute", source, [1.0, 2.0])
    for _ in range(before):
        draws.next(1)
    state = draws.state_dict()
    expected = [draws.next(1) for _ in range(after)]
    other = Draws(5, "compute", source, [1.0, 2.0])
    other.load_state_dict(state)
    assert [other.next(1) for _ in range(after)] == expected
    assert other.drawn(1) == draws.drawn(1)


def many(source: Remembering, begin: int) -> Array:
    """Draws begin .. begin + BLOCK - 1 of 2,000 workers, which are independent of each other."""
    return Draws(1, "compute", source, [1.0] * 2_000).made(begin, BLOCK)


def assert_mean(samples: Array, expected: float) -> None:
    """Within five standard errors; the seed is fixed, so it passes always or never."""
    error = samples.std() / math.sqrt(len(samples))
    assert abs(samples.mean() - expected) <= 5 * error + 1e-12


@pytest.mark.parametrize("begin", [0, 5 * BLOCK])
def test_a_trace_keeps_the_mean_and_the_autocovariance_of_its_sequence(begin: int) -> None:
    block, sequence = 20.0, np.array(SEQUENCE)
    drawn, centred = many(Trace(SEQUENCE, block=block), begin), sequence - sequence.mean()
    for lag in (0, 1, 5, 16, 40):
        first, later = drawn[:, 3], drawn[:, 3 + lag]
        assert_mean(later, sequence.mean())
        circular = float(np.mean(centred * np.roll(centred, -lag)))
        expected = (1 - 1 / block) ** lag * circular
        assert_mean((first - sequence.mean()) * (later - sequence.mean()), expected)


def test_in_blocks_of_one_each_draw_is_at_the_place_of_its_own_number() -> None:
    ones = [1.0] * 4
    raw = Draws(0, "compute", RAW, ones).made(0, 500)
    drawn = Draws(0, "compute", Trace(SEQUENCE, block=1.0), ones).made(0, 500)
    np.testing.assert_array_equal(drawn, np.array(SEQUENCE)[(raw * len(SEQUENCE)).astype(int)])


def test_without_a_jump_a_trace_goes_on_around_the_end() -> None:
    drawn = Draws(0, "compute", Trace(SEQUENCE, block=1e9), [1.0]).made(0, 300)[0]
    start = SEQUENCE.index(drawn[0])
    np.testing.assert_array_equal(drawn, [SEQUENCE[(start + step) % len(SEQUENCE)] for step in range(300)])


@pytest.mark.parametrize("begin", [0, 5 * BLOCK])
def test_two_states_are_a_markov_chain(begin: int) -> None:
    every, lasting = 30.0, 12.0
    is_high = many(TwoState(0.0, 1.0, every, lasting), begin)
    share = lasting / (every + lasting)
    for lag in (0, 1, 5, 16, 40):
        first, later = is_high[:, 3], is_high[:, 3 + lag]
        assert_mean(later, share)
        correlated = share * (1 - share) * (1 - 1 / every - 1 / lasting) ** lag
        assert_mean((first - share) * (later - share), correlated)
    was_high = is_high[:, 10] == 1
    assert_mean(is_high[was_high, 11], 1 - 1 / lasting)
    assert_mean(is_high[~was_high, 11], 1 / every)


@pytest.mark.parametrize("source", [Trace(SEQUENCE), TwoState(0.5, 2.0, 30.0, 12.0)], ids=["trace", "two_state"])
def test_quantiles_are_those_of_one_draw(source: Remembering) -> None:
    u = (np.arange(9000) + 0.5) / 9000
    quantiles = source.quantile(u)
    assert (np.diff(quantiles) >= 0).all()
    assert quantiles.mean() == pytest.approx(source.expectation(), rel=1e-4)
    drawn = many(source, 0)[:, 9]
    for value in np.unique(quantiles)[::7]:
        assert_mean((drawn <= value).astype(float), float(np.mean(quantiles <= value)))


def csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_each_worker_draws_from_its_own_column_and_further_ones_repeat_them(tmp_path: Path) -> None:
    path = csv(tmp_path / "seconds.csv", "\ufeff0,1", "1.5,10", "2.5,20", "", "3.5,")  # as spreadsheets write it
    source = Trace(path=str(path), block=1.0)
    assert [column.tolist() for column in source.columns] == [[1.5, 2.5, 3.5], [10.0, 20.0]]
    drawn = Draws(0, "compute", source, [1.0] * 5).made(0, 200)
    assert [sorted(set(row)) for row in drawn] == [[1.5, 2.5, 3.5], [10, 20]] * 2 + [[1.5, 2.5, 3.5]]
    assert source.expectation() == 8.75
    middle = (np.arange(120) + 0.5) / 120
    values, counts = np.unique(source.quantile(middle), return_counts=True)
    assert dict(zip(values, counts, strict=True)) == {1.5: 20, 2.5: 20, 3.5: 20, 10.0: 30, 20.0: 30}


def test_relative_durations_have_a_mean_of_one_in_each_column(tmp_path: Path) -> None:
    path = csv(tmp_path / "seconds.csv", "0,1", "1,10", "3,30", ",50")
    options = {"name": "trace", "path": str(path), "relative": True, "block": 3}
    source = distribution("cluster.jitter", options)
    assert isinstance(source, Trace)
    assert [column.tolist() for column in source.columns] == [[0.5, 1.5], [1 / 3, 1.0, 5 / 3]]
    assert source.expectation() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["0.1,0.2", "0.1,0.2"], "the first line must be workers' numbers 0,1,..., got ['0.1', '0.2']"),
        (["1,0", "2,3"], "workers' numbers"),
        (["0,1", "2,fast"], "'fast'"),
        (["0,1", "2,"], "trace needs durations >= 0"),
        (["0", "-1"], "trace needs durations >= 0, got [-1.0]"),
        (["0", "", "1,2"], "lines must have 1 cells, got ['1', '2']"),
        (["0,1"], "a line of workers' numbers and one or more of seconds, got 1"),
        ([""], "a line of workers' numbers and one or more of seconds, got 0"),
        (["0.1", "0.2"], "the first line must be workers' numbers 0,1,..., got ['0.1']"),
    ],
    ids=str,
)
def test_a_file_that_is_no_table_of_durations_is_refused_in_one_line(
    tmp_path: Path, lines: list[str], named: str
) -> None:
    path = csv(tmp_path / "seconds.csv", *lines)
    with pytest.raises(ValueError, match=r"^cluster\.jitter: trace\.path: cannot read columns of numbers") as refused:
        distribution("cluster.jitter", {"name": "trace", "path": str(path)})
    assert named in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_only_the_delayed_workers_are_delayed() -> None:
    cluster = ClusterConfig(workers=4, gradient_s=[1.0])
    all_of_them = first_compute_s(Cluster(cluster, ScenarioConfig(compute_delay=Exponential(1.0)), 0), 50)
    scenario = ScenarioConfig(compute_delay=Exponential(1.0), delayed_workers=[1, 3])
    some = first_compute_s(Cluster(cluster, scenario, 0), 50)
    np.testing.assert_array_equal(some[[1, 3]], all_of_them[[1, 3]])
    np.testing.assert_array_equal(some[[0, 2]], 1.0)


def test_only_workers_of_the_cluster_are_delayed() -> None:
    with pytest.raises(
        ValueError, match=r"scenario\.delayed_workers must name workers in 0 \.\. 3, cluster\.workers being"
    ):
        compose(["scenario.delayed_workers=[9]"])


def test_more_workers_than_were_measured_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from runners.commands import call

    words = ["gradients=false", "max_updates=3", "cluster.measured_workers=4", f"results={tmp_path}"]
    told = "cluster=laptop extrapolates: 4 workers were measured, 6 repeat them in turn"
    for own, lines in ((["cluster.workers=4"], []), (["cluster.workers=6"], [told])):
        assert call(["run", *words, *own]) == 0
        assert capsys.readouterr().err.splitlines() == lines
    assert call(["run", "-m", *words, "cluster.workers=6", "seed=1,2", "jobs=1"]) == 0
    assert capsys.readouterr().err.splitlines().count(told) == 1
