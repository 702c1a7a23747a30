"""The table of a language model in two regions."""

import math

import numpy as np
import pytest
from synthetic import study

from reports.language import show_language
from reports.measures import final
from reports.tables import Table


def test_a_method_is_timed_to_the_loss_at_which_bsp_ends() -> None:
    artefact = study("overview/language", np.random.default_rng(0))
    table = show_language(artefact)[""]
    assert isinstance(table, Table)
    bsp = artefact.rows()["bsp"]
    level = math.fsum(final("loss")(run) or math.nan for run in bsp) / len(bsp)
    assert table.columns[3].title == f"hours to a loss of {level:.3f}"
    for label, (method, loss, hours, to_level, _) in zip(artefact.rows(), table.rows, strict=True):
        assert method == label
        assert loss.mean == pytest.approx(math.fsum(run.metrics[-1]["loss"] for run in artefact.rows()[label]) / 5)
        reached = [min(run.metrics, key=lambda row: row["loss"]) for run in artefact.rows()[label]]
        assert to_level.n == sum(row["loss"] <= level for row in reached)
        assert all(at is None or at <= end for at, end in zip(to_level.values, hours.values, strict=True))
