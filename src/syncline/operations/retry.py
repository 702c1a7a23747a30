"""syncline retry: start a plan again."""

import argparse
import os
import shlex
import sys

from syncline.installation import program
from syncline.operations.names import find_plan


def main(args: argparse.Namespace) -> int:
    """Becomes the command that runs the plan, and exits with its code; `run` refuses to make other runs."""
    plan = find_plan(args.results, args.plan)
    words = [word for word in plan.command if word.partition("=")[0] not in ("results", "rerun")]
    words += [*([f"--retry={plan.path}"] if words[0] == "run" else []), f"results={plan.results}"]
    print("syncline", shlex.join(words), file=sys.stderr, flush=True)
    os.execv(sys.executable, program(*words))
