"""The DSSP paper (Zhao et al. 2019): Figures 3 and 4, Table I, and the claims of its text."""

from reports.claims import claims_of
from reports.dssp import claims
from reports.dssp.equal import fig3, fig3_table, readings_table, times_table
from reports.dssp.mixed import fig4, over_targets, table1
from reports.exhibits import Paper, shows

PAPER = Paper(
    "dssp",
    {
        "fig3": shows(fig3, table=fig3_table, times=times_table, readings=readings_table),
        "fig4": shows(fig4),
        "table1": shows(table1, targets=over_targets),
    },
    claims_of("dssp", claims),
)
