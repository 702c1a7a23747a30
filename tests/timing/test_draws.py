"""The keyed streams: a worker's i-th draw depends on (seed, purpose, worker, i) and on nothing else."""

import math
import zlib
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.timing.distributions import Array, Constant, Distribution, Exponential, Normal, Pareto
from syncline.timing.draws import BLOCK, Draws

LONG = 4_000


@dataclass(frozen=True)
class Uniform:
    """On [0, 1): its draws are the raw stream."""

    name: str = "uniform"

    def quantile(self, u: Array) -> Array:
        return u

    def expectation(self) -> float:
        return 0.5


def stream(
    count: int,
    *,
    seed: int = 0,
    purpose: str = "compute",
    worker: int = 0,
    num_workers: int = 4,
    source: Distribution | None = None,
    factor: float = 1.0,
) -> Array:
    draws = Draws(seed, purpose, source or Uniform(), [factor] * num_workers)
    return np.array([draws.next(worker) for _ in range(count)])


@given(st.lists(st.integers(0, 4), max_size=300), st.integers(0, 2**32 - 1))
def test_the_order_of_the_workers_does_not_matter(order: list[int], seed: int) -> None:
    draws = Draws(seed, "compute", Uniform(), [1.0] * 5)
    got: list[list[float]] = [[] for _ in range(5)]
    for worker in order:
        got[worker].append(draws.next(worker))
    for worker, drawn in enumerate(got):
        assert drawn == stream(len(drawn), seed=seed, worker=worker, num_workers=5).tolist()


@scaled(25)
@given(st.integers(1, 60), st.integers(0, 59), st.data())
def test_the_number_of_workers_does_not_matter(num_workers: int, more: int, data: st.DataObject) -> None:
    worker = data.draw(st.integers(0, num_workers - 1))
    few = stream(2 * BLOCK, worker=worker, num_workers=num_workers)
    many = stream(2 * BLOCK, worker=worker, num_workers=num_workers + more)
    np.testing.assert_array_equal(few, many)


@pytest.mark.parametrize("source", [Exponential(0.02), Normal(1.0, 0.05), Pareto(1.0, 2.0), Constant(3.0)], ids=str)
def test_draws_are_quantiles_of_the_raw_stream_across_the_edges_of_blocks(source: Distribution) -> None:
    count = 3 * BLOCK + 5
    raw = stream(count, seed=5, worker=2)
    np.testing.assert_array_equal(stream(count, seed=5, worker=2, source=source), source.quantile(raw))


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_the_raw_stream_is_philox_under_a_key_of_seed_purpose_and_worker(seed: int) -> None:
    """Recorded results depend on these bits: the key is the seed, 32 bits of crc32(purpose), 32 bits of the worker."""
    draws = Draws(seed, "compute", Uniform(), [1.0] * 3)
    for worker in range(3):
        key = seed << 64 | zlib.crc32(b"compute") << 32 | worker
        expected = np.random.Generator(np.random.Philox(key=key)).random(3 * BLOCK + 5)
        assert [draws.next(worker) for _ in expected] == expected.tolist()


@given(st.floats(1e-6, 1e6), st.integers(0, 3))
def test_factors_multiply(factor: float, worker: int) -> None:
    count = BLOCK + 3
    once = stream(count, worker=worker, source=Exponential(2.0))
    np.testing.assert_array_equal(stream(count, worker=worker, source=Exponential(2.0), factor=factor), factor * once)


def test_each_worker_has_its_own_factor() -> None:
    draws = Draws(0, "compute", Constant(2.0), [1.0, 3.0, 0.5])
    assert [draws.next(worker) for worker in (2, 0, 1, 2)] == [1.0, 2.0, 6.0, 1.0]


STREAMS = {
    "seed 0": {},
    "seed 1": {"seed": 1},
    "seed 2^32 - 1": {"seed": 2**32 - 1},
    "worker 1": {"worker": 1},
    "delay": {"purpose": "compute delay"},
    "push 0": {"purpose": "push delay 0"},
    "pull 0": {"purpose": "pull delay 0"},
    "seed 1, worker 1": {"seed": 1, "worker": 1},
}


@pytest.fixture(scope="module")
def long_streams() -> dict[str, Array]:
    return {name: stream(LONG, **key) for name, key in STREAMS.items()}  # type: ignore[arg-type]


def test_streams_of_other_seeds_purposes_and_workers_do_not_correlate(long_streams: dict[str, Array]) -> None:
    """|r| <= 5 / sqrt(n), also one draw apart; fixed seeds, so this passes always or never."""
    bound = 5 / math.sqrt(LONG)
    for (one, left), (other, right) in combinations(long_streams.items(), 2):
        for shift in (-1, 0, 1):
            r = np.corrcoef(left, np.roll(right, shift))[0, 1]
            assert abs(r) <= bound, f"{one} and {other}, {shift} apart: r = {r:.4f} > {bound:.4f}"


def test_a_stream_is_uniform_and_does_not_correlate_with_its_own_past(long_streams: dict[str, Array]) -> None:
    from scipy import stats

    for name, drawn in long_streams.items():
        assert drawn.min() >= 0, name
        assert drawn.max() < 1, name
        assert len(np.unique(drawn)) == LONG, "no block is repeated"
        assert stats.kstest(drawn, "uniform").pvalue > 1e-4, name
        for lag in (1, 2, BLOCK):
            r = np.corrcoef(drawn, np.roll(drawn, lag))[0, 1]
            assert abs(r) <= 5 / math.sqrt(LONG), f"{name}, lag {lag}"


def test_the_first_draws_of_many_workers_and_seeds_are_uniform_too() -> None:
    """Neighbouring keys must not give neighbouring streams."""
    from scipy import stats

    draws = Draws(0, "compute", Uniform(), [1.0] * 1000)
    by_worker = [draws.next(worker) for worker in range(1000)]
    by_seed = [stream(1, seed=seed, num_workers=1)[0] for seed in range(500)]
    for first in (by_worker, by_seed):
        assert stats.kstest(first, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) <= 5 / math.sqrt(len(first))


def test_what_was_drawn_is_the_sum_of_all_draws() -> None:
    draws = Draws(1, "compute", Exponential(2.0), [1.0, 3.0])
    taken = [draws.next(1) for _ in range(3 * BLOCK + 5)]
    assert draws.drawn(1) == pytest.approx(sum(taken))
    assert draws.drawn(0) == 0
