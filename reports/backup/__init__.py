"""The artefacts and claims of "Revisiting Distributed Synchronous SGD" (Chen et al. 2016; backup workers)."""

from reports.backup.claims import CLAIMS
from reports.backup.curves import show_fig3
from reports.backup.learning import show_fig1, show_table1
from reports.backup.rates import show_charlm, show_draw
from reports.backup.times import show_fig2
from reports.exhibits import Paper

__all__ = ["PAPER"]

PAPER = Paper(
    "backup",
    {
        "table1": show_table1,
        "fig1": show_fig1,
        "fig2": show_fig2,
        "fig3": show_fig3,
        "charlm": show_charlm,
        "draw": show_draw,
    },
    CLAIMS,
)
