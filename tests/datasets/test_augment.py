"""pad_crop_flip against a plain loop, and its distribution."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets.images import pad_crop_flip


def slow(images: torch.Tensor, generator: np.random.Generator, padding: int) -> torch.Tensor:
    """The same, image by image."""
    batch, channels, height, width = images.shape
    tops, lefts = generator.integers(0, 2 * padding + 1, size=(2, batch))
    mirrored = generator.random(batch) < 0.5
    out = torch.empty_like(images)
    for i in range(batch):
        frame = torch.zeros(channels, height + 2 * padding, width + 2 * padding, dtype=images.dtype)
        frame[:, padding : padding + height, padding : padding + width] = images[i]
        cut = frame[:, tops[i] : tops[i] + height, lefts[i] : lefts[i] + width]
        out[i] = cut.flip(-1) if mirrored[i] else cut
    return out


@given(
    st.integers(1, 9), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(0, 5), st.integers(0, 2**32)
)
def test_equals_the_plain_loop(batch: int, channels: int, height: int, width: int, padding: int, seed: int) -> None:
    images = torch.from_numpy(np.random.default_rng(seed).integers(1, 256, (batch, channels, height, width), np.uint8))
    fast = pad_crop_flip(images, np.random.default_rng(seed), padding)
    assert fast.dtype == torch.uint8
    assert torch.equal(fast, slow(images, np.random.default_rng(seed), padding))


def test_all_offsets_and_both_mirrorings_are_equally_frequent() -> None:
    image = torch.arange(1, 50, dtype=torch.uint8).reshape(1, 1, 7, 7)
    out = pad_crop_flip(image.expand(20_000, 1, 7, 7), np.random.default_rng(0), padding=2)
    kinds, counts = out.flatten(1).unique(dim=0, return_counts=True)
    assert len(kinds) == 2 * 5 * 5
    assert counts.float().std() / counts.float().mean() < 0.1
    assert counts.sum() == 20_000


def test_the_input_stays_as_it_was() -> None:
    images = torch.full((3, 1, 4, 4), 7, dtype=torch.uint8)
    pad_crop_flip(images, np.random.default_rng(0))
    assert images.unique().tolist() == [7]


def test_without_padding_only_mirrors() -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (64, 3, 5, 5), np.uint8))
    out = pad_crop_flip(images, np.random.default_rng(1), padding=0)
    mirrored = torch.tensor([not torch.equal(a, b) for a, b in zip(out, images, strict=True)])
    assert 0 < mirrored.sum() < 64
    assert torch.equal(torch.where(mirrored.view(-1, 1, 1, 1), out.flip(-1), out), images)


@pytest.mark.parametrize("seed", [0, 1])
def test_random_numbers_come_from_the_generator_alone(seed: int) -> None:
    images = torch.from_numpy(np.random.default_rng(5).integers(0, 256, (8, 1, 6, 6), np.uint8))
    first = pad_crop_flip(images, np.random.default_rng(seed))
    torch.manual_seed(123)
    assert torch.equal(first, pad_crop_flip(images, np.random.default_rng(seed)))
    assert not torch.equal(first, pad_crop_flip(images, np.random.default_rng(seed + 2)))
