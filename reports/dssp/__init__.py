"""The DSSP paper (Zhao et al. 2019): Figures 3 and 4, Table I, and what its text claims."""

from reports.dssp.claims import CLAIMS
from reports.dssp.learning import show_fig3
from reports.dssp.mixed import show_fig4, show_table1
from reports.exhibits import Paper

PAPER = Paper("dssp", {"fig3": show_fig3, "fig4": show_fig4, "table1": show_table1}, CLAIMS)
