"""python -m syncline retry, cancel and grow: start a plan again, stop it, give a run more workers."""

import argparse
import json
import os
import shlex
import signal
import sys
import time
from contextlib import suppress

from syncline.installation import command_name, program
from syncline.operations import jobs
from syncline.operations.arguments import Commands, find_plan, find_record
from syncline.operations.states import run_states
from syncline.records.lock import at_work_on, owner_of
from syncline.records.store import RecordError, made_in, read_run_config, want_workers, wanted_workers

CHECKPOINT_S = 60.0  # for checkpoints to be written

RETRY_EXAMPLES = """\
examples:
  python -m syncline retry dssp/table1
It makes the runs that failed, were interrupted or are left.
"""
CANCEL_EXAMPLES = """\
examples:
  python -m syncline cancel dssp/table1
Finished runs stay; retry makes the others.
"""


GROW_EXAMPLES = f"""\
examples:
  python -m syncline grow <identity> 2
The run must have begun with fewer workers than it may have:
  {command_name("run")} runner=local cluster.workers=4 runner.initial_workers=2
"""


def add_to(commands: Commands) -> None:
    what = "start a plan again as it was started; finished runs are not repeated"
    parser = commands.add("retry", retry, what, RETRY_EXAMPLES, has_json=False)
    parser.add_argument("plan", help="its experiment (dssp/table1), its name, or its file")
    what = "stop the runs of a plan: processes of this host, and Slurm jobs"
    parser = commands.add("cancel", cancel, what, CANCEL_EXAMPLES)
    parser.add_argument("plan", help="its experiment (dssp/table1), its name, or its file")
    parser = commands.add(
        "grow", grow, "start more workers in a run of real processes that is under way", GROW_EXAMPLES
    )
    parser.add_argument("identity", help="of the run")
    parser.add_argument("number", type=int, help="of further workers")


def retry(args: argparse.Namespace) -> int:
    """Becomes the command that runs the plan, and exits with its code; that refuses to make other runs."""
    plan = find_plan(args.results, args.plan)
    if not plan.command:
        raise RecordError(f"{plan.path} does not hold its command (written by an older version); start it by hand")
    words = [word for word in plan.command if word.partition("=")[0] not in ("results", "rerun")]
    words = [f"--retry={plan.path}", *words, f"results={plan.results}"]
    print(command_name("run"), shlex.join(words), file=sys.stderr, flush=True)
    os.execv(sys.executable, program("run", *words))


def cancel(args: argparse.Namespace) -> int:
    """Returns 1 if some runs are not stopped."""
    plan = find_plan(args.results, args.plan)
    results = plan.results
    cancelled = jobs.cancel(jobs.submissions(results, plan.stem))
    here = [owner for owner in at_work_on(plan.path) if owner.is_here]
    for owner in here:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(owner.pid, signal.SIGTERM)
    until = time.monotonic() + CHECKPOINT_S
    while any(owner.is_alive for owner in here) and time.monotonic() < until:
        time.sleep(0.05)
    stopped = [owner for owner in here if not owner.is_alive]
    left = at_work_on(plan.path)
    runs = {identity: state.owner for identity, state in run_states(results, plan.once(), {}).items() if state.owner}
    if args.json:
        content = {
            "plan": plan.stem,
            "jobs": cancelled,
            "stopped": [owner.as_dict() for owner in stopped],
            "still_at_work": [owner.as_dict() for owner in left],
            "still_running": {identity: owner.as_dict() for identity, owner in runs.items()},
        }
        print(json.dumps(content, indent=1))
        return 1 if left or runs else 0
    for job in cancelled:
        print(f"cancelled Slurm job {job}")
    for owner in stopped:
        print(f"stopped {owner}")
    for owner in left:
        print(f"still at work: {owner}" + ("" if owner.is_here else f"; cancel it on {owner.host}"))
    for identity, running in runs.items():
        print(f"still running: {identity}, {running}")
    if not (cancelled or stopped or left or runs):
        print(f"no run of {plan.stem} is running or queued")
    return 1 if left or runs else 0


def grow(args: argparse.Namespace) -> int:
    """Asks the coordinator of the run, which looks for it several times a second."""
    place = find_record(args.identity, args.results)
    folder = made_in(place)
    config = read_run_config(folder) if owner_of(place) is not None else None
    if config is None or config["runner"]["name"] not in ("local", "multinode"):
        raise RecordError(f"{args.identity} is not a run of real processes under way")
    most = config["cluster"]["workers"]
    now = wanted_workers(folder) or config["runner"]["initial_workers"] or most
    if not 1 <= args.number <= most - now:
        rule = f"of cluster.workers={most} {now} are started; further ones must be in 1 .. {most - now}"
        raise RecordError(f"{rule}, got {args.number}" if now < most else f"all of cluster.workers={most} are started")
    want_workers(folder, now + args.number)
    if args.json:
        print(json.dumps({"identity": args.identity, "workers": now + args.number}, indent=1))
    else:
        print(f"{now + args.number} workers instead of {now}")
    return 0
