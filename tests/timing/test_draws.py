"""The keyed streams: a worker's i-th draw depends on (seed, purpose, worker, i) and on nothing else."""

import zlib

import numpy as np
import pytest

from syncline.timing.distributions import Constant, Distribution, Exponential, Normal, Pareto, Uniform
from syncline.timing.draws import BLOCK, Draws

RAW = Uniform(0.0, 1.0)  # its draws are the stream itself


@pytest.mark.parametrize("purpose", ["compute", "push delay 1"])
@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_the_raw_stream_is_philox_under_a_key_of_seed_purpose_and_worker(seed: int, purpose: str) -> None:
    """Recorded results depend on these bits: the key is the seed, 32 bits of crc32(purpose), 32 bits of the worker.

    The order in which the workers draw does not matter.
    """
    draws = Draws(seed, purpose, RAW, [1.0] * 3)
    drawn = np.array([[draws.next(worker) for worker in (2, 0, 1)] for _ in range(3 * BLOCK + 5)])
    for place, worker in enumerate((2, 0, 1)):
        key = seed << 64 | zlib.crc32(purpose.encode()) << 32 | worker
        expected = np.random.Generator(np.random.Philox(key=key)).random(len(drawn))
        assert drawn[:, place].tolist() == expected.tolist()


@pytest.mark.parametrize("source", [Exponential(0.02), Normal(1.0, 0.05), Pareto(1.0, 2.0), Constant(3.0)], ids=str)
def test_draws_are_quantiles_of_the_raw_stream_across_the_edges_of_blocks(source: Distribution) -> None:
    raw, drawn = Draws(5, "compute", RAW, [1.0] * 3), Draws(5, "compute", source, [1.0] * 3)
    of_raw, of_source = ([draws.next(2) for _ in range(3 * BLOCK + 5)] for draws in (raw, drawn))
    np.testing.assert_array_equal(of_source, source.quantile(np.array(of_raw)))


def test_each_worker_has_its_own_factor() -> None:
    draws = Draws(0, "compute", Constant(2.0), [1.0, 3.0, 0.5])
    assert [draws.next(worker) for worker in (2, 0, 1, 2)] == [1.0, 2.0, 6.0, 1.0]


def test_what_was_drawn_is_the_sum_of_all_draws() -> None:
    draws = Draws(1, "compute", Exponential(2.0), [1.0, 3.0])
    taken = [draws.next(1) for _ in range(3 * BLOCK + 5)]
    assert draws.drawn(1) == pytest.approx(sum(taken))
    assert draws.drawn(0) == 0
