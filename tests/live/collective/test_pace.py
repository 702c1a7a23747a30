"""When parts of a gradient leave, on a clock of its own."""

import pytest

from syncline.live.collective.pace import Pace
from syncline.timing.cluster import ClusterConfig, DelayInjector, ScenarioConfig

ON_CLUSTER_S = 3 * 0.25
PARTS = (0.25, 0.5, 1.0)  # of the elements, from the end, are ready
OWN = (0.6, 0.8, 1.0)  # when, of the seconds that a gradient takes on this machine
READY = [0.2, 0.3, 0.4, 0.7, 1.0]  # when a quarter, a half, ... are, of those on the cluster


class Machine:
    """Computes gradients, whose parts it hands to a pace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, absolute: bool) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        cluster, scenario = ClusterConfig(workers=1, gradient_s=[0.25], ready=READY), ScenarioConfig(slow={0: 3.0})
        self._pace = Pace(DelayInjector(cluster, scenario, 0, 0, absolute, 0), self._pass)

    def _pass(self, seconds: float) -> float:
        self.now += seconds
        return seconds

    def left_after(self, own_s: float) -> list[float]:
        """Seconds from the beginning of a gradient to when each part left, and to its end."""
        begun, left = self.now, list[float]()
        self._pace.begin()
        for part, until, before in zip(PARTS, OWN, (0.0, *OWN), strict=False):
            self._pass((until - before) * own_s)
            self._pace.part_is_ready(part)
            left.append(self.now - begun)
        self._pace.part_is_ready(1.0)
        assert self._pace.slowdown_s == pytest.approx(self.now - begun - own_s)
        return [*left, self.now - begun]


def test_parts_leave_after_the_clusters_shares_of_its_time_however_long_the_machine_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, absolute=True)
    for own_s in (0.03, 0.01, 0.2):
        assert machine.left_after(own_s) == pytest.approx([share * ON_CLUSTER_S for share in (0.3, 0.4, 1.0, 1.0)])


def test_a_part_that_this_machine_has_later_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Machine(monkeypatch, absolute=True).left_after(0.9 * ON_CLUSTER_S)
    assert late == pytest.approx([share * ON_CLUSTER_S for share in (0.9 * 0.6, 0.9 * 0.8, 1.0, 1.0)])


def test_parts_of_a_worker_that_is_slowed_down_by_a_factor_leave_after_so_many_times_their_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, absolute=False)
    for own_s in (0.03, 0.01, 2.0):
        assert machine.left_after(own_s) == pytest.approx([3 * own_s * share for share in (*OWN, 1.0)])
