"""Glyphs: balanced and distinct."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from syncline.datasets.files import font_files
from syncline.datasets.glyphs import BLOCK, KINDS, drawn, glyphs, templates
from syncline.datasets.streams import Purpose

KIND = pytest.mark.parametrize("num_classes", [10, 100])


@pytest.mark.parametrize(("num_classes", "size"), [(10, 32), (100, 32), (10, 8), (10, 9), (10, 16), (10, 33)])
def test_images_have_the_shape_of_cifar_or_another_size(num_classes: int, size: int) -> None:
    dataset = glyphs(num_classes, 150, 50, image_size=size)
    assert (dataset.name, dataset.num_classes) == (f"glyphs{num_classes}", num_classes)
    assert (dataset.train.samples.shape, dataset.train.samples.dtype) == ((150, 3, size, size), torch.uint8)
    assert (dataset.test.samples.shape, dataset.test.targets.dtype) == ((50, 3, size, size), torch.int64)
    assert dataset.train.samples.float().flatten(1).std(dim=1).min() > 2


def numbered(size: int, label_noise: float, num_classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of one value, which is random."""
    return drawn(
        lambda generator, classes: generator.integers(256, size=(BLOCK, 1), dtype=np.uint8),
        *(Purpose.TRAIN_GLYPHS, num_classes, size, (1,), 3, label_noise),
    )


@KIND
def test_noise_changes_the_share_of_labels_and_no_image(num_classes: int) -> None:
    size = 40_000
    clean, few, many = (numbered(size, share, num_classes) for share in (0.0, 0.1, 0.4))
    wrong = []
    for (images, labels), share in ((few, 0.1), (many, 0.4)):
        assert torch.equal(images, clean[0])
        wrong.append(labels != clean[1])
        assert abs(wrong[-1].float().mean().item() - share) < 4 * (share * (1 - share) / size) ** 0.5
    assert not (wrong[0] & ~wrong[1]).any()  # those of a small share are among those of a larger one
    steps = (many[1] - clean[1])[wrong[1]] % num_classes
    counts = steps.bincount(minlength=num_classes)[1:]  # any other class is equally likely
    assert (counts - counts.float().mean()).abs().max() < 5 * counts.float().mean() ** 0.5
    assert torch.equal(numbered(150, 0.4, num_classes)[1], many[1][:150])


def test_a_share_of_the_training_labels_is_wrong_and_nothing_else() -> None:
    clean, noisy = (glyphs(10, 300, 100, image_size=8, label_noise=share) for share in (0.0, 0.4))
    assert torch.equal(noisy.train.samples, clean.train.samples)
    assert torch.equal(noisy.test.targets, clean.test.targets)
    assert 0.25 < (noisy.train.targets != clean.train.targets).float().mean() < 0.55


def test_no_image_occurs_twice_in_any_seed_or_split() -> None:
    sets = [glyphs(10, 150, 150, seed=seed) for seed in (0, 1, 2**32)]
    images = torch.cat([part for each in sets for part in (each.train.samples, each.test.samples)])
    assert len(images.flatten(1).unique(dim=0)) == 6 * 150
    orders = {tuple(part.tolist()) for each in sets for part in (each.train.targets, each.test.targets)}
    assert len(orders) == 6


@KIND
def test_every_row_of_classes_is_complete_and_shuffled(num_classes: int) -> None:
    labels = numbered(400, 0.0, num_classes)[1].reshape(-1, num_classes)
    assert torch.equal(labels.sort(dim=1).values, torch.arange(num_classes).expand(len(labels), num_classes))
    assert len(labels.unique(dim=0)) == len(labels)


@KIND
def test_every_font_holds_every_character(num_classes: int) -> None:
    from matplotlib.ft2font import FT2Font

    characters = KINDS[num_classes].characters
    assert len(set(characters)) == len(characters) == num_classes
    for font in font_files():
        held = FT2Font(str(font)).get_charmap()
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


def test_templates_lie_completely_inside_their_squares() -> None:
    shapes = templates(KINDS[100].characters, 32)
    assert shapes.max(axis=(2, 3)).min() > 0.4
    assert max(shapes[..., :2].max(), shapes[..., -2:].max(), shapes[..., :2, :].max(), shapes[..., -2:, :].max()) == 0
