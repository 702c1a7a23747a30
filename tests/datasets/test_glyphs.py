"""Glyphs: reproducible, balanced, distinct, and neither trivial nor impossible for LeNet."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.ft2font import FT2Font
from torch.nn import functional as F

from syncline.datasets.files import FONTS
from syncline.datasets.glyphs import KINDS, glyphs, templates
from syncline.datasets.images import ImageDataset
from syncline.datasets.mnist_digits import mnist_digits
from syncline.models.lenet import LeNet

KIND = pytest.mark.parametrize("num_classes", [10, 100])


@KIND
def test_shape_of_cifar(num_classes: int) -> None:
    dataset = glyphs(num_classes, train_size=300, test_size=150)
    assert (dataset.name, dataset.num_classes) == (f"glyphs{num_classes}", num_classes)
    assert (dataset.train_images.shape, dataset.train_images.dtype) == ((300, 3, 32, 32), torch.uint8)
    assert (dataset.test_images.shape, dataset.test_labels.dtype) == ((150, 3, 32, 32), torch.int64)


@KIND
def test_the_same_arguments_draw_the_same_bits(num_classes: int) -> None:
    np.random.seed(1)
    first = glyphs(num_classes, 150, 50, seed=4)
    np.random.seed(2)
    second = glyphs(num_classes, 150, 50, seed=4)
    assert torch.equal(first.train_images, second.train_images)
    assert torch.equal(first.test_images, second.test_images)


@scaled(6)
@given(st.integers(1, 250), st.integers(1, 250), st.sampled_from([10, 100]))
def test_the_first_of_more_are_the_same(small: int, more: int, num_classes: int) -> None:
    few, many = glyphs(num_classes, small, more), glyphs(num_classes, small + more, small + more)
    assert torch.equal(few.train_images, many.train_images[:small])
    assert torch.equal(few.train_labels, many.train_labels[:small])
    assert torch.equal(few.test_images, many.test_images[:more])
    assert torch.equal(few.test_labels, many.test_labels[:more])


@pytest.mark.parametrize("draw", [partial(glyphs, 10, image_size=8), partial(glyphs, 100, image_size=8), mnist_digits])
def test_noise_changes_the_share_of_training_labels_and_nothing_else(draw: Callable[..., ImageDataset]) -> None:
    size = 4_000
    clean, few, many = (draw(train_size=size, test_size=500, label_noise=share) for share in (0.0, 0.1, 0.4))
    for noisy in (few, many):
        assert torch.equal(noisy.train_images, clean.train_images)
        assert torch.equal(noisy.test_images, clean.test_images)
        assert torch.equal(noisy.test_labels, clean.test_labels)
    wrong = [noisy.train_labels != clean.train_labels for noisy in (few, many)]
    assert not (wrong[0] & ~wrong[1]).any()  # those of a small share are among those of a larger one
    for is_wrong, share in zip(wrong, (0.1, 0.4), strict=True):
        assert abs(is_wrong.float().mean().item() - share) < 4 * (share * (1 - share) / size) ** 0.5
    steps = (many.train_labels - clean.train_labels)[wrong[1]] % clean.num_classes
    counts = steps.bincount(minlength=clean.num_classes)[1:]  # any other class is equally likely
    assert (counts - counts.float().mean()).abs().max() < 5 * counts.float().mean() ** 0.5
    assert torch.equal(draw(train_size=150, test_size=1, label_noise=0.4).train_labels, many.train_labels[:150])


@pytest.mark.parametrize("draw", [partial(glyphs, 10), mnist_digits])
@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_of_wrong_labels_that_is_none_is_refused(draw: Callable[..., ImageDataset], share: float) -> None:
    with pytest.raises(ValueError, match=f"label_noise={share}"):
        draw(train_size=10, test_size=10, label_noise=share)


def test_no_image_occurs_twice_in_any_seed_or_split() -> None:
    drawn = [glyphs(10, 150, 150, seed=seed) for seed in (0, 1, 2**32)]
    images = torch.cat([part for d in drawn for part in (d.train_images, d.test_images)])
    assert len(images.flatten(1).unique(dim=0)) == 6 * 150
    orders = {tuple(part.tolist()) for d in drawn for part in (d.train_labels, d.test_labels)}
    assert len(orders) == 6


@KIND
def test_every_row_of_classes_is_complete_and_shuffled(num_classes: int) -> None:
    labels = glyphs(num_classes, 4 * num_classes, 2 * num_classes).train_labels.reshape(4, num_classes)
    assert torch.equal(labels.sort(dim=1).values, torch.arange(num_classes).expand(4, num_classes))
    assert len(labels.unique(dim=0)) == 4


@pytest.mark.parametrize("image_size", [8, 9, 16, 33])
def test_other_image_sizes(image_size: int) -> None:
    dataset = glyphs(10, 20, 10, image_size=image_size)
    assert dataset.train_images.shape == (20, 3, image_size, image_size)
    assert dataset.train_images.float().flatten(1).std(dim=1).min() > 2


@KIND
def test_every_font_holds_every_character(num_classes: int) -> None:
    characters = KINDS[num_classes].characters
    assert len(set(characters)) == len(characters) == num_classes
    for font in FONTS:
        held = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf")).get_charmap()
        assert [c for c in characters if ord(c) not in held] == []


def test_no_two_characters_share_a_drawing() -> None:
    """Stretched to one box, any two differ in every font; Latin A and Greek Alpha, or a missing pair, would not."""
    for shapes in templates(KINDS[100].characters, 32).swapaxes(0, 1):
        boxes = []
        for shape in shapes:
            rows, columns = np.flatnonzero(shape.max(axis=1)), np.flatnonzero(shape.max(axis=0))
            cut = torch.tensor(shape[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
            boxes.append(F.interpolate(cut[None, None], (16, 16), mode="area").flatten())
        assert torch.pdist(torch.stack(boxes), p=1).min() / 256 > 0.015


@pytest.mark.parametrize(
    "group", ["oO0", "cC", "iIl1|", "kK", "pP", "sS", "uU", "vV", "wW", "xX", "yY", "zZ", "Θθ", "Φφ", "Ψψ"]
)
def test_no_two_characters_differ_in_size_only(group: str) -> None:
    assert len(set(group) & set(KINDS[100].characters)) <= 1


def test_templates_lie_completely_inside_their_squares() -> None:
    shapes = templates(KINDS[100].characters, 32)
    assert shapes.max(axis=(2, 3)).min() > 0.4
    assert max(shapes[..., :2].max(), shapes[..., -2:].max(), shapes[..., :2, :].max(), shapes[..., -2:, :].max()) == 0


@pytest.mark.parametrize(
    ("num_classes", "train_size", "seed", "image_size", "message"),
    [
        (11, 10, 0, 32, "num_classes must be 10 or 100, got 11"),
        (10, 0, 0, 32, "train_size=0"),
        (10, 10, -1, 32, "seed=-1"),
        (10, 10, 0, 7, "image_size=7"),
    ],
)
def test_arguments_out_of_range_are_refused(
    num_classes: int, train_size: int, seed: int, image_size: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        glyphs(num_classes, train_size, 10, seed, image_size)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_lenet_learns_ten_classes_but_not_perfectly() -> None:
    """Six epochs on 4,000 images gave 0.65 to 0.80 over five seeds; ten classes by chance give 0.1."""
    torch.manual_seed(0)
    dataset = glyphs(10, train_size=4_000, test_size=1_000)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (dataset.mean, dataset.std))
    images, test_images = (dataset.train_images - mean) / std, (dataset.test_images - mean) / std
    network = LeNet(in_channels=3, image_size=32, num_classes=10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(6):
        for batch in torch.randperm(4_000).split(128):
            optimizer.zero_grad()
            F.cross_entropy(network(images[batch]), dataset.train_labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (network(test_images).argmax(1) == dataset.test_labels).float().mean().item()
    assert 0.5 < accuracy < 0.9
