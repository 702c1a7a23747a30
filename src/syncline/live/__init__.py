"""Real processes: the keeper of a node, shards, workers, members of a collective, and what they send each other.

This folder may hold: sockets, frames and their checks, processes, threads, clocks, checkpoints of processes.
It may not hold: decisions that a strategy makes, or anything that virtual time needs.

    shard | worker | collective   a folder each: what one process of this role does
    checkpoints.py                what they leave on disk
    node                          who starts them, what they are told, and their line to the coordinator
    wire                          sockets, frames, clocks, messages

From the top down each may import those below; `make check` holds it.
"""
