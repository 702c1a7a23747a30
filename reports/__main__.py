"""python -m reports <paper>/<artefact> [--scale SCALE] [--results FOLDER]: a table or figure from stored records."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from reports import adasync, dssp, dssync, psp
from reports.records import Artefact, load_artefact

Show = Callable[[Artefact, Path, Console], list[Path]]

ARTEFACTS: dict[str, Show] = {
    "adasync/fig6": adasync.show_fig6,
    "adasync/fig7": adasync.show_fig7,
    "dssp/fig4": dssp.show_fig4,
    "dssp/table1": dssp.show_table1,
    "dssync/table1": dssync.show_table1,
    "psp/table1": psp.show_table1,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    parser.add_argument("artefact", choices=ARTEFACTS, metavar="artefact", help=", ".join(ARTEFACTS))
    parser.add_argument("--scale", default="laptop", help="as it was run: smoke, laptop, gpu, paper, timing")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the records")
    asked = parser.parse_args(arguments)
    try:
        artefact = load_artefact(asked.artefact, asked.scale, asked.results)
        files = ARTEFACTS[asked.artefact](artefact, asked.results / "reports", Console())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("written:", *files)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
