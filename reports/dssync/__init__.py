"""The artefacts and claims of "Divide-and-Shuffle Synchronization for Distributed Machine Learning" (DS-Sync)."""

from reports.dssync.accuracy import show_table2, show_table3, show_table5
from reports.dssync.claims import CLAIMS
from reports.dssync.cost import show_table1
from reports.dssync.curves import show_fig2, show_fig5
from reports.dssync.iterations import show_fig3, show_fig4
from reports.dssync.wall import show_table4
from reports.exhibits import Paper

PAPER = Paper(
    "dssync",
    {
        "table1": show_table1,
        "table2": show_table2,
        "table3": show_table3,
        "table4": show_table4,
        "table5": show_table5,
        "fig2": show_fig2,
        "fig3": show_fig3,
        "fig4": show_fig4,
        "fig5": show_fig5,
    },
    CLAIMS,
)
