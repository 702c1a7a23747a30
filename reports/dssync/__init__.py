"""The artefacts and claims of "Divide-and-Shuffle Synchronization for Distributed Machine Learning" (DS-Sync)."""

from functools import partial

from reports.claims import claims_of
from reports.dssync import claims, iterations
from reports.dssync.accuracy import averaging, batches, curves, show_scores
from reports.dssync.cost import table1
from reports.dssync.iterations import seconds, speedups
from reports.dssync.wall import over_targets, table4
from reports.exhibits import Paper, shows

_ITERATIONS = {"speedups": speedups, "seconds": seconds}

PAPER = Paper(
    "dssync",
    {
        "table1": shows(table1),
        "table2": show_scores("bsp", "asp", "ds_sync", batches=batches),
        "table3": show_scores("bsp", "ds_sync", average=averaging),
        "table4": shows(table4, targets=over_targets),
        "table5": show_scores("bsp", "asp", "ssp", "ds_sync"),
        "fig2": shows(partial(curves, table="table2", title="DS-Sync, Figure 2: 4 nodes")),
        "fig3": shows(partial(iterations.figure, title="DS-Sync, Figure 3: 4 nodes"), **_ITERATIONS),
        "fig4": shows(partial(iterations.figure, title="DS-Sync, Figure 4: 16 nodes"), **_ITERATIONS),
        "fig5": shows(partial(curves, table="table5", title="DS-Sync, Figure 5: with SSP, 4 nodes")),
    },
    claims_of("dssync", claims),
)
