"""Memory and speed of Criteo's data: text parsed into the cache, then an epoch of random batches from it.

The text is generated: as many fields as Criteo's, a fifth of them missing, values by Zipf's law out of 4 to 10 million.
The measured process is a fresh one. Mapped pages are not counted as its memory: the kernel takes them back at will.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from syncline.datasets.categories import mix
from syncline.datasets.clicks import NUM_CATEGORIES, NUM_COUNTS
from syncline.datasets.criteo import criteo
from syncline.datasets.sharding import WorkerShare

SIZES = (1_000_000, 5_000_000)  # rows: the difference shows what grows with them
CHUNK = 100_000  # rows generated at once
BATCH = 4096
MISSING = 0.2
VALUES = np.geomspace(4, 10_000_000, NUM_CATEGORIES)  # of each categorical field, at most


@dataclass(frozen=True, slots=True)
class Pass:
    """One process that parsed so many rows and then read one epoch of them."""

    num_rows: int
    text_bytes: int
    parse_s: float  # CPU seconds
    epoch_s: float  # CPU seconds
    at_rest_mb: float  # anonymous memory before, with all libraries loaded
    parse_mb: float  # at most while parsing, above that
    epoch_mb: float  # at most during the epoch, above that


def generate(path: Path, num_rows: int, seed: int = 0) -> None:
    """Text in Criteo's format."""
    import pyarrow as pa
    from pyarrow import csv

    random = np.random.default_rng(seed)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    shifts = np.arange(28, -4, -4, dtype=np.uint32)

    def hexadecimal(field: int, size: int) -> Any:
        rank = np.exp(random.random(size) * np.log(VALUES[field])).astype(np.uint32)  # density 1 / rank
        text = digits[mix(rank + np.uint32(field << 24))[:, None] >> shifts & 15]  # [size, 8]
        lengths = np.where(random.random(size) < MISSING, 0, 8)
        offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text[lengths > 0].tobytes())]
        return pa.Array.from_buffers(pa.string(), size, buffers)

    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with path.open("wb") as file:
        for begin in range(0, num_rows, CHUNK):
            size = min(CHUNK, num_rows - begin)
            columns = [pa.array((random.random(size) < 0.25).astype(np.int8))]
            for _ in range(NUM_COUNTS):
                counts = np.exp(random.normal(2, 2, size)).astype(np.int64)
                columns.append(pa.array(counts, mask=random.random(size) < MISSING))
            columns += [hexadecimal(field, size) for field in range(NUM_CATEGORIES)]
            csv.write_csv(pa.table(columns, [str(place) for place in range(len(columns))]), file, options)


def measure(num_rows: int, vocabulary: str) -> Pass:
    """Generate, and measure in a separate process; the files are removed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        generate(path, num_rows)
        command = [sys.executable, "-m", "benchmarks.criteo_pass", folder, vocabulary]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return Pass(num_rows=num_rows, text_bytes=path.stat().st_size, **json.loads(done.stdout))


def report() -> None:
    print(
        "Criteo: rows per CPU second, and anonymous memory above that of the libraries (goal: parsing takes as much for"
    )
    print(
        "any number of rows, but for 8 bytes a distinct value counted; an epoch up to 24 bytes a row, the sample order)"
    )
    for vocabulary in ("hash", "threshold"):
        for num_rows in SIZES:
            found = measure(num_rows, vocabulary)
            parsed, passed = (num_rows / seconds / 1e3 for seconds in (found.parse_s, found.epoch_s))
            print(
                f"  {vocabulary:9} {num_rows / 1e6:.0f} M rows, {found.text_bytes / 1e9:.2f} GB"
                f"   parsing {parsed:4.0f} krows/s, {found.parse_mb:4.0f} MB"
                f"   an epoch {passed:4.0f} krows/s, {found.epoch_mb:4.0f} MB"
            )


def member(folder: str, vocabulary: str) -> None:
    """The measured process; it prints a line of JSON."""
    torch.set_num_threads(1)
    import pyarrow.csv  # noqa: F401  at rest it is loaded

    at_rest = anonymous_mb()
    begun = time.process_time()
    with peak() as parsing:
        dataset = criteo(folder, cache=folder, vocabulary=vocabulary)
    parsed = time.process_time()
    with peak() as passing:
        source = dataset.batch_source(torch.device("cpu"), "ctr")
        share = WorkerShare(dataset.num_train, 1, 0, BATCH, seed=0)
        for iteration in range(dataset.num_train // BATCH):
            source.take(share.batch(iteration), None)
    ended = time.process_time()
    found = {
        "parse_s": parsed - begun,
        "epoch_s": ended - parsed,
        "at_rest_mb": at_rest,
        "parse_mb": parsing[0] - at_rest,
        "epoch_mb": passing[0] - at_rest,
    }
    print(json.dumps(found))


def anonymous_mb() -> float:
    """Anonymous memory of this process."""
    status = Path("/proc/self/status").read_text()
    return float(status.split("RssAnon:")[1].split()[0]) / 1024


@contextmanager
def peak() -> Iterator[list[float]]:
    """Yields a list that holds the peak of the anonymous memory afterwards, sampled every few milliseconds."""
    highest, done = [anonymous_mb()], threading.Event()

    def look() -> None:
        while not done.wait(0.01):
            highest[0] = max(highest[0], anonymous_mb())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield highest
    finally:
        done.set()
        watcher.join()


if __name__ == "__main__":
    member(*sys.argv[1:])
