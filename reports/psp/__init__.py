"""The artefacts and claims of PSP, "Faster Distributed Synchronous SGD with Weak Synchronization" (ICLR 2018)."""

from reports.exhibits import Paper
from reports.psp.claims import CLAIMS
from reports.psp.delays import show_fig2
from reports.psp.learning import show_fig3, show_fig4
from reports.psp.table import show_table1

SHOWS = {"table1": show_table1, "fig2": show_fig2, "fig3": show_fig3, "fig4": show_fig4}
PAPER = Paper("psp", SHOWS, CLAIMS)
