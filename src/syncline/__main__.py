"""Look at plans and records, start and stop plans: python -m syncline <command>; --help lists the commands."""

import argparse
import os
import sys
from importlib import import_module

import syncline
from syncline.operations import clean, compare, control, reference, show, status, timeline
from syncline.operations.arguments import Commands, Parser

EXAMPLES = """\
examples:
  python -m syncline status                    one line a plan
  python -m syncline status dssp/table1        one line a run
  python -m syncline retry dssp/table1         make what failed or is left
  python -m syncline show <identity>
  python -m syncline new strategy mine         start a part of your own
  python -m syncline check strategy=mine       hold your own parts to the rules
  python -m syncline calibrate name=lab        measure your own cluster
Every command has its own --help; docs/operations.md tells more.
"""


OTHERS = ("check", "calibrate", "new", "completion")  # of `runners`: `main` of each, imported when it is called


def main(arguments: list[str], prog: str = "python -m syncline") -> int:
    parser = Parser(
        prog=prog,
        description="Look at plans and records; start and stop plans.",
        epilog=EXAMPLES.replace("python -m syncline", prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"syncline {syncline.__version__}")
    commands = Commands(parser)
    for module in (status, control, show, compare, clean, timeline, reference):
        module.add_to(commands)
    try:
        name, *words = arguments or ["--help"]
        if name in OTHERS:
            return int(import_module(f"runners.{name}").main(words))
        if not name.startswith("-") and name not in commands.names:
            raise ValueError(f"unknown command {name!r}; there are {', '.join((*commands.names, *OTHERS))}")
        asked = parser.parse_args([name, *words])
        code: int = asked.run(asked)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # as of `| head`; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130  # as shells have it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
