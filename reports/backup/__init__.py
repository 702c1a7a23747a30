"""The artefacts and claims of "Revisiting Distributed Synchronous SGD" (Chen et al. 2016; backup workers)."""

from reports.backup import claims
from reports.backup.learning import fig1, fig1_table, fig3, fig3_table, over_targets, table1
from reports.backup.rates import charlm, charlm_table, draw, draw_table
from reports.backup.times import fig2, fig2_table
from reports.claims import claims_of
from reports.exhibits import Paper, shows

PAPER = Paper(
    "backup",
    {
        "table1": shows(table1),
        "fig1": shows(fig1, table=fig1_table),
        "fig2": shows(fig2, table=fig2_table),
        "fig3": shows(fig3, table=fig3_table, targets=over_targets),
        "charlm": shows(charlm, table=charlm_table),
        "draw": shows(draw, table=draw_table),
    },
    claims_of("backup", claims),
)
