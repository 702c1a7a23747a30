"""syncline cancel: stop the runs of a plan."""

import argparse
import json
import os
import signal
import time
from contextlib import suppress

from syncline.operations import jobs
from syncline.operations.names import find_plan
from syncline.operations.states import run_states
from syncline.records.lock import at_work_on

CHECKPOINT_S = 60.0  # for checkpoints to be written


def main(args: argparse.Namespace) -> int:
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
