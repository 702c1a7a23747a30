"""The artefacts and claims of the AdaSync paper (Dutta et al. 2021)."""

from functools import partial

from reports.adasync import claims
from reports.adasync.convex import fig1b, fig2, fig2_table
from reports.adasync.learning import appendix_e, error_table, fig8, fig8_table, fig9_to_11, over_targets
from reports.adasync.runtimes import fig6, fig6_table, fig7, runtime_table
from reports.claims import claims_of
from reports.exhibits import Exhibit, Paper, Picture, shows
from reports.records import Artefact, published


def show_fig4_5(artefact: Artefact) -> Exhibit:
    """The timelines of the four variants, a picture each; the first one has the artefact's own name."""
    paper = published("adasync")
    pictures: dict[str, Picture] = {}
    for label, (run, *_) in artefact.rows().items():
        title = f"{paper['names'][label]}: {run.num_workers} workers, K = {run.config['strategy']['k']}"
        pictures[label if pictures else ""] = Picture(title, run, notes=[paper["pictures"][label]])
    return pictures


PAPER = Paper(
    "adasync",
    {
        "table_runtime": shows(partial(runtime_table, title="AdaSync, run times of the variants")),
        "fig1b": shows(fig1b),
        "fig2": shows(fig2, table=fig2_table),
        "fig4_5": show_fig4_5,
        "fig6": shows(fig6, table=fig6_table),
        "fig7": shows(fig7, table=partial(runtime_table, title="AdaSync, Figure 7")),
        "fig8": shows(fig8, table=fig8_table),
        "fig9": shows(fig9_to_11, table=error_table),
        "fig10": shows(fig9_to_11, table=error_table),
        "fig11": shows(fig9_to_11, table=error_table, targets=over_targets),
        "appendix_e": shows(appendix_e),
    },
    claims_of(
        "adasync",
        claims,
        adasync_fastest=claims.fine_tuned_and_fixed,
        adasync_floor=partial(claims.fine_tuned_and_fixed, variants=["k_async"]),
    ),
)
