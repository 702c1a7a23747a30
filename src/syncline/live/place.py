"""Where the coordinator of a run is."""

import socket
from dataclasses import dataclass

from syncline.live.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Place:
    """The first node of a job of torchrun, whose keeper has started this coordinator."""

    ranks: Ranks
    words: list[str]  # of torchrun's command line for the run
    line: socket.socket  # to the evaluator
