"""Where the coordinator of a run is."""

import socket
from dataclasses import dataclass

from syncline.live.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Place:
    """The rank 0 of a job of torchrun, whose keeper has started this coordinator."""

    ranks: Ranks
    words: list[str]  # of the command line of every rank
    line: socket.socket  # to the evaluator
