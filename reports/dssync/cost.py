"""Table 1: the scale of synchronisation, and its cost by the paper's model, the alpha-beta model and simulation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reports.dssync.text import published_step_s, text
from reports.exhibits import Exhibit
from reports.records import Artefact, Run
from reports.statistics import Sample, paired_ratio
from reports.tables import Column, Table, Value
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.timing import collectives

KINDS = {"ps": "ps", "ring": "ring", "tree": "tree", "ds_sync": "ds_sync_ring", "ds_sync_tree": "ds_sync_tree"}
"""Row -> its name in Table 1 and in `collectives.SYNCHRONISATIONS`."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What the formulas need of a cluster."""

    gradient_s: float
    size_bytes: int
    tensors: int
    latency_s: float  # of a message
    seconds_a_byte: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Wire":
        cluster = config["cluster"]
        network = cluster["network"]
        seconds_a_byte = 8.0 / (network["bandwidth_gbps"] * 1e9)
        size, tensors = cluster["message_bytes"], cluster["message_tensors"]
        return cls(cluster["gradient_s"][0], size, tensors, network["latency_s"], seconds_a_byte)

    def cost_s(self, kind: str, num_workers: int, messages: int) -> float:
        """Seconds of one synchronisation in the alpha-beta model, in so many messages one after another."""
        size, latency_s, seconds_a_byte = self.size_bytes, messages * self.latency_s, self.seconds_a_byte
        group_size = DsSyncOptions().grid(num_workers)
        match kind:
            case "ps":
                return collectives.parameter_server_s(num_workers, 1, size, latency_s, seconds_a_byte)
            case "ring":
                return collectives.ring_s(num_workers, size, latency_s, seconds_a_byte)
            case "tree":
                return collectives.tree_s(num_workers, size, latency_s, seconds_a_byte)
            case "ds_sync":
                return collectives.grouped_ring_s(num_workers, group_size, size, latency_s, seconds_a_byte)
        sides = (group_size, num_workers // group_size)  # of the grid: rows at even steps, columns at odd ones
        return sum(collectives.tree_s(members, size, latency_s, seconds_a_byte) for members in sides) / 2.0


def seconds_a_step(run: Run) -> float:
    """Virtual seconds from one update to the next."""
    seconds: float = run.summary["time_s"]
    updates: int = run.summary["updates"]
    return seconds / updates


def steps(artefact: Artefact) -> dict[int, dict[str, Sample]]:
    """Workers -> run -> seconds a step."""
    by_size: dict[int, dict[str, Sample]] = {}
    for label, runs in artefact.rows().items():
        num_workers: int = runs[0].config["cluster"]["workers"]
        by_size.setdefault(num_workers, {})[label.rpartition("/")[2]] = artefact.sample(runs, seconds_a_step)
    return by_size


def table1(artefact: Artefact) -> Table:
    """Table 1, with seconds for the paper's cluster."""
    names, wire = text()["names"], Wire.of(artefact.runs[0].config)
    body: list[list[Value]] = []
    for num_workers, times in steps(artefact).items():
        for kind, printed in KINDS.items():
            naive = times.get(f"{kind}_naive")
            body.append(
                [
                    f"W = {num_workers}, {names[kind]}",
                    collectives.synchronisation_scale(printed, num_workers),
                    collectives.overall_cost_s(printed, num_workers, wire.size_bytes, wire.seconds_a_byte),
                    wire.cost_s(kind, num_workers, 1),
                    _less(times.get(kind), wire.gradient_s),
                    None if kind == "ps" else wire.cost_s(kind, num_workers, wire.tensors),
                    _less(naive, wire.gradient_s),
                    _less(times.get(f"{kind}_naive_uneven"), wire.gradient_s),
                    naive,
                    published_step_s("cifar10", num_workers, "bsp" if kind == "ring" else kind),
                ]
            )
    columns = [
        Column("synchronisation"),
        Column("paper: scale", 1),
        Column("paper: cost S D / B, s", 2),
        Column("alpha-beta: one message, s", 3),
        Column("ours: one message, s", 3),
        Column("alpha-beta: a message a tensor, s", 3),
        Column("ours: a message a tensor, s", 3),
        Column("ours: and uneven workers, s", 3),
        Column("ours: step, a message a tensor, s", 3),
        Column("paper: step (Table 4, CIFAR-10), s", 3),
    ]
    return Table(f"DS-Sync, Table 1, at scale {artefact.scale}", columns, body, notes(artefact, wire), 6)


def gains(artefact: Artefact) -> Table:
    """How many times faster DS-Sync with rings is than one ring over all."""
    wire = Wire.of(artefact.runs[0].config)
    body: list[list[Value]] = []
    for num_workers, times in steps(artefact).items():
        group_size = DsSyncOptions().grid(num_workers)
        scales = {kind: collectives.synchronisation_scale(kind, num_workers) for kind in KINDS.values()}

        def model(size: float, latency_s: float, W: int = num_workers, G: int = group_size) -> float:
            return collectives.ring_s(W, size, latency_s, 1.0) / collectives.grouped_ring_s(W, G, size, latency_s, 1.0)

        theirs = [published_step_s("cifar10", num_workers, strategy) for strategy in ("bsp", "ds_sync")]
        body.append(
            [
                f"W = {num_workers}",
                scales["ring"] / scales["ds_sync_ring"],
                scales["tree"] / scales["ds_sync_tree"],
                model(1.0, 0.0),
                model(0.0, 1.0),
                _gain(times, "ring", "ds_sync", wire.gradient_s),
                _gain(times, "ring_naive", "ds_sync_naive", wire.gradient_s),
                _gain(times, "ring", "ds_sync", 0.0),
                _gain(times, "ring_naive", "ds_sync_naive", 0.0),
                _gain(times, "ring_naive_uneven", "ds_sync_naive_uneven", 0.0),
                None if theirs[0] is None or theirs[1] is None else theirs[0] / theirs[1],
            ]
        )
    columns = [
        Column("time by a ring over all / by DS-Sync"),
        Column("paper: scale, rings", 2),
        Column("paper: scale, trees", 2),
        Column("alpha-beta: bandwidth alone", 2),
        Column("alpha-beta: latency alone", 2),
        Column("ours: synchronisation, one message", 2),
        Column("ours: synchronisation, a message a tensor", 2),
        Column("ours: step, one message", 2),
        Column("ours: step, a message a tensor", 2),
        Column("ours: step, and uneven workers", 2),
        Column("paper: step (Table 4, CIFAR-10)", 2),
    ]
    lines = [
        "The paper's scale counts serial operations on one element. Rings that cut the data into W pieces gain less "
        "where bandwidth is what costs (1 + 1 / sqrt W) and more where latency is (1 + sqrt W).",
        *artefact.closing_notes,
    ]
    return Table(f"DS-Sync against a ring over all workers, at scale {artefact.scale}", columns, body, lines, 6)


def notes(artefact: Artefact, wire: Wire) -> list[str]:
    """What a reader must know to compare: cluster, model, spread, command."""
    first = artefact.runs[0]
    scales = "; ".join(f"{kind} {scale}, {cost}" for kind, (scale, cost) in text()["table1"].items())
    uneven = [run.config["cluster"]["jitter"] for run in artefact.runs if run.label.endswith("uneven")]
    return [
        f"Engine {first.summary['engine']}, {first.summary['time_kind']} time, times alone, "
        f"{first.config['max_updates']:,} steps a run. Cluster {first.config['cluster']['name']}, fitted to Table 4 "
        f"(CIFAR-10): {wire.gradient_s:g} s a gradient, D = {wire.size_bytes / 1e6:.1f} MB in {wire.tensors} tensors, "
        f"D / B = {wire.size_bytes * wire.seconds_a_byte:.3f} s, latency {1e3 * wire.latency_s:.3f} ms a message. "
        "64 workers are not in Table 4.",
        f"Table 1, scale and cost: {scales}. P = 1 server here; the logarithm's base is not stated, 2 is taken.",
        'Seconds without "step" are those of the synchronisation: a step less the gradient. In the alpha-beta model '
        "rings cut the data into pieces, binomial trees pass it whole; trees are not simulated. The simulated server "
        "takes (W + 1) D / B: its pulls put the workers one transfer apart, and their pushes hide behind that; the "
        "model's push and pull, 2 W D / B, do not overlap.",
        f"Seeds {', '.join(map(str, artefact.seeds))}: mean ± sample standard deviation. The profile draws nothing, so "
        "that seeds differ only in the uneven columns"
        + (f" (a gradient's time varies by {100 * uneven[0]['std']:g} %, assumed)." if uneven else "."),
        *artefact.closing_notes,
    ]


def show_table1(artefact: Artefact) -> Exhibit:
    return {"": table1(artefact), "gains": gains(artefact)}


def _less(sample: Sample | None, seconds: float) -> Sample | None:
    if sample is None:
        return None
    return Sample(tuple(None if value is None else value - seconds for value in sample.values))


def _gain(times: Mapping[str, Sample], whole: str, grouped: str, less_s: float) -> Sample | None:
    both = [_less(times.get(label), less_s) for label in (whole, grouped)]
    return None if both[0] is None or both[1] is None else paired_ratio(both[0].values, both[1].values)
