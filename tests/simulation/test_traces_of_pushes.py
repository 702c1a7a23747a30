"""Golden traces of local steps and compressed messages: what happens when, in cases small enough to read.

`make test ARGS="--rewrite-traces -k traces"` rewrites them; read the difference before you commit it.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from syncline.config import DigitsConfig, ModelConfig, RunConfig
from syncline.config.compression import SparseConfig
from syncline.config.local_steps import LocalStepsConfig
from syncline.records.events import EventLog, read_events, rows_of
from syncline.records.rows import Row
from syncline.simulation.run import simulate
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.timing.cluster import ClusterConfig
from syncline.timing.network import NetworkConfig

TRACES = Path(__file__).parents[1] / "traces" / "pushes"
# A block is of 1,000 elements, 4 s at 8 kbit/s; 50 of them with their places take 0.4 s.
CLUSTER = ClusterConfig(
    workers=2, gradient_s=[1.0, 1.5], message_bytes=4000, network=NetworkConfig(latency_s=0.0, bandwidth_gbps=8e-6)
)
CONFIG = RunConfig(
    strategy=AspOptions(),
    model=ModelConfig(name="softmax_regression"),
    dataset=DigitsConfig(train_size=64),
    cluster=CLUSTER,
    batch_size=8,  # four mini-batches of each of two workers are an epoch
    gradients=False,
    max_updates=8,
    local=LocalStepsConfig(steps=3, after_epochs=0.5),
)
TOP_50 = SparseConfig(density=0.05)
CASES = {
    "asp": CONFIG,
    "asp_topk": replace(CONFIG, compress=TOP_50),
    "asp_topk_both": replace(CONFIG, compress=replace(TOP_50, pulls=True)),
    "bsp_all_gather": replace(CONFIG, strategy=BspOptions(topology="allreduce"), compress=TOP_50, max_updates=4),
    "ds_sync": replace(
        CONFIG,
        strategy=DsSyncOptions(),
        cluster=replace(CLUSTER, workers=4, gradient_s=[1.0, 1.0, 1.0, 1.5]),
        compress=TOP_50,
        local=LocalStepsConfig(steps=2),
        max_updates=3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_trace_is_as_recorded(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    trace, path = trace_of(CASES[name], tmp_path), TRACES / f"{name}.txt"
    if request.config.getoption("--rewrite-traces"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(trace)
    assert trace == path.read_text()


def test_every_trace_belongs_to_a_case() -> None:
    assert {path.stem for path in TRACES.iterdir()} == set(CASES)


def trace_of(config: RunConfig, folder: Path) -> str:
    """A line an event, in order."""
    log = EventLog(folder / "events.arrow", 0)
    simulate(config, lambda row: None, lambda progress: None, log)
    log.close()
    return "\n".join(map(line_of, rows_of(read_events(folder / "events.arrow")))) + "\n"


def line_of(row: Row) -> str:
    told = {"started": f" for {row.value:g} s", "pushed": f" number {row.value:g}"}.get(row.kind, "")
    because = f" ({row.because})" if row.because else ""
    return f"{row.at:6.2f} s  worker {row.worker} {row.kind} v{row.version}{told}{because}"
