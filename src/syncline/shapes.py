"""Input and output sizes of data sets, which models are built for; known from a config alone where possible."""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ImageShape:
    in_channels: int
    image_size: int  # pixels a side
    num_classes: int


@dataclass(frozen=True, slots=True)
class QuestionShape:
    """Questions about a text, both in one row of tokens."""

    vocab_size: int  # of the tokeniser
    max_length: int  # tokens of a row: question, text, three special ones, padding


@dataclass(frozen=True, slots=True)
class ClickShape:
    """Rows of a click log."""

    num_counts: int  # numeric fields
    num_categories: int  # categorical fields
    num_rows: int  # values of all categorical fields together: rows of the joint embedding table


@dataclass(frozen=True, slots=True)
class TextShape:
    """Running text, symbol by symbol."""

    num_symbols: int  # size of the alphabet; 256 for bytes
    length: int  # symbols of one training sample


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """Arrays of any form, one a sample."""

    sample_shape: tuple[int, ...]  # without the axis of the batch
    num_outputs: int  # classes; or values of a target, if it is not a label


Shape = ImageShape | QuestionShape | ClickShape | TextShape | ArrayShape


def num_values(shape: Shape) -> int:
    """The number of values of one sample."""
    match shape:
        case ImageShape():
            return shape.in_channels * shape.image_size**2
        case QuestionShape():
            return shape.max_length
        case ClickShape():
            return shape.num_counts + shape.num_categories
        case TextShape():
            return shape.length
        case ArrayShape():
            return math.prod(shape.sample_shape)


def sizes(shape: Shape) -> dict[str, Any]:
    """All sizes by name, those of images also as those of arrays, and vice versa where they mean the same."""
    found = asdict(shape)
    if isinstance(shape, ImageShape):
        side = shape.image_size
        found |= {"sample_shape": (shape.in_channels, side, side), "num_outputs": shape.num_classes}
    elif isinstance(shape, ArrayShape):
        found["num_classes"] = shape.num_outputs
    return found
