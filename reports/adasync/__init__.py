"""The artefacts and claims of the AdaSync paper (Dutta et al. 2021)."""

from reports.adasync.claims import CLAIMS
from reports.adasync.convex import show_fig1b, show_fig2
from reports.adasync.epochs import show_fig8
from reports.adasync.learning import show_appendix_e, show_fig9, show_fig10, show_fig11
from reports.adasync.speedups import show_fig6
from reports.adasync.timelines import show_fig4_5
from reports.adasync.variants import show_fig7, show_table_runtime
from reports.exhibits import Paper

PAPER = Paper(
    "adasync",
    {
        "table_runtime": show_table_runtime,
        "fig1b": show_fig1b,
        "fig2": show_fig2,
        "fig4_5": show_fig4_5,
        "fig6": show_fig6,
        "fig7": show_fig7,
        "fig8": show_fig8,
        "fig9": show_fig9,
        "fig10": show_fig10,
        "fig11": show_fig11,
        "appendix_e": show_appendix_e,
    },
    CLAIMS,
)
