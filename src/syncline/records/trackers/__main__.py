"""Writes a record to Weights & Biases: python -m syncline.records.trackers <record folder>

Everything comes from the record, so after a resumption, a return to a checkpoint or a repetition the service has each
point once, under the same name. With --follow <folder> <final folder>, the process follows a record in progress: it
reads it for each byte at standard input, until that is closed. A service that cannot show a run in progress (wandb
offline) gets everything at the end.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from syncline.records.store import FINISHED, RecordError, read_config, read_metrics, read_summary, status
from syncline.records.trackers.wandb import Wandb


def mirror(service: Wandb, folder: Path, place: Path, ticks: Iterable[object]) -> None:
    """Write a record to a service: what is new at each tick, and the result after the last.

    Args:
        folder: of the record.
        place: where the record moves when it is finished; may be equal to `folder`.
        ticks: one for each time at which to read the record.
    """
    sent: list[dict[str, Any]] | None = None
    for _ in ticks:
        folder = folder if folder.exists() else place
        rows = read_metrics(folder)
        if sent is None or rows[: len(sent)] != sent:  # the run was set back to a checkpoint
            service.begin(folder)
            sent = []
        for row in rows[len(sent) :]:
            service.log_evaluation(row)
        sent = rows
    if sent is None:
        return
    is_finished = status(folder) == FINISHED
    if is_finished:
        service.log_result(folder, read_summary(folder))
    service.end(is_finished)


def ticks_of_stdin(folder: Path, place: Path, is_live: bool, wait_s: float) -> Iterator[None]:
    """A tick for each read from standard input, and one when it is closed."""
    while is_live and os.read(0, 1 << 16):
        yield
    while os.read(0, 1 << 16):
        pass
    signal.alarm(int(wait_s) + 1)  # in case the run is gone and cannot end this process
    if is_live or status(folder if folder.exists() else place) == FINISHED:
        yield


def main(arguments: list[str]) -> int:
    follows, folders = arguments[:1] == ["--follow"], [Path(word) for word in arguments if word != "--follow"]
    run = os.getppid()
    try:
        if len(folders) != 1 + follows:
            raise RecordError("give the folder of one record")
        folder, place = folders[0], folders[-1]
        options = read_config(folder)["tracker"]
        if options["name"] != "wandb":
            raise RecordError(f"{folder} was made with tracker={options['name']}; needed: wandb")
        service = Wandb(options)
        ticks = ticks_of_stdin(folder, place, service.is_live, options["wait_s"]) if follows else iter([None])
        mirror(service, folder, place, ticks)
    except Exception as error:  # whatever the service raises
        message = str(error).strip().partition("\n")[0]
        print(f"error: {type(error).__name__}: {message}", file=sys.stderr)
        return 1
    if follows and os.getppid() != run:  # nobody is left who would end the processes that the service has started
        os.killpg(0, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
