"""How long things take: distributions, networks, clusters, scenarios; closed forms, and fits of measured times.

This folder may hold: keyed random streams, recurrences, formulas with their sources.
It may not hold: tensors of torch, events, or wall time.
"""
