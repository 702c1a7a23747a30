"""Images: what is refused, statistics, augmentation against a plain loop, and batches by the plain formula.

Batches follow it in every bit, and their only randomness is the generator's.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets.batch_source import BatchSource
from syncline.datasets.images import ImageDataset, channel_statistics, pad_crop_flip
from syncline.datasets.labelled import Labelled

CPU = torch.device("cpu")


def part(*labels: int, images: int | None = None) -> Labelled[torch.Tensor]:
    num = len(labels) if images is None else images
    return Labelled(torch.zeros(num, 2, 3, 3, dtype=torch.uint8), torch.tensor(labels, dtype=torch.int64))


RIGHT: dict[str, Any] = {"train": part(0, 1, 2, 0, 1), "test": part(2, 0), "std": (1.0, 2.0)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train": part(0, 0, 0, 0, images=5)}, r"train part: labels must be \[5\], got \[4\]"),
        ({"train": part(0, 1, 3, 0, 0)}, r"train part: labels must lie in 0\.\.2, got 0\.\.3"),
        ({"test": part(0, -1)}, r"test part: labels must lie in 0\.\.2, got -1\.\.0"),
        ({"test": part()}, "test part: no images"),
        ({"std": (1.0, 0.0)}, "std must be > 0"),
    ],
)
def test_a_faulty_field_is_named_in_one_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ImageDataset(name="toy", num_classes=3, mean=(1.0, 2.0), **RIGHT | changed)
    assert "toy" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_statistics_are_those_of_numpy() -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (40, 3, 5, 7), np.uint8))
    mean, std = channel_statistics(images)
    assert mean == pytest.approx(images.numpy().mean(axis=(0, 2, 3)))
    assert std == pytest.approx(images.numpy().std(axis=(0, 2, 3)))


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


def noise(num_train: int = 12, num_test: int = 3, augment: bool = False) -> ImageDataset:
    generator = torch.Generator().manual_seed(0)

    def labelled(size: int) -> Labelled[torch.Tensor]:
        images = torch.randint(0, 256, (size, 3, 8, 8), generator=generator, dtype=torch.uint8)
        return Labelled(images, torch.arange(size) % 3)

    return ImageDataset(
        name="noise",
        train=labelled(num_train),
        test=labelled(num_test),
        num_classes=3,
        mean=(120.0, 130.0, 125.3),
        std=(60.0, 70.0, 62.9),
        augment=augment,
    )


def source(dataset: ImageDataset, task: str = "classification") -> BatchSource:
    return dataset.batch_source(CPU, task)


def plain(images: torch.Tensor, dataset: ImageDataset) -> torch.Tensor:
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (dataset.mean, dataset.std))
    return (images.float() - mean) / std


@given(st.lists(st.integers(0, 11), min_size=1, max_size=20), st.booleans(), st.integers(0, 2**32))
def test_images_are_augmented_then_normalised(indices: list[int], augment: bool, seed: int) -> None:
    dataset = noise(augment=augment)
    images, labels = source(dataset).take(np.array(indices), np.random.default_rng(seed))
    chosen = dataset.train.samples[indices]
    if augment:
        chosen = pad_crop_flip(chosen, np.random.default_rng(seed))
    assert torch.equal(images, plain(chosen, dataset))
    assert torch.equal(labels, dataset.train.targets[indices])
    assert source(dataset).is_random is augment


def test_without_a_generator_nothing_is_augmented() -> None:
    index = np.arange(12)
    images = source(noise(augment=True)).take(index, None)[0]
    assert torch.equal(images, source(noise()).take(index, None)[0])
    assert torch.equal(images, source(noise()).take(index, np.random.default_rng(0))[0])


@pytest.mark.parametrize("augment", [False, True])
def test_the_test_set_is_complete_and_in_order(augment: bool) -> None:
    dataset = noise(num_test=1007, augment=augment)
    for _ in range(2):
        batches = list(source(dataset).test())
        assert [len(labels) for _, labels in batches] == [500, 500, 7]
        assert torch.equal(torch.cat([images for images, _ in batches]), plain(dataset.test.samples, dataset))
        assert torch.equal(torch.cat([labels for _, labels in batches]), dataset.test.targets)


def shades(copies: int) -> ImageDataset:
    """Every value of a pixel, `copies` times: as training images and as test images."""
    images = torch.arange(256, dtype=torch.uint8).repeat(copies).reshape(copies, 1, 16, 16)
    labels = torch.zeros(copies, dtype=torch.int64)
    return ImageDataset("shades", Labelled(images, labels), Labelled(images.clone(), labels), 1, (127.5,), (73.9,))


def check_frequencies(pixels: torch.Tensor, copies: int) -> None:
    """A value v is drawn as 1 about copies * v / 255 times: five standard deviations bound all 256 of them."""
    ones = pixels.reshape(copies, 256).sum(dim=0)
    expected = torch.arange(256) / 255
    assert ones[0] == 0
    assert ones[255] == copies
    deviations = (ones - copies * expected).abs() / (copies * expected * (1 - expected)).sqrt().clamp(min=1e-9)
    assert deviations[1:255].max() < 5
    assert deviations[1:255].square().mean().item() == pytest.approx(1, abs=5 * math.sqrt(2 / 254))


def test_pixels_are_drawn_with_the_probability_their_value_says() -> None:
    copies = 2_000
    binary = source(shades(copies), "generation")
    (pixels,) = binary.take(np.arange(copies), np.random.default_rng(0))
    assert pixels.dtype == torch.float32
    assert pixels.shape == (copies, 1, 16, 16)
    assert pixels.unique().tolist() == [0, 1]
    check_frequencies(pixels, copies)
    assert binary.is_random


def test_the_test_pixels_are_drawn_too_but_always_the_same() -> None:
    dataset = shades(1_700)
    batches = [pixels for (pixels,) in source(dataset, "generation").test()]
    assert [len(pixels) for pixels in batches] == [500, 500, 500, 200]
    check_frequencies(torch.cat(batches), 1_700)
    np.random.seed(5)
    torch.manual_seed(5)
    again = source(dataset, "generation")
    again.take(np.arange(3), np.random.default_rng(0))
    assert torch.equal(torch.cat(batches), torch.cat([pixels for (pixels,) in again.test()]))


def test_pixels_are_drawn_again_from_each_generator() -> None:
    binary, index = source(noise(), "generation"), np.array([3, 1, 3])
    (first,) = binary.take(index, np.random.default_rng(1))
    (same,) = binary.take(index, np.random.default_rng(1))
    (other,) = binary.take(index, np.random.default_rng(2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[2])  # the same image, drawn twice


def test_without_randomness_pixels_are_rounded() -> None:
    (pixels,) = source(shades(1), "generation").take(np.array([0]), None)
    assert torch.equal(pixels.flatten(), (torch.arange(256) >= 128).float())
