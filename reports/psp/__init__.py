"""The artefacts and claims of PSP, "Faster Distributed Synchronous SGD with Weak Synchronization" (ICLR 2018)."""

from reports.claims import claims_of
from reports.exhibits import Paper, shows
from reports.psp import claims
from reports.psp.delays import show_fig2
from reports.psp.learning import fig3, fig4
from reports.psp.table import gradients, table1

PAPER = Paper(
    "psp",
    {"table1": shows(table1, gradients=gradients), "fig2": show_fig2, "fig3": shows(fig3), "fig4": shows(fig4)},
    claims_of("psp", claims),
)
