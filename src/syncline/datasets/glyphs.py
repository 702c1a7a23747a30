"""Drawn characters in the form of CIFAR: data sets that need no download. Legend: N images of side S pixels."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.glyph_drawing import Ints, Look, draw, templates
from syncline.datasets.images import ImageDataset, channel_statistics
from syncline.datasets.streams import Purpose, stream


@dataclass(frozen=True)
class Kind:
    """One of the two data sets."""

    characters: str  # a class each
    look: Look


# Beside each look: LeNet's test accuracy (10,000 training images, SGD with momentum 0.9, rate 0.05 divided by ten after
# 12 and 18 of 24 epochs, batch 128; mean of three seeds). No two of the hundred characters differ in size only (o O).
KINDS = {
    10: Kind("BEFGPRSZ58", Look(contrast=(0.1, 0.45), texture=0.4, noise=0.15)),  # 86 %
    100: Kind(
        "ABCDEFGHJKLMNPQRSTUVWXYZabdefghmnqrt23456789ΓΔΛΞΠΣΦΨΩαβγδεζθλμξπσωБДЖИЛЦЧШЭЮЯ&@#$%?!*+=§€£¥¶<∂÷{±~Æ¬",
        Look(contrast=(0.3, 0.7), texture=0.2, noise=0.2),  # 75 %
    ),
}
DEFAULT_TRAIN, DEFAULT_TEST = 10_000, 2_000
BLOCK = 100  # images drawn from one stream: a multiple of each number of classes; few enough for a processor's cache


def glyphs(
    num_classes: int, train_size: int | None = None, test_size: int | None = None, seed: int = 0, image_size: int = 32
) -> ImageDataset:
    """One coloured character an image, uint8 [N, 3, S, S], rotated, sheared, scaled and shifted, on a cluttered
    background.

    A data set of size n is a prefix of any larger one. Classes are balanced: from the first image on, every
    num_classes images hold each class once. Training and test images come from independent streams.

    Args:
        num_classes: 10 or 100.
        train_size: >= 1; None for 10,000.
        test_size: >= 1; None for 2,000.
        seed: >= 0, of the drawing.
        image_size: S >= 8.

    Raises:
        ValueError: an argument out of range.

    Source: ours; substitutes for CIFAR-10 and CIFAR-100 where those are not available. Other versions of numpy, Pillow
    and matplotlib (whose fonts these are) may draw other pixels.
    """
    if num_classes not in KINDS:
        raise ValueError(f"glyphs: num_classes must be 10 or 100, got {num_classes}")
    train_size = DEFAULT_TRAIN if train_size is None else train_size
    test_size = DEFAULT_TEST if test_size is None else test_size
    if train_size < 1 or test_size < 1 or seed < 0 or image_size < 8:
        given = f"train_size={train_size}, test_size={test_size}, seed={seed}, image_size={image_size}"
        raise ValueError(f"glyphs: sizes must be >= 1, seed >= 0, image_size >= 8; got {given}")
    train = _part(Purpose.TRAIN_GLYPHS, KINDS[num_classes], train_size, seed, image_size)
    test = _part(Purpose.TEST_GLYPHS, KINDS[num_classes], test_size, seed, image_size)
    return ImageDataset(f"glyphs{num_classes}", *train, *test, num_classes, *channel_statistics(train[0]))


def _part(purpose: Purpose, kind: Kind, size: int, seed: int, side: int) -> tuple[Tensor, Tensor]:
    shapes = templates(kind.characters, side)
    return drawn(
        lambda generator, classes: draw(generator, shapes, classes, kind.look, side),
        *(purpose, len(kind.characters), size, (3, side, side), seed),
    )


def drawn(
    draw_block: Callable[[np.random.Generator, Ints], npt.NDArray[np.uint8]],
    purpose: Purpose,
    num_classes: int,
    size: int,
    shape: tuple[int, ...],
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Images uint8 [N, *shape] and labels int64 [N], in blocks of BLOCK, each from its own stream.

    Args:
        draw_block: (generator, classes int64 [BLOCK]) -> images [BLOCK, *shape].
        purpose: of the streams.
        num_classes: a divisor of BLOCK; from the first image on, every num_classes images hold each class once.
        size: N >= 1.
        shape: of an image.
        seed: >= 0.
    """
    images = np.empty((size, *shape), np.uint8)
    labels = np.empty(size, np.int64)
    for start in range(0, size, BLOCK):
        generator = stream(purpose, num_classes, start // BLOCK, seed)
        rounds = np.tile(np.arange(num_classes), (BLOCK // num_classes, 1))
        classes = generator.permuted(rounds, axis=1).reshape(-1)
        block = draw_block(generator, classes)
        stop = min(start + BLOCK, size)
        images[start:stop], labels[start:stop] = block[: stop - start], classes[: stop - start]
    return torch.from_numpy(images), torch.from_numpy(labels)
