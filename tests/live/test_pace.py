"""When parts of a gradient leave, on a clock of its own."""

import pytest

from syncline.live.pace import Pace
from syncline.timing.cluster import ClusterConfig, DelayInjector, ScenarioConfig

ON_CLUSTER_S = 0.25
SHARES = (0.5, 0.75, 1.0)  # of a gradient's time after which its parts are ready


class Machine:
    """Computes gradients, whose parts it hands to a pace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, absolute: bool) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        scenario = ScenarioConfig(slow={0: 3.0})
        delays = DelayInjector(ClusterConfig(workers=1, gradient_s=[ON_CLUSTER_S]), scenario, 0, 0, absolute, 0)
        self._pace = Pace(delays, self._pass)

    def _pass(self, seconds: float) -> float:
        self.now += seconds
        return seconds

    def left_after(self, own_s: float, shares: tuple[float, ...] = SHARES) -> list[float]:
        """Seconds from the beginning of a gradient to when each part left, and to its end."""
        begun, left = self.now, list[float]()
        self._pace.begin()
        for share, before in zip(shares, (0.0, *shares), strict=False):
            self._pass((share - before) * own_s)
            self._pace.part_is_ready()
            left.append(self.now - begun)
        self._pace.end()
        return [*left, self.now - begun]


@pytest.mark.parametrize("own_s", [0.01, 0.05, 0.2])
def test_parts_leave_after_their_shares_of_the_clusters_time_however_long_the_gradients_before_took(
    own_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, absolute=True)
    machine.left_after(0.03)
    wanted = 3 * ON_CLUSTER_S
    assert machine.left_after(own_s) == pytest.approx([*(share * wanted for share in SHARES), wanted])


def test_parts_of_a_worker_that_is_slowed_down_by_a_factor_leave_after_so_many_times_their_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, absolute=False)
    machine.left_after(0.03)
    assert machine.left_after(0.05) == pytest.approx([*(3 * 0.05 * share for share in SHARES), 3 * 0.05])


def test_a_gradient_slower_than_on_the_cluster_is_not_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, absolute=True)
    for own_s in (0.03, 2.0):
        left = machine.left_after(own_s)
    assert left == pytest.approx([*(2.0 * share for share in SHARES), 2.0])


def test_the_shares_are_the_means_of_all_gradients_before(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, wanted = Machine(monkeypatch, absolute=True), 3 * ON_CLUSTER_S
    for first in (0.2, 0.3, 0.7):
        machine.left_after(0.03, (first, 0.8, 1.0))
    assert machine.left_after(0.03)[:2] == pytest.approx([0.4 * wanted, 0.8 * wanted])
