"""Virtual time: what happens when, computed without waiting for it.

This folder may hold: the loop and its events, workers, the network, executors, collectives, replay of real runs.
It may not hold: sockets, wall time that decides anything, files (the record is written by whoever calls it).
"""
