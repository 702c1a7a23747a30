"""Compression of pushes: exact forms, bounds, and that nothing is lost."""

import math
from contextlib import suppress

import numpy as np
import pytest
import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.learning.compression import (
    CHUNK,
    SAMPLE,
    Compression,
    Fragment,
    Int8,
    Mean,
    PullCompressor,
    PushCompressor,
    RandK,
    Sign,
    TopK,
)
from syncline.learning.gossip import mean_of
from syncline.learning.layout import UNREACHED

SCHEMES: list[Compression] = [TopK(0.1), TopK(1.0), RandK(0.1), RandK(1.0), Int8(), Sign(), Fragment(3)]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=repr)


def block_of(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def through(scheme: Compression, block: torch.Tensor, seed: int = 5) -> torch.Tensor:
    data = scheme.encode(block, seed)
    assert (data.dtype, data.numel()) == (torch.uint8, scheme.size(block.numel()))
    out = torch.full_like(block, math.nan)
    scheme.decode(data, out)
    return out


@every_scheme
def test_every_size_of_a_block_has_its_bytes_and_zeros_stay_zeros(scheme: Compression) -> None:
    for n in (0, 1, 7, 8, 9, 1000, CHUNK, CHUNK + 1, 5000):
        assert torch.isfinite(through(scheme, block_of(n))).all(), n
        assert torch.equal(through(scheme, torch.zeros(n)), torch.zeros(n)), n


@pytest.mark.parametrize("scheme", [TopK(1.0), RandK(1.0), RandK(1.0, unbiased=True)], ids=repr)
def test_a_density_of_one_is_exact(scheme: Compression) -> None:
    block = block_of(1234)
    assert torch.equal(through(scheme, block), block)


def test_a_density_of_whole_elements_has_as_many() -> None:
    """0.07 * 100 is above 7."""
    for percent in range(1, 101):
        assert TopK(percent / 100).size(100) == 8 * percent, percent


def test_topk_sends_the_largest_and_nothing_else() -> None:
    block = block_of(1000)
    found = through(TopK(0.05), block)
    kept = found != 0
    assert kept.sum() == 50
    assert torch.equal(found[kept], block[kept])
    assert block[kept].abs().min() >= block[~kept].abs().max()
    assert TopK(0.05).size(1000) == 400


@pytest.mark.parametrize("density", [0.0001, 0.01, 0.9])
@pytest.mark.parametrize("nonzero", [0.001, 0.5, 1.0])
@pytest.mark.parametrize("digits", [0, 7], ids=["many equal", "few equal"])
def test_topk_of_a_large_block_is_the_beginning_of_a_stable_sort(density: float, nonzero: float, digits: int) -> None:
    block = torch.round(block_of(3 * SAMPLE + 5), decimals=digits)
    block[torch.rand(block.numel(), generator=torch.Generator().manual_seed(1)) >= nonzero] = 0
    data = TopK(density).encode(block, 0)
    places = data[: data.numel() // 2].view(torch.int32).numpy()
    assert places.tolist() == sorted(np.argsort(-block.abs().numpy(), kind="stable")[: len(places)].tolist())


def test_of_equal_elements_topk_sends_the_first_and_of_no_numbers_as_many() -> None:
    block = torch.tensor([1.0, -2.0, 2.0, 0.0, 2.0, -2.0, 3.0, 1.0])
    assert torch.equal(through(TopK(0.5), block), torch.tensor([0.0, -2.0, 2.0, 0.0, 2.0, 0.0, 3.0, 0.0]))
    assert torch.equal(through(TopK(0.5), torch.zeros(8)), torch.zeros(8))
    for broken in (torch.full((8,), math.nan), torch.where(block > 1, math.nan, block), torch.full((8,), math.inf)):
        assert TopK(0.5).encode(broken, 0).numel() == TopK(0.5).size(8)


def test_randk_takes_other_places_with_another_seed_and_is_right_on_average() -> None:
    block, scheme = block_of(50), RandK(0.2, unbiased=True)
    found = torch.stack([through(scheme, block, seed) for seed in range(800)])
    assert torch.equal((found != 0).sum(dim=1), torch.full((800,), 10))
    deviation = (found.mean(0) - block).abs() / (found.std(0) / math.sqrt(800))
    assert deviation.max() < 4.5, "by chance once in 3,000 times"


def test_int8_is_off_by_half_a_step_of_its_chunk_at_most() -> None:
    block = block_of(3 * CHUNK + 5) * torch.logspace(-3, 3, 3 * CHUNK + 5)
    error = (through(Int8(), block) - block).abs()
    for begin in range(0, block.numel(), CHUNK):
        part = slice(begin, begin + CHUNK)
        assert error[part].max() <= 0.5001 * block[part].abs().max() / 127


def test_sign_is_the_sign_times_the_mean_absolute_value() -> None:
    block = block_of(77)
    torch.testing.assert_close(through(Sign(), block), torch.where(block >= 0, 1.0, -1.0) * block.abs().mean())


@every_scheme
def test_with_feedback_nothing_is_lost(scheme: Compression) -> None:
    """What was sent and what is left to be sent add up to what was to be pushed, after each push."""
    compressor = PushCompressor(scheme, [slice(0, 300), slice(300, 301), slice(301, 700)], True, worker=2, seed=1)
    wanted, sent = torch.zeros(700, dtype=torch.float64), torch.zeros(700, dtype=torch.float64)
    for number in range(30):
        flat = block_of(700, number)
        wanted += flat
        parts = compressor(flat, number)
        assert [part.numel() for part in parts] == [scheme.size(n) for n in (300, 1, 399)]
        sent += flat
        assert compressor.residual is not None
        torch.testing.assert_close(sent + compressor.residual, wanted, rtol=0, atol=1e-4)


def test_without_feedback_a_push_depends_on_itself_alone() -> None:
    compressor = PushCompressor(Sign(), [slice(0, 100)], False, worker=0, seed=0)
    first, second = block_of(100), block_of(100)
    assert torch.equal(compressor(first, 0)[0], compressor(second, 1)[0])
    assert compressor.state_dict() == {}


@every_scheme
def test_the_mean_of_what_members_send_has_the_bits_of_the_mean_of_whole_vectors(scheme: Compression) -> None:
    """Again and again in the same memory; places that several send count once each."""
    mean, out, wanted = Mean(scheme, 300), block_of(300), block_of(300)
    for members, seed in ((1, 0), (2, 10), (3, 20)):
        parts = [scheme.encode(block_of(300, seed + member), seed + member) for member in range(members)]
        mean.add_to(out, parts)
        whole = [torch.empty(300) for _ in parts]
        for part, vector in zip(parts, whole, strict=True):
            scheme.decode(part, vector)
        wanted.add_(mean_of(whole))
        assert torch.equal(out, wanted)


def test_of_a_mean_with_bytes_of_no_vector_nothing_is_added() -> None:
    mean, out = Mean(TopK(0.2), 10), torch.zeros(10)
    good = TopK(0.2).encode(block_of(10), 0)
    with pytest.raises(ValueError, match="do not ascend"):
        mean.add_to(out, [good, torch.zeros_like(good)])
    assert torch.equal(out, torch.zeros(10))
    mean.add_to(out, [good])
    assert torch.equal(out, through(TopK(0.2), block_of(10)))


@every_scheme
@scaled(40)
@given(st.integers(0, 60), st.data())
def test_any_bytes_are_a_block_or_refused_and_nothing_else_is_written(
    scheme: Compression, n: int, data: st.DataObject
) -> None:
    """Hostile payloads of the right length: places beyond the block, not ascending, or twice the same."""
    size = scheme.size(n)
    raw = data.draw(st.binary(min_size=size, max_size=size))
    guarded = torch.zeros(n + 2)
    payload = torch.from_numpy(np.frombuffer(raw, dtype=np.uint8).copy())
    with suppress(ValueError):
        scheme.decode(payload, guarded[1 : n + 1])
    assert guarded[0] == guarded[n + 1] == 0


def test_places_that_do_not_ascend_within_the_block_are_refused() -> None:
    for places in ([3, 3], [4, 1], [-1, 2], [0, 10], [2**31 - 1, 5]):
        words = torch.tensor(places, dtype=torch.int32).view(torch.uint8)
        with pytest.raises(ValueError, match="do not ascend"):
            TopK(0.2).decode(torch.cat([words, torch.ones(2).view(torch.uint8)]), torch.zeros(10))
    with pytest.raises(ValueError, match="below 0"):
        RandK(0.2).decode(
            torch.cat([torch.tensor([-1]).view(torch.uint8), torch.ones(2).view(torch.uint8)]), torch.zeros(10)
        )


def test_a_fragment_is_the_turn_of_the_push_and_nothing_else_is_said() -> None:
    """Of two blocks, each push sends a fragment; after P pushes all of both has come once."""
    compressor = PushCompressor(Fragment(3), [slice(0, 10), slice(10, 14)], False, worker=0, seed=0)
    seen = torch.zeros(14)
    for number in range(3, 6):
        flat = block_of(14)
        compressor(flat, number)
        sent = flat != 0
        assert torch.equal(flat[sent], block_of(14)[sent])
        assert torch.equal(flat[~sent].signbit(), torch.full_like(flat[~sent], UNREACHED).signbit())
        seen += sent
    assert torch.equal(seen, torch.ones(14))
    with pytest.raises(ValueError, match="a fragment of number 3"):
        Fragment(3).decode(torch.cat([torch.tensor([3]).view(torch.uint8), torch.zeros(16, dtype=torch.uint8)]), seen)


def test_what_a_worker_has_of_a_fragment_is_what_it_was_sent_last() -> None:
    compressor = PullCompressor(Fragment(2), worker=0, shard=0, seed=0)
    assert compressor(torch.zeros(4), -1) is None
    for push, expected in [(6, [1, 1, 0, 0]), (7, [1, 1, 2, 2]), (8, [3, 3, 2, 2])]:
        compressor(torch.full([4], float(push - 5)), push)
        assert compressor.known is not None
        assert compressor.known.tolist() == expected
