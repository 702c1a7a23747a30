"""What the DSSP paper claims, as numbers of ours; docs/findings/declared.md lists them."""

from collections.abc import Callable

from reports.claims import LEARNED, TIMED, claim
from reports.dssp import mixed
from reports.dssp.runs import AVERAGE, Network, learning, networks
from reports.effects import Effect, Region, above, at_least, at_most, of_difference, of_ratio
from reports.measures import PERCENT, best, in_summary
from reports.records import Artefact, published
from reports.statistics import Sample, average

HALF_THE_GAIN = 0.5  # of a printed gain must be found at least
WITHIN_1_PERCENT = Region(0.99, 1.01)  # Table I: 1.008 of ASP's time
AS_SOON = at_most(1.1)  # of the time to a target, which is as coarse as evaluations are spaced
SAME_SPEED = Region(0.9, 1.1)
MUCH_FASTER = 2 / 3  # of BSP's time at most: the text gives no number
SLOWER = 0.9  # of BSP's time at most
# Points. "Higher", "lower": half of what Table I distinguishes, 0.67 from 0.68. "Very low": a whole one. "Similar, ...
# a bit higher": a whole one either way. "No significant difference": two, as three runs of the paper can hardly show
# less (its own Figure 3 is the middle one of three).
A_DIFFERENCE = 0.5
VERY_LOW = -1.0
SIMILAR = Region(-1.0, 1.0)
NO_DIFFERENCE = Region(-2.0, 2.0)
SAME_TIME = Region(0.95, 1.05)  # of an epoch
RESNETS = ("resnet50", "resnet110")
DSSP = "dssp_s3_r12"
SSPS = ("ssp_s3", "ssp_s6", "ssp_s15")
OTHERS = ("dssp", AVERAGE, "asp")
NAMES = {"bsp": "BSP", "asp": "ASP", "dssp": "DSSP", AVERAGE: "average SSP"}

MIXED = (
    "A small ResNet learns in few epochs, and whether DSSP can be faster than SSP at all depends on the reading of its "
    "upper bound."
)
FULL_LAYERS = (
    "A smaller network with full layers learns for few epochs, at a rate chosen for BSP, and few of the thirteen SSPs "
    "are averaged."
)
SERVER = "The simulated server takes no time for an update, and the paper gives no seconds of a gradient."
SMALL = "Small ResNets learn in few epochs, and more noise of the times makes up for the shorter run."
ALEXNETS = ("alexnet/*",)
TABLE_1 = ("bsp", "asp", DSSP, *SSPS)


# The mixed cluster.


@claim("dssp/table1", basis=LEARNED, may_differ=MIXED, rows=TABLE_1)
def hetero_time(artefact: Artefact) -> list[Effect]:
    """ "Figure 4 and Table I show that DSSP can reach a higher accuracy significantly faster than SSP" (section V-D);
    "DSSP gives significant improvement than SSP and BSP in a heterogeneous environment ..., converging much faster to a
    higher accuracy" (section VI); ASP "can fully utilize the individual GPU".

    At least half of Table I's gain in seconds to 0.67 over BSP and each SSP, in restricted mean times to a target that
    is fixed beforehand, and in times of 200 epochs alone at the paper's size, after which its targets are reached.
    """
    names, printed = published("dssp")["names"], published("dssp")["table1"]["rows"]
    others, learned = ("bsp", *SSPS), ("bsp", *_ssps(artefact))
    seconds = mixed.restricted_times(artefact, DSSP, "asp", *learned)
    alone = mixed.alone(artefact)

    def effect(
        what: str, label: str, of: tuple[Sample, Sample], region: Region | None = None, ours: str = ""
    ) -> Effect:
        theirs = printed[DSSP]["low"] / printed[label]["low"]
        if region is None:
            region, ours = at_most(1.0 - HALF_THE_GAIN * (1.0 - theirs)), "half of Table I's gain"
        return of_ratio(f"{what}, DSSP / {names[label]}", *of, region, theirs, 3, ours)

    return [
        *(effect("time to the target", label, seconds.pair(DSSP, label)) for label in learned),
        effect("time to the target", "asp", seconds.pair(DSSP, "asp"), AS_SOON, "a tenth more"),
        *(effect("time of 200 epochs alone", label, (alone[DSSP], alone[label])) for label in others),
        effect("time of 200 epochs alone", "asp", (alone[DSSP], alone["asp"]), WITHIN_1_PERCENT, "1 %"),
    ]


@claim("dssp/table1", basis=LEARNED, may_differ=MIXED, rows=TABLE_1)
def hetero_accuracy(artefact: Artefact) -> list[Effect]:
    """ "On the heterogeneous environment ..., DSSP converges faster and to a higher accuracy than SSP" (section V-D).

    Against the SSPs' average, as section V-B compares; and against BSP, which never reaches 0.68 in Table I where DSSP
    does. Who reaches 0.68 there is one run of three each (SSP with s = 6 and 15 do, s = 3 does not): no claim of the
    text.
    """
    rows = {
        label: artefact.sample(runs, best("accuracy", PERCENT))
        for label, runs in artefact.by("paradigm", timed=False).items()
    }
    ssps = average([rows[label] for label in _ssps(artefact)])
    what = "best accuracy, DSSP - {}, points"
    return [
        of_difference(what.format(name), rows[DSSP], other, at_least(A_DIFFERENCE), ours="half a point")
        for name, other in (("average SSP", ssps), ("BSP", rows["bsp"]))
    ]


@claim(
    "dssp/table1",
    basis=LEARNED,
    may_differ=MIXED,
    rows=("bsp", "asp", DSSP),
    contradiction="Table I: DSSP takes ASP's 3,016 s; with two unequal workers a lead of at most s_U = 15 takes SSP's "
    "5,565 s or more.",
)
def bounded(artefact: Artefact) -> list[Effect]:
    """ "Unlike ASP, DSSP ensures the convergence of DNNs by limiting the stalled delays" (section VI): to s_U, as
    Theorem 2 assumes.

    A push more than s_U = s_L + r_max, as SSP's own lead is counted.
    """
    runs = artefact.by("paradigm", timed=False)[DSSP]
    return [Effect("largest lead of DSSP, pushes", artefact.sample(runs, in_summary("max_lead")), at_most(16.0))]


def _ssps(artefact: Artefact) -> list[str]:
    """Table I's SSPs that learn at this scale. LookupError if there is none."""
    found = [label for label in SSPS if label in artefact.by("paradigm", timed=False)]
    if not found:
        raise LookupError(", ".join(SSPS))
    return found


# The equal servers.


@claim("dssp/fig3", basis=LEARNED, may_differ=FULL_LAYERS, rows=ALEXNETS)
def fc_fast(artefact: Artefact) -> list[Effect]:
    """ "Figure 3a shows that DSSP, SSP and ASP converge much faster than BSP" (section V-B).

    To a target that BSP reaches early enough: it is fixed beforehand, below BSP's best, as "given abundant time of
    training, BSP can reach the highest accuracy among all distributed paradigms" (V-B.1).
    """
    of = networks(artefact)["alexnet"]
    seconds = of.restricted_seconds(*OTHERS)
    much_faster = at_most(MUCH_FASTER)
    return [_time(of, NAMES[name], *seconds.pair(name, "bsp"), much_faster, "two thirds") for name in OTHERS]


@claim("dssp/fig3", basis=LEARNED, may_differ=FULL_LAYERS, rows=ALEXNETS)
def fc_asp_floor(artefact: Artefact) -> list[Effect]:
    """ "[ASP] usually converges to a very low accuracy (the lowest of four paradigms)" (section V-B.1)."""
    of = networks(artefact)["alexnet"]
    what = "{}: accuracy at the end, ASP - {}, points"
    return [
        of_difference(
            what.format(of.name, NAMES[name]), of.final("asp"), of.final(name), at_most(VERY_LOW), ours="a point"
        )
        for name in ("bsp", AVERAGE, "dssp")
    ]


@claim(
    "dssp/fig3",
    basis=LEARNED,
    may_differ=FULL_LAYERS,
    rows=ALEXNETS,
    contradiction='section V-B.1: "DSSP performs between SSP and BSP in terms of final test accuracy", and "BSP can '
    'reach the highest accuracy among all distributed paradigms".',
)
def fc_higher(artefact: Artefact) -> list[Effect]:
    """ "DSSP converges to a higher test accuracy faster than ASP, BSP and average SSPs" (section V-B.1)."""
    of = networks(artefact)["alexnet"]
    what, higher = f"{of.name}: accuracy at the end, DSSP - {{}}, points", at_least(A_DIFFERENCE)
    others = ("asp", "bsp", AVERAGE)
    return [
        of_difference(what.format(NAMES[name]), of.final("dssp"), of.final(name), higher, ours="half a point")
        for name in others
    ]


@claim("dssp/fig3", basis=LEARNED, may_differ=FULL_LAYERS, rows=ALEXNETS)
def fc_dssp_ge_ssp(artefact: Artefact) -> list[Effect]:
    """ "The performance of DSSP and averaged SSP are similar, with DSSP converging a little bit faster to a bit higher
    accuracy" (section V-B).

    "Similar" is what can be tested: an equivalence. "A little bit" is less than its margins.
    """
    of = networks(artefact)["alexnet"]
    seconds = of.restricted_seconds("dssp", AVERAGE)
    what = f"{of.name}: time to the target, DSSP / average SSP"
    return [
        of_ratio(what, *seconds.pair("dssp", AVERAGE), SAME_SPEED, ours="a tenth either way"),
        _equal(of, of.final, "at the end", SIMILAR, "a point either way"),
    ]


@claim(
    "dssp/fig3",
    basis=TIMED,
    may_differ=SERVER,
    silent="the simulated server takes no time for an update, so that BSP can only wait: it cannot be the fastest "
    "here, whatever a real server costs (docs/findings/dssp.md)",
)
def conv_bsp_throughput(artefact: Artefact) -> list[Effect]:
    """ "The order from fastest to slowest is BSP, SSP, DSSP and ASP", of both ResNets' 300 epochs (section V-B)."""
    order = (("bsp", AVERAGE), (AVERAGE, "dssp"), ("dssp", "asp"))
    return [
        of_ratio(*_epochs(of, slower, faster), above(1.0), digits=4)
        for of in map(networks(artefact).__getitem__, RESNETS)
        for faster, slower in order
    ]


@claim("dssp/fig3", basis=LEARNED, may_differ=SMALL, rows=("resnet*",))
def conv_bsp_floor(artefact: Artefact) -> list[Effect]:
    """ "[BSP] converges slower and to a lower accuracy than other three paradigms mostly" (section V-B.2).

    "Mostly" is read as: than the three on average, of each network that learns at this scale.
    """
    effects = []
    for of in (of for of in learning(artefact) if of.key in RESNETS and of.learned):
        seconds = of.restricted_seconds(*OTHERS)
        bsp, *others = seconds.of("bsp", *OTHERS)
        effects.append(_time(of, "average of the three", average(others), bsp, at_most(SLOWER), "a tenth less"))
        ends = average([of.final(name) for name in OTHERS])
        what = f"{of.name}: accuracy at the end, average of the three - BSP, points"
        effects.append(of_difference(what, ends, of.final("bsp"), at_least(A_DIFFERENCE), ours="half a point"))
    return effects


@claim("dssp/fig3", basis=LEARNED, may_differ=SMALL, rows=("resnet110/*",))
def homogeneous_small(artefact: Artefact) -> list[Effect]:
    """ "The results of DSSP and SSPs on ResNet-110 ... do not show a significant difference on convergence rate on a
    homogeneous environment where GPUs are identical" (section V-D).

    An equivalence: a wide interval decides nothing. The rate of convergence is the accuracy's mean over the epochs,
    where it ends, and the time of an epoch.
    """
    of = networks(artefact)["resnet110"]
    if not of.learned:
        raise LookupError("no run of ResNet-110 learns")
    return [
        _equal(of, of.mean_accuracy, "over the run", NO_DIFFERENCE, "two points either way"),
        _equal(of, of.final, "at the end", NO_DIFFERENCE, "two points either way"),
        of_ratio(*_epochs(of, "dssp", AVERAGE), SAME_TIME, digits=4, ours="a twentieth either way"),
    ]


def _time(of: Network, name: str, seconds: Sample, bsp: Sample, region: Region, ours: str) -> Effect:
    return of_ratio(f"{of.name}: time to the target, {name} / BSP", seconds, bsp, region, ours=ours)


def _equal(of: Network, accuracy: Callable[[str], Sample], when: str, region: Region, ours: str) -> Effect:
    what = f"{of.name}: accuracy {when}, DSSP - average SSP, points"
    return of_difference(what, accuracy("dssp"), accuracy(AVERAGE), region, ours=ours)


def _epochs(of: Network, name: str, other: str) -> tuple[str, Sample, Sample]:
    what = f"{of.name}: time of an epoch alone, {NAMES[name]} / {NAMES[other]}"
    return what, of.seconds_an_epoch(name), of.seconds_an_epoch(other)


CLAIMS = (
    hetero_time,
    hetero_accuracy,
    bounded,
    fc_fast,
    fc_asp_floor,
    fc_higher,
    fc_dssp_ge_ssp,
    conv_bsp_throughput,
    conv_bsp_floor,
    homogeneous_small,
)
