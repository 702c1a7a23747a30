"""The table of a language model in two regions."""

import math

import numpy as np
from synthetic import study

from reports.language import show_language
from reports.tables import Table


def test_bsp_is_timed_to_the_loss_at_which_each_method_ends() -> None:
    artefact = study("overview/language", np.random.default_rng(0))
    table, runs = show_language(artefact)[""], artefact.rows()
    assert isinstance(table, Table)
    for label, (method, loss, hours, of_bsp, _) in zip(runs, table.rows, strict=True):
        assert method == label
        assert hours.n == 5
        level = math.fsum(run.metrics[-1]["loss"] for run in runs[label]) / 5
        assert loss.mean == level
        expected = [
            next((row["time_s"] / 3600 for row in run.metrics[1:] if row["loss"] <= level), None) for run in runs["bsp"]
        ]
        assert list(of_bsp.values) == expected
    assert table.rows[0][3].n < 5, "some seeds end above the mean"
