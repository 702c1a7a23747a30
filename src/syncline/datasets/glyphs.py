"""Drawn characters in the form of CIFAR: data sets that need no download.

Legend: N images, B of a block, of side S pixels; K classes, F fonts, templates of side E. Elementwise numpy throughout:
the number of threads changes no pixel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.files import font_files
from syncline.datasets.images import ImageDataset, channel_statistics
from syncline.datasets.labelled import Labelled
from syncline.datasets.streams import Purpose, stream

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

ROTATION = 0.25  # radians either way
SHEAR = 0.2  # either way
SCALE = (0.75, 1.1)  # of a type size of S, width and height apart
SHIFT = 0.1  # of S, either way
CLUTTER = (0.55, 0.85)  # distance of a second character from the centre, of S; it is clipped at the border
BRIGHTEST = 0.4  # background, of 1: most characters are brighter than it, so that learning starts soon
TINT = (0.2, 1.0)  # a character's difference from its background in each channel, relative to the largest
CELLS = 5  # random values along a side, from which the background is interpolated


@dataclass(frozen=True)
class Kind:
    """One of the two data sets, and how hard its characters are to see; intensities in units of the full range."""

    characters: str  # a class each
    contrast: tuple[float, float]  # range of the largest channel difference between character and background
    texture: float  # largest deviation of the background from its colour
    noise: float  # standard deviation of the noise of each value


# Beside each: LeNet's test accuracy (10,000 training images, SGD with momentum 0.9, rate 0.05 divided by ten after
# 12 and 18 of 24 epochs, batch 128; mean of three seeds). No two of the hundred characters differ in size only (o O).
KINDS = {
    10: Kind("BEFGPRSZ58", contrast=(0.1, 0.45), texture=0.4, noise=0.15),  # 86 %
    100: Kind(
        "ABCDEFGHJKLMNPQRSTUVWXYZabdefghmnqrt23456789ΓΔΛΞΠΣΦΨΩαβγδεζθλμξπσωБДЖИЛЦЧШЭЮЯ&@#$%?!*+=§€£¥¶<∂÷{±~Æ¬",
        contrast=(0.3, 0.7),
        texture=0.2,
        noise=0.2,  # 75 %
    ),
}
DEFAULT_TRAIN, DEFAULT_TEST = 10_000, 2_000
BLOCK = 100  # images drawn from one stream: a multiple of each number of classes; few enough for a processor's cache


def glyphs(
    num_classes: int,
    train_size: int | None = None,
    test_size: int | None = None,
    seed: int = 0,
    image_size: int = 32,
    label_noise: float = 0.0,
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
        label_noise: see `drawn`; of the training labels.

    Source: ours; substitutes for CIFAR-10 and CIFAR-100 where those are not available. Other versions of numpy, Pillow
    and matplotlib (whose fonts these are) may draw other pixels.
    """
    kind, shape = KINDS[num_classes], (3, image_size, image_size)
    block = partial(draw, templates(kind.characters, image_size), kind, image_size)
    num_train, num_test = train_size or DEFAULT_TRAIN, test_size or DEFAULT_TEST
    train = drawn(block, Purpose.TRAIN_GLYPHS, num_classes, num_train, shape, seed, label_noise)
    test = drawn(block, Purpose.TEST_GLYPHS, num_classes, num_test, shape, seed)
    return ImageDataset(f"glyphs{num_classes}", train, test, num_classes, *channel_statistics(train.samples))


def drawn(
    draw_block: Callable[[np.random.Generator, Ints], npt.NDArray[np.uint8]],
    purpose: Purpose,
    num_classes: int,
    size: int,
    shape: tuple[int, ...],
    seed: int,
    label_noise: float = 0.0,
) -> Labelled[Tensor]:
    """Images uint8 [N, *shape] and labels int64 [N], in blocks of BLOCK, each from its own stream.

    Images do not depend on `label_noise`; labels that are wrong with a small one are wrong with a larger one, too.

    Args:
        draw_block: (generator, classes int64 [BLOCK]) -> images [BLOCK, *shape].
        purpose: of the streams.
        num_classes: a divisor of BLOCK; from the first image on, every num_classes images hold each class once.
        size: N >= 1.
        shape: of an image.
        seed: >= 0.
        label_noise: probability, in [0, 1), that a label is that of another class, each of them equally likely.
    """
    images = np.empty((size, *shape), np.uint8)
    labels = np.empty(size, np.int64)
    for start in range(0, size, BLOCK):
        generator = stream(purpose, num_classes, start // BLOCK, seed)
        rounds = np.tile(np.arange(num_classes), (BLOCK // num_classes, 1))
        classes = generator.permuted(rounds, axis=1).reshape(-1)
        block = draw_block(generator, classes)
        is_wrong = generator.random(BLOCK) < label_noise
        classes = (classes + is_wrong * generator.integers(1, num_classes, BLOCK)) % num_classes
        stop = min(start + BLOCK, size)
        images[start:stop], labels[start:stop] = block[: stop - start], classes[: stop - start]
    return Labelled(torch.from_numpy(images), torch.from_numpy(labels))


# Drawing.


@cache
def templates(characters: str, side: int) -> Floats:
    """Opacity 0..1 [K, F, E, E] of every character in every font, centred in its square; the border is empty.

    The array is cached and read-only.
    """
    from PIL import Image, ImageDraw, ImageFont  # here: few runs draw

    fonts = [ImageFont.truetype(file, side) for file in font_files()]
    edge = side * 7 // 4
    opacity = np.zeros((len(characters), len(fonts), edge, edge), np.float32)
    for i, character in enumerate(characters):
        for j, font in enumerate(fonts):
            left, top, right, bottom = font.getbbox(character)
            place = ((edge - right - left) // 2, (edge - bottom - top) // 2)
            picture = Image.new("L", (edge, edge))
            ImageDraw.Draw(picture).text(place, character, fill=255, font=font)
            opacity[i, j, 1:-1, 1:-1] = np.asarray(picture, np.float32)[1:-1, 1:-1] / 255
    opacity.flags.writeable = False
    return opacity


def draw(shapes: Floats, kind: Kind, side: int, generator: np.random.Generator, classes: Ints) -> npt.NDArray[np.uint8]:
    """Images uint8 [B, 3, S, S] of these classes.

    Args:
        shapes: from `templates`, [K, F, E, E].
        kind: tells how hard they are to see.
        side: S, the side that the templates were made for.
        generator: the only source of randomness.
        classes: int64 [B], 0 .. K - 1.
    """
    num_images = len(classes)
    canvas = _ground(generator, num_images, side, kind.texture)
    angle = generator.uniform(0, 2 * np.pi, num_images)
    away = generator.uniform(*CLUTTER, num_images) * side
    strays = generator.integers(len(shapes), size=num_images)
    stray_centres = np.stack([np.cos(angle) * away, np.sin(angle) * away])
    _paint(generator, canvas, _opacity(generator, shapes, strays, stray_centres, side), kind.contrast)
    centres = generator.uniform(-SHIFT, SHIFT, (2, num_images)) * side
    _paint(generator, canvas, _opacity(generator, shapes, classes, centres, side), kind.contrast)
    canvas += generator.standard_normal(canvas.shape, np.float32) * np.float32(kind.noise)
    return np.rint(np.clip(canvas, 0, 1) * 255).astype(np.uint8)


def _ground(generator: np.random.Generator, num_images: int, side: int, texture: float) -> Floats:
    """[B, 3, S, S]: a colour, plus values interpolated between random ones on a coarse grid, of random strength."""
    colour = generator.random((num_images, 3, 1, 1), np.float32) * np.float32(BRIGHTEST)
    coarse = generator.random((num_images, 3, CELLS, CELLS), np.float32) * 2 - 1
    coarse *= generator.random((num_images, 1, 1, 1), np.float32) * np.float32(texture)
    place = np.linspace(0, CELLS - 1, side, endpoint=False, dtype=np.float32)
    low = place.astype(np.int64)
    part = place - low
    columns = coarse.take(low, axis=3) + np.diff(coarse).take(low, axis=3) * part  # [B, 3, CELLS, S]
    ground: Floats = np.diff(columns, axis=2).take(low, axis=2)
    ground *= part[:, None]
    ground += columns.take(low, axis=2)
    ground += colour
    return ground


def _paint(generator: np.random.Generator, canvas: Floats, opacity: Floats, contrast: tuple[float, float]) -> None:
    """Adds a random colour step to canvas [B, 3, S, S] by opacity [B, 1, S, S]; a step out of 0..1 is reversed."""
    step = generator.uniform(*TINT, (len(canvas), 3, 1, 1)).astype(np.float32)
    size = generator.uniform(*contrast, (len(canvas), 1, 1, 1)).astype(np.float32)
    step *= size / np.abs(step).max(axis=1, keepdims=True)
    reached = canvas.mean(axis=(2, 3), keepdims=True) + step
    step *= np.where((reached < 0) | (reached > 1), np.float32(-1), np.float32(1))
    canvas += opacity * step


def _opacity(
    generator: np.random.Generator, shapes: Floats, classes: Ints, centres: npt.NDArray[np.float64], side: int
) -> Floats:
    """[B, 1, S, S], 0..1: each class in a random font and affine map, `centres` [2, B] pixels off the centre."""
    num_images, num_fonts = len(classes), shapes.shape[1]
    fonts = generator.integers(num_fonts, size=num_images)
    turn = generator.uniform(-ROTATION, ROTATION, num_images)
    shear = generator.uniform(-SHEAR, SHEAR, num_images)
    wide, high = generator.uniform(*SCALE, (2, num_images))
    cos, sin = np.cos(turn), np.sin(turn)
    # From a pixel of the image back to the template: rotate, shear, scale.
    from_x, from_y, to_x, to_y = (
        value.astype(np.float32)[:, None, None]
        for value in ((cos - shear * sin) / wide, (sin + shear * cos) / wide, -sin / high, cos / high)
    )
    pixels = np.arange(side) - (side - 1) / 2
    x = (pixels - centres[0][:, None]).astype(np.float32)[:, None, :]  # [B, 1, S]
    y = (pixels - centres[1][:, None]).astype(np.float32)[:, :, None]  # [B, S, 1]
    return sampled(shapes, classes * num_fonts + fonts, from_x * x + from_y * y, to_x * x + to_y * y)[:, None]


def sampled(templates: Floats, which: Ints, x: Floats, y: Floats) -> Floats:
    """Bilinear samples [B, H, W] of templates [..., E, E].

    Args:
        which: int64 [B], number of each image's template, the leading axes counted as one.
        x, y: float32 [B, H, W], columns and rows off a template's centre; clipped to its border.
    """
    edge, flat = templates.shape[-1], templates.reshape(-1)
    middle, last = np.float32((edge - 1) / 2), np.float32(edge - 1.001)
    column, row = np.clip(x + middle, 0, last), np.clip(y + middle, 0, last)
    left, top = column.astype(np.int64), row.astype(np.int64)
    column -= left
    row -= top
    corner = which[:, None, None] * edge**2 + top * edge + left
    upper, lower = flat.take(corner), flat.take(corner + edge)
    upper += (flat.take(corner + 1) - upper) * column
    lower += (flat.take(corner + edge + 1) - lower) * column
    samples: Floats = upper + (lower - upper) * row
    return samples
