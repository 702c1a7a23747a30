"""What both clusters' reports share: the target that BSP sets, and how a network is called."""

import math
from collections.abc import Mapping
from typing import Any

from reports.figures import Points

TIMING = "timing"  # last part of the label of a run of times alone


def cut(accuracy: float) -> float:
    """To whole per cent, as the paper's 0.67 is."""
    return math.floor(accuracy * 100 + 1e-9) / 100  # a hundredth is not a binary fraction: 0.29 * 100 falls short of 29


def reached(curve: Points, accuracy: float) -> float | None:
    """Where it first is that high, of evaluations after some training; None if it never is."""
    return next((at for at, height in zip(*curve, strict=True) if height >= accuracy and at > 0), None)


def network(config: Mapping[str, Any]) -> str:
    """`resnet-8`, `lenet`."""
    model = config["model"]
    return f"{model['name']}-{model['depth']}" if "depth" in model else str(model["name"])
