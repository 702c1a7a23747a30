"""What both clusters' reports share: the target that BSP sets, and what was learned with."""

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


def learned_with(config: Mapping[str, Any]) -> str:
    """The network and the data: `resnet-8 on glyphs10`."""
    model = config["model"]
    depth = f"-{model['depth']}" if "depth" in model else ""
    return f"{model['name']}{depth} on {config['dataset']['name']}"
