"""syncline grow: start more workers in a run of real processes."""

import argparse
import json

from syncline.operations.names import find_record
from syncline.records.lock import owner_of
from syncline.records.store import RecordError, made_in, read_run_config, want_workers, wanted_workers


def main(args: argparse.Namespace) -> int:
    """Asks the coordinator of the run, which looks for it several times a second."""
    place = find_record(args.record, args.results)
    folder = made_in(place)
    config = read_run_config(folder) if owner_of(place) is not None else None
    if config is None or config["runner"]["name"] not in ("local", "multinode"):
        raise RecordError(f"{args.record} is not a run of real processes under way")
    most = config["cluster"]["workers"]
    now = wanted_workers(folder) or config["runner"]["initial_workers"] or most
    if not 1 <= args.number <= most - now:
        rule = f"of cluster.workers={most} {now} are started; further ones must be in 1 .. {most - now}"
        raise RecordError(f"{rule}, got {args.number}" if now < most else f"all of cluster.workers={most} are started")
    want_workers(folder, now + args.number)
    if args.json:
        print(json.dumps({"identity": args.record, "workers": now + args.number}, indent=1))
    else:
        print(f"{now + args.number} workers instead of {now}")
    return 0
