"""Drawn digits in the form of MNIST: a data set that needs no download. Legend: B images, F fonts, fields of side E.

Elementwise numpy throughout: the number of threads changes no pixel.
"""

from functools import cache, partial

import numpy as np
import numpy.typing as npt

from syncline.datasets.glyphs import DEFAULT_TEST, DEFAULT_TRAIN, Floats, Ints, drawn, sampled, templates
from syncline.datasets.images import ImageDataset, channel_statistics
from syncline.datasets.streams import Purpose

SIDE, BOX = 28, 20  # pixels of an image, and of the box that a digit fills
TYPE_SIZE, UNIT = 64, 24  # type size in pixels, and pixels of half a digit's height
# Variation of handwriting; lengths in units of half a digit's height. Mean and spread of grey are close to MNIST's.
SLANT = (-0.15, 0.45)  # mostly to the right
TURN = 0.15  # radians either way
WIDTH = (0.7, 1.2)
BEND = 0.15  # of each quadratic term, either way
STROKE = (-0.03, 0.05)  # added to either side of a line
SOFT = 1.5  # pixels from black to white
REACH, POINTS = 2.0, 32  # the square that is searched for the extent of a digit: half its side, points along it


def mnist_digits(
    train_size: int | None = None, test_size: int | None = None, seed: int = 0, label_noise: float = 0.0
) -> ImageDataset:
    """Digits 0 to 9, uint8 [N, 1, 28, 28], white on black, by MNIST's rules.

    A digit of one of 16 fonts is slanted, rotated, widened, bent, drawn with a thicker or thinner line, scaled to a box
    of 20 x 20 pixels without changing its proportions, and placed with its centre of mass at the centre of the image. A
    data set of size n is a prefix of any larger one; every ten images hold each digit once. Training and
    test images come from independent streams.

    Args:
        train_size: >= 1; None for 10,000.
        test_size: >= 1; None for 2,000.
        seed: >= 0, of the drawing.
        label_noise: see `glyphs.drawn`; of the training labels.

    Source: ours; a substitute for MNIST (LeCun et al. 1998, section III-A: box, centring) where that is not available.
    Other versions of numpy, Pillow and matplotlib (whose fonts these are) may draw other pixels.
    """
    fields, shape = distance_fields(), (1, SIDE, SIDE)
    num_train, num_test = train_size or DEFAULT_TRAIN, test_size or DEFAULT_TEST
    block = partial(draw, fields)
    train = drawn(block, Purpose.TRAIN_DRAWN_DIGITS, 10, num_train, shape, seed, label_noise)
    test = drawn(block, Purpose.TEST_DRAWN_DIGITS, 10, num_test, shape, seed)
    return ImageDataset("mnist_digits", train, test, 10, *channel_statistics(train.samples))


@cache
def distance_fields() -> Floats:
    """Signed distance of each point from the outline of each digit in each font, < 0 inside, in units: [10, F, E, E].

    The array is cached and read-only.
    """
    from scipy.ndimage import distance_transform_edt

    opacity = templates("0123456789", TYPE_SIZE)
    fields = np.empty_like(opacity)
    for place in np.ndindex(*opacity.shape[:2]):
        ink = opacity[place] > 0.5
        fields[place] = (distance_transform_edt(~ink) - distance_transform_edt(ink)) / UNIT
    fields.flags.writeable = False
    return fields


def draw(fields: Floats, generator: np.random.Generator, classes: Ints) -> npt.NDArray[np.uint8]:
    """Images uint8 [B, 1, 28, 28] of these classes.

    Args:
        fields: from `distance_fields`, [10, F, E, E].
        generator: the only source of randomness.
        classes: int64 [B], 0 .. 9.
    """
    num_images = len(classes)
    hand = Hand(generator, fields, classes)
    # First the extent of the ink, on a coarse grid around the centre; then the box around it, pixel by pixel.
    search = np.broadcast_to(np.linspace(-REACH, REACH, POINTS, dtype=np.float32), (num_images, POINTS))
    distance = hand.distance(search, search)
    (top, bottom), (left, right) = (_ends(distance.min(axis=axis)) for axis in (2, 1))
    pitch = np.maximum(bottom - top, right - left) / (BOX - 1)  # units a pixel
    pixels = (np.arange(BOX) - (BOX - 1) / 2) * pitch[:, None]  # [B, BOX]
    rows, columns = (pixels + ((low + high) / 2)[:, None] for low, high in ((top, bottom), (left, right)))
    depth = hand.distance(columns, rows) / pitch[:, None, None].astype(np.float32)
    box = np.clip(0.5 - depth / np.float32(SOFT), 0, 1)
    images = np.zeros((num_images, 1, SIDE, SIDE), np.uint8)
    images[
        np.arange(num_images)[:, None, None],
        0,
        (_offset(box.sum(axis=2))[:, None] + np.arange(BOX))[:, :, None],
        (_offset(box.sum(axis=1))[:, None] + np.arange(BOX))[:, None, :],
    ] = np.rint(box * 255)
    return images


class Hand:
    """The handwriting of B digits: font, map from the page back to the font's digit, stroke."""

    def __init__(self, generator: np.random.Generator, fields: Floats, classes: Ints) -> None:
        num_images, num_fonts = len(classes), fields.shape[1]
        fonts = generator.integers(num_fonts, size=num_images)
        turn = generator.uniform(-TURN, TURN, num_images)
        slant = generator.uniform(*SLANT, num_images)
        width = generator.uniform(*WIDTH, num_images)
        self._bend = generator.uniform(-BEND, BEND, (4, num_images, 1, 1)).astype(np.float32)
        self._stroke = generator.uniform(*STROKE, (num_images, 1, 1)).astype(np.float32)
        cos, sin = np.cos(turn), np.sin(turn)
        affine = np.stack([(cos + slant * sin) / width, (slant * cos - sin) / width, sin, cos])
        self._affine = (affine * UNIT).astype(np.float32)[:, :, None, None]
        self._fields, self._which = fields, classes * num_fonts + fonts

    def distance(self, columns: npt.NDArray[np.floating], rows: npt.NDArray[np.floating]) -> Floats:
        """Signed distance from the line's edge, in units, at positions `columns` [B, W] x `rows` [B, H]: [B, H, W]."""
        x, y = columns.astype(np.float32)[:, None, :], rows.astype(np.float32)[:, :, None]
        a, b, c, d = self._bend
        bent_x, bent_y = x + a * y * y + b * x * y, y + c * x * x + d * x * y
        from_x, from_y, to_x, to_y = self._affine
        column, row = from_x * bent_x + from_y * bent_y, to_x * bent_x + to_y * bent_y
        return sampled(self._fields, self._which, column, row) - self._stroke


def _ends(nearest: Floats) -> tuple[Floats, Floats]:
    """First and last position of ink, [B] each, from the least distances [B, POINTS] of the rows or columns."""
    return _first(nearest), -_first(nearest[:, ::-1])


def _first(nearest: Floats) -> Floats:
    # A thin line may lie between two positions. One of them is at most half a step from it: so find the position at a
    # distance of half a step by linear interpolation, and add half a step.
    step = np.float32(2 * REACH / (POINTS - 1))
    images = np.arange(len(nearest))
    index = (nearest < step / 2).argmax(axis=1)
    before, after = nearest[images, index - 1], nearest[images, index]
    part = (step / 2 - after) / (before - after)  # of a step, back from `index`
    place: Floats = (index.astype(np.float32) - part + np.float32(0.5)) * step - np.float32(REACH)
    return place


def _offset(mass: Floats) -> Ints:
    """Offset of the box that puts the centre of mass of its rows or columns [B, BOX] at the centre of the image."""
    centre = (mass * np.arange(BOX)).sum(axis=1) / mass.sum(axis=1)
    offset: Ints = np.clip(np.rint(SIDE / 2 - centre), 0, SIDE - BOX).astype(np.int64)
    return offset
