"""Real processes: the keeper of a node, shards, workers, members of a collective, and what they send each other.

This folder may hold: sockets, frames and their checks, processes, threads, clocks, checkpoints of processes.
It may not hold: decisions that a strategy makes, or anything that virtual time needs.
"""
