"""The distributions that trackers show of a finished run: staleness of gradients, and waiting times of workers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syncline.records.spans import ANSWER, BLOCKS, WAITING, Timeline, read_timeline
from syncline.records.store import RecordError

MAX_EVENTS = 500_000  # read for the timeline: about 4 s
MAX_BINS = 64
WAITS = {WAITING: "waiting_held_s", BLOCKS: "waiting_for_blocks_s", ANSWER: "waiting_for_answer_s"}

Histogram = tuple[list[int], list[float]]  # counts, and the edges of the bins: one more


def short_timeline(folder: Path) -> Timeline | None:
    """The timeline of the first `MAX_EVENTS` events, if the record has any."""
    try:
        return read_timeline(folder, MAX_EVENTS)[0]
    except RecordError:
        return None


def histograms_of(summary: Mapping[str, Any], timeline: Timeline | None) -> dict[str, Histogram]:
    """Staleness of the gradients applied, and the length of each wait, by its cause."""
    histograms = {}
    if stale := {int(value): count for value, count in summary["staleness"].items()}:
        histograms["staleness_of_gradients"] = histogram(list(stale), list(stale.values()), is_whole=True)
    spans = [span for lane in timeline.workers for span in lane] if timeline is not None else []
    for kind, key in WAITS.items():
        if waits := [span.end_s - span.begin_s for span in spans if span.kind == kind]:
            histograms[key] = histogram(waits, [1] * len(waits), is_whole=False)
    return histograms


def histogram(values: Sequence[float], weights: Sequence[int], is_whole: bool) -> Histogram:
    """At most `MAX_BINS` bins of equal width from 0 on; for whole numbers, each bin is centred on them."""
    most = max(values)
    if is_whole:
        width = float(-(-(int(most) + 1) // MAX_BINS))
        edges = np.arange(0, most + 1 + width, width) - 0.5
    else:
        edges = np.linspace(0, most, MAX_BINS + 1)
    counts, _ = np.histogram(values, edges, weights=weights)
    return [int(count) for count in counts], [float(edge) for edge in edges]
