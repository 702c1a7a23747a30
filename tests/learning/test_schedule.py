import pytest

from syncline.learning.schedule import EpochClock, StepSchedule


@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.05), (199.99, 0.05), (200, 0.005), (249, 0.005), (250, 0.0005)])
def test_the_rate_drops_when_an_epoch_is_over(epoch, rate):
    """dssp.txt, V-B: rate 0.05, decay 0.1 twice, at epoch 200 and 250."""
    assert StepSchedule(0.05, 0.1, (200, 250)).rate(epoch) == pytest.approx(rate)


def test_by_samples_the_epoch_does_not_depend_on_the_strategy():
    clock = EpochClock("samples", num_samples=50_000, num_workers=4, batch_size=128)
    assert clock.epoch(samples=25_000, updates=1) == clock.epoch(samples=25_000, updates=999) == 0.5


def test_by_server_updates_asynchronous_workers_drop_the_rate_p_times_too_early():
    """Four workers: the drop meant for epoch 200 comes at epoch 50, that for 250 at 62."""
    clock = EpochClock("server_updates", num_samples=50_000, num_workers=4, batch_size=125)
    asynchronous = {epoch: clock.epoch(samples=0, updates=epoch * 400) for epoch in (50, 62.5)}  # 400 single gradients
    assert asynchronous == {50: 200, 62.5: 250}
    assert clock.epoch(samples=0, updates=200 * 100) == 200, "BSP: 100 updates an epoch"
