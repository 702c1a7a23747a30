"""Decodes a photograph to the pixels of a network."""

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of a random box: part of the image, width / height
TRIES = 10
MARGIN = 256 / 224  # shorter side before the centre crop / side of the crop

Box = tuple[int, int, int, int]  # left, top, right, bottom


def decode(path: str, size: int, seed: int | None) -> bytes:
    """The photograph as `size` x `size` pixels, RGB, planar: 3 size^2 bytes.

    With a seed, for training: a random box of it, mirrored with probability 1/2. Without, for evaluation: resized so
    that the shorter side is 256/224 of `size`, then cropped at the centre. Resizing is bilinear with antialiasing.

    Raises:
        ValueError: the file cannot be read or decoded.

    Source: Szegedy et al. 2014, "Going deeper with convolutions", section 6 (the random box); He et al. 2015, "Deep
    residual learning", section 3.4 (the centre of 256 pixels). Equal to torchvision's RandomResizedCrop (given the same
    box), RandomHorizontalFlip, Resize and CenterCrop on PIL images.
    """
    from PIL import Image  # here: few runs decode

    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise ValueError(f"{path}: not a readable image ({' '.join(str(error).split())})") from None
    if seed is None:
        image = _middle(image, size)
    else:
        chance = random.Random(seed)
        image = image.crop(random_box(*image.size, chance)).resize((size, size), Image.Resampling.BILINEAR)
        if chance.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return b"".join(band.tobytes() for band in image.split())


def random_box(width: int, height: int, chance: random.Random) -> Box:
    """Inside of width x height: its area uniform in AREA of the whole, the logarithm of its ratio uniform.

    A box that does not fit is drawn again; after TRIES, the largest centred one with a ratio within RATIO.
    """
    for _ in range(TRIES):
        area = width * height * chance.uniform(*AREA)
        ratio = math.exp(chance.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = chance.randint(0, width - wide), chance.randint(0, height - high)
            return left, top, left + wide, top + high
    wide, high = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high


def _middle(image: "Image.Image", size: int) -> "Image.Image":
    from PIL import Image

    width, height = image.size
    short = round(size * MARGIN)
    scaled = (short, int(short * height / width)) if width <= height else (int(short * width / height), short)
    left, top = (round((side - size) / 2) for side in scaled)
    return image.resize(scaled, Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))
