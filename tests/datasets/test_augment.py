"""pad_crop_flip against a plain loop, whose offsets and mirrorings are plainly uniform."""

import numpy as np
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
