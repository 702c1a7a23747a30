"""Does a change of the code leave every computed bit as it was?

python -m benchmarks.unchanged write FOLDER      before the change: stores the results of the runs below
python -m benchmarks.unchanged compare FOLDER    after it: the same runs again; exit code 1 if anything differs

For every strategy: runs in virtual time (with gradients, times alone, over networks that queue or share, through two
shards, interrupted and resumed), compared by their summary, parameters and columns of the event log; and a run of real
processes through a parameter server, made once, compared by its replay.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runners.one import resolved, run_one
from runners.torchrun import make_run
from syncline import monitor
from syncline.config import compose
from syncline.records.events import read_events, rows_of
from syncline.records.rows import Row
from syncline.records.snapshots import read_state
from syncline.records.store import read_summary
from syncline.strategies import STRATEGIES

# Keys of a summary that depend on the names of keys, and on the machine.
OF_MACHINE = ("computed_in_vain", "identity", "wall_s")
INTERRUPTED_AFTER = 10  # reports of the progress

UNEQUAL = ["cluster.workers=4", "cluster.gradient_s=[0.02,0.03,0.05]", "cluster.jitter={name: exponential, mean: 1}"]
INSTANT = ["cluster.network.latency_s=0", "cluster.network.bandwidth_gbps=null"]
DELAYS = [
    "scenario.compute_delay={name: exponential, mean: 0.01}",
    "scenario.push_delay={name: exponential, mean: 0.03, probability: 0.3}",
    "scenario.pull_delay={name: exponential, mean: 0.02}",
    "scenario.slow={1: 2.0}",
]
SLOW_NETWORK = ["cluster.network.latency_s=0.004", "cluster.network.bandwidth_gbps=0.1", *DELAYS]
SHORT = ["max_updates=60", "eval_every_epochs=0.5", "dataset.train_size=400", "batch_size=16"]
LEARNS = ["runner.parameters=true", *SHORT, *UNEQUAL]
TIMES = ["gradients=false", "max_updates=1000", "cluster.workers=32"]
VARIANTS: Mapping[str, list[str]] = {
    "gradients": [*LEARNS, *INSTANT],
    "gradients, network": [*LEARNS, *SLOW_NETWORK, "optimizer=adam"],
    "gradients, shared network": [*LEARNS, *SLOW_NETWORK, "cluster.network.sharing=fair"],
    "gradients, two shards": [*LEARNS, *SLOW_NETWORK, "cluster.shards=2", "scenario.slow_shards={0: 0.003}"],
    "batch norm": [*LEARNS, *SLOW_NETWORK, "model=resnet8", "max_updates=8"],
    "times": [*TIMES, *INSTANT, "cluster.gradient_s=[0.1]", "cluster.jitter={name: exponential, mean: 1}"],
    "times, level": [*TIMES, *INSTANT, "cluster.gradient_s=[0.1]"],
    "times, network": [*TIMES, *SLOW_NETWORK],
    "times, shared network": [*TIMES, *SLOW_NETWORK, "cluster.network.sharing=fair", "max_updates=200"],
    "interrupted": [*LEARNS, *SLOW_NETWORK, "runner.checkpoint_every_s=0.0001", "seed=7"],
}
# Options with which strategies are effective with 4 workers, and with 32.
OPTIONS: Mapping[str, tuple[list[str], list[str]]] = {
    "ssp": (["strategy.staleness=2"], ["strategy.staleness=3"]),
    "dssp": (["strategy.s_lower=1", "strategy.r_max=4"], []),
    "backup": (["strategy.backups=1"], ["strategy.backups=4"]),
    **{name: (["strategy.k=2"], ["strategy.k=8"]) for name in ("k_sync", "k_async", "k_batch_sync", "k_batch_async")},
    "mindflayer": (["strategy.within=0.12"], ["strategy.within=0.1"]),
    "rennala": (["strategy.k=2"], ["strategy.k=8"]),
    "ringmaster": (["strategy.r=2", "strategy.stops=true"], ["strategy.r=8"]),
    "sync_switch": (["strategy.after=3"], []),
    "adasync": (["strategy.k=1", "strategy.interval=0.2"], ["strategy.k=4"]),
    "psp": (
        ["strategy.c=3", "strategy.b=50", "strategy.tau1=0.02", "strategy.tau2=0.01"],
        ["strategy.c=28", "strategy.b=90"],
    ),
    "ds_sync": ([], ["strategy.group_size=8"]),
}


def cases() -> Iterator[tuple[str, list[str]]]:
    """(name, overrides) of each run."""
    for name, options in STRATEGIES.items():
        few, many = OPTIONS.get(name, ([], []))
        for variant, words in VARIANTS.items():
            if "shards" in variant and (options.single_server or not options().has_server):
                continue
            own = many if "times" in variant else few
            words = words if options().has_server else without_server(words)
            yield f"{name}: {variant}", [f"strategy={name}", *words, *own]
    collective = without_server([*LEARNS, *SLOW_NETWORK])
    yield "bsp: all-reduce", ["strategy=bsp", "strategy.topology=allreduce", *collective]
    yield "psp: newest", ["strategy=psp", "strategy.tag=newest", *VARIANTS["gradients, two shards"], *OPTIONS["psp"][0]]
    yield "ds_sync: first", ["strategy=ds_sync", "strategy.average=before_forward", *collective]


def without_server(words: list[str]) -> list[str]:
    """Without delays of pushes and pulls, which do not exist there."""
    return [word for word in words if not word.startswith(("scenario.push_delay", "scenario.pull_delay"))]


def left_by(results: Path, words: list[str], is_interrupted: bool) -> dict[str, Any]:
    """The summary of a run, and digests of its curve, its parameters and the columns of its log."""
    config, _ = compose([*words, f"results={results}"])
    folder = results / config.identity
    looks = 0

    def interrupted(progress: Any) -> None:
        nonlocal looks
        looks += 1
        if looks == INTERRUPTED_AFTER:
            raise KeyboardInterrupt

    if is_interrupted:
        try:
            run_one(config, results, interrupted)
        except KeyboardInterrupt:
            assert (folder / "checkpoint").exists()
        else:
            raise AssertionError(f"{words}: ended before it was interrupted")
    run_one(config, results, lambda progress: None)
    return digests(folder)


def digests(folder: Path) -> dict[str, Any]:
    """The content of `left_by`, from a record."""
    summary = {key: value for key, value in read_summary(folder).items() if key not in OF_MACHINE}
    events = sorted(rows_of(read_events(folder / "events.arrow")))  # whatever the order of what happens at one time
    columns = zip(Row._fields, zip(*events, strict=True), strict=True)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    curve = [{key: value for key, value in row.items() if key != "wall_s"} for row in rows]
    return {
        "summary": summary,
        "curve": digest(json.dumps(curve, sort_keys=True)),
        "events": {name: digest(repr(list(values))) for name, values in columns},
        "parameters": {
            f"{path.stem}/{name}": digest(tensor.numpy().tobytes())
            for path in sorted(folder.glob("parameters-*.safetensors"))
            for name, tensor in read_state(path)[0].items()
        },
    }


def digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def make_live(results: Path) -> None:
    """A run of real processes of every strategy with a server."""
    for name, options in STRATEGIES.items():
        if options().has_server:
            words = [f"strategy={name}", "runner=local", *LEARNS[1:], *OPTIONS.get(name, ([], []))[0], *DELAYS]
            shards = 1 if options.single_server else 2
            config, _ = compose([*words, "max_updates=30", f"cluster.shards={shards}", f"results={results}"])
            make_run(config, results, lambda progress: None)


def replayed(live: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The summaries of the replays of these runs."""
    for path in sorted(live.glob("*/summary.json")):
        folder = path.parent
        if read_summary(folder)["engine"] != "live":
            continue
        config, _ = compose(["runner=replay", f"from={folder.name}", f"results={live}"])
        summary = run_one(resolved(config, live), live, lambda progress: None, restart=True)
        kept = {key: value for key, value in summary.items() if key not in OF_MACHINE}
        yield f"replay of {summary['strategy']}", {"summary": json.loads(json.dumps(kept))}


def differences(before: Any, after: Any, where: str) -> Iterator[str]:
    """The differences of two trees of plain types."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{where}/{key}")
    elif before != after:
        yield f"{where}: {before} -> {after}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unchanged", description=__doc__)
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    asked = parser.parse_args(arguments)
    monitor.REPORT_EVERY_S = 0.0  # type: ignore[attr-defined]  # each look at the run is reported
    live = asked.folder / "live"
    if asked.action == "write":
        live.mkdir(parents=True)
        make_live(live)
    found = dict[str, Any]()
    with tempfile.TemporaryDirectory() as results:
        for name, words in cases():
            if asked.only in name:
                found[name] = left_by(Path(results), words, "interrupted" in name)
    if asked.only in "replay":
        found |= dict(replayed(live))
    path = asked.folder / "unchanged.json"
    if asked.action == "write":
        path.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} runs and replays: {path}")
        return 0
    before = {name: left for name, left in json.loads(path.read_text()).items() if name in found or not asked.only}
    lines = list(differences(before, found, ""))
    print(*lines, f"{len(found)} runs and replays, {len(lines)} differences", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
