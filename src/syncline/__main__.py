"""Look at plans and records, start and stop plans: python -m syncline <command>; --help lists the commands."""

import argparse
import sys
from importlib import import_module

import syncline
from syncline.operations import clean, compare, control, reference, show, status, timeline
from syncline.operations.arguments import Commands, Parser, exit_code

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
    name, *words = arguments or ["--help"]

    def command() -> int:
        if name in OTHERS:
            return int(import_module(f"runners.{name}").main(words))
        if not name.startswith("-") and name not in commands.names:
            raise ValueError(f"unknown command {name!r}; there are {', '.join((*commands.names, *OTHERS))}")
        asked = parser.parse_args([name, *words])
        code: int = asked.run(asked)
        return code

    return exit_code(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
