"""Look at plans and records, start and stop plans: python -m syncline <command>; --help lists the commands."""

import argparse
import os
import sys

import syncline
from syncline.operations import clean, compare, control, reference, show, status, timeline
from syncline.operations.arguments import Commands, Parser

EXAMPLES = """\
examples:
  python -m syncline status                    one line a plan
  python -m syncline status dssp/table1        one line a run
  python -m syncline retry dssp/table1         make what failed or is left
  python -m syncline show <identity>
Every command has its own --help; docs/operations.md tells more.
"""


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="python -m syncline",
        description="Look at plans and records; start and stop plans.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"syncline {syncline.__version__}")
    commands = Commands(parser)
    for module in (status, control, show, compare, clean, timeline, reference):
        module.add_to(commands)
    asked = parser.parse_args(arguments or ["--help"])
    try:
        code: int = asked.run(asked)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # as of `| head`; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
