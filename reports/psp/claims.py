"""The paper's claims as regions. Each tolerance is taken from the claim's own words, not from the results."""

from collections.abc import Sequence

from reports.claims import FITTED, LEARNED, claim
from reports.effects import Effect, of_difference, of_ratio
from reports.psp.runs import DELAYED, IN_TIME, SETTINGS, errors_of, minutes_of, name_of
from reports.records import Artefact, published
from reports.statistics import Sample

ABOUT = 0.05  # "about 17 %", "about 30 %", "nearly 30 %": within five points
SAME_TIME = 0.05  # "the same time": within 5 %
SAME_ERROR = 1.5  # points: the tolerance in push28_pull90_error
TWICE = (1.5, 2.5)  # "about twice"

TABLE = "psp/table1"
CLUSTER = "The paper gives no time of a step, so the cluster's seconds a gradient, noise and messages are assumed."
SCALE = (
    "A smaller network learns from fewer images in fewer updates, so gradients are noisier and errors lower or higher."
)


def push28_time(artefact: Artefact) -> Sequence[Effect]:
    return [_saved(artefact, "push28")]


def push28_pull90_time(artefact: Artefact) -> Sequence[Effect]:
    late = minutes_of(artefact, f"{DELAYED}/push28_pull90")
    own, sync = (minutes_of(artefact, f"{IN_TIME}/{setting}") for setting in ("push28_pull90", "sync"))
    return [
        _saved(artefact, "push28_pull90"),
        _same_time("time with delays / its own without, c=28 b=90 %", late, own),
        _same_time("time with delays, c=28 b=90 % / Sync's without", late, sync),
    ]


def push28_pull90_error(artefact: Artefact) -> Sequence[Effect]:
    errors, theirs = _errors(artefact, DELAYED)
    what = "error of c=28 b=90 % - Sync's, points, with delays"
    return [of_difference(what, *errors, -SAME_ERROR, SAME_ERROR, published=theirs)]


def too_small(artefact: Artefact) -> Sequence[Effect]:
    small, sync = (errors_of(artefact, f"{DELAYED}/{setting}") for setting in ("push20_pull75", "sync"))
    theirs = _printed("push20_pull75", "error") / _printed("sync", "error")
    return [of_ratio("error of c=20 b=75 % / Sync's, with delays", small, sync, *TWICE, published=theirs)]


def normal_scenario(artefact: Artefact) -> Sequence[Effect]:
    sync = minutes_of(artefact, f"{IN_TIME}/sync")
    own = {setting: minutes_of(artefact, f"{IN_TIME}/{setting}") for setting in SETTINGS[1:]}
    what = "time of {} / Sync's, no delays"
    times = [_same_time(what.format(name_of(setting)), minutes, sync) for setting, minutes in own.items()]
    errors, _ = _errors(artefact, IN_TIME)
    return [*times, of_difference("error of c=28 b=90 % - Sync's, points, no delays", *errors, at_most=SAME_ERROR)]


def sync_prolonged(artefact: Artefact) -> Sequence[Effect]:
    late, in_time = (minutes_of(artefact, f"{scenario}/sync") for scenario in (DELAYED, IN_TIME))
    theirs = 1.0 + published("psp")["prolonged_by"]
    return [
        of_ratio("Sync's time with delays / without", late, in_time, theirs - ABOUT, theirs + ABOUT, theirs, digits=3)
    ]


def _saved(artefact: Artefact, setting: str) -> Effect:
    """The time under delays as a share of Sync's, beside the published one."""
    times, sync = (minutes_of(artefact, f"{DELAYED}/{own}") for own in (setting, "sync"))
    claimed = {"push28": 0.83, "push28_pull90": 0.70}[setting]  # "about 17 %", "about 30 %" less
    theirs = _printed(setting, "minutes") / _printed("sync", "minutes")
    what = f"time of {name_of(setting)} / Sync's, with delays"
    return of_ratio(what, times, sync, claimed - ABOUT, claimed + ABOUT, theirs, digits=3)


def _same_time(what: str, times: Sample, others: Sample) -> Effect:
    return of_ratio(what, times, others, 1 - SAME_TIME, 1 + SAME_TIME, digits=3)


def _errors(artefact: Artefact, scenario: str) -> tuple[tuple[Sample, Sample], float]:
    """Errors of c=28 b=90 % and of Sync, points; and the paper's difference, which is with delays."""
    partial, sync = (errors_of(artefact, f"{scenario}/{setting}") for setting in ("push28_pull90", "sync"))
    theirs = 100.0 * (_printed("push28_pull90", "error") - _printed("sync", "error"))
    return (partial, sync), theirs


def _printed(setting: str, key: str) -> float:
    """Table 1: `minutes`, or `error` (top-1)."""
    return float(published("psp")["table1"]["rows"][setting][key])


SYNC = ("*/sync",)

CLAIMS = (
    claim(push28_time, CLUSTER, TABLE, basis=FITTED),
    claim(push28_pull90_time, CLUSTER, TABLE, basis=FITTED),
    claim(push28_pull90_error, SCALE, TABLE, basis=LEARNED, baseline=SYNC),
    claim(too_small, SCALE, TABLE, basis=LEARNED, baseline=SYNC),
    claim(normal_scenario, f"{CLUSTER} {SCALE}", TABLE, basis=LEARNED, baseline=SYNC),
    claim(sync_prolonged, CLUSTER, TABLE, basis=FITTED),
)
