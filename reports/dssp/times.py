"""What Figure 3's cluster says of times, and what the readings of the learning rate, and the rate itself, change."""

from reports.dssp.equal import AVERAGE, READINGS, Network, networks
from reports.records import Artefact, Run, published
from reports.statistics import Sample, paired_difference, paired_ratio
from reports.tables import Column, Table, Value

MICROSECONDS = 1e6


def times_table(artefact: Artefact) -> Table:
    """Seconds of an epoch at the paper's size, and how slow a server would have to be to turn their order round."""
    body: list[list[Value]] = []
    for key, of in networks(artefact).items():
        by_bsp = of.seconds_an_epoch("bsp")
        slow = turning_point(of)
        tensors = artefact.report["tensors"][key]
        body.append(
            [
                published("dssp")["networks"][key],
                by_bsp,
                *(
                    paired_ratio(of.seconds_an_epoch(name).values, by_bsp.values)
                    for name in (AVERAGE, "dssp", "dssp_hard", "asp")
                ),
                of.lead_alone("asp"),
                _scaled(slow, 1e3),
                _scaled(slow, MICROSECONDS / tensors),
            ]
        )
    columns = [
        Column("network"),
        Column("BSP: s an epoch", 2),
        Column("SSPs' average / BSP's", 4),
        Column("DSSP's / BSP's", 4),
        Column("DSSP's, bound=hard / BSP's", 4),
        Column("ASP's / BSP's", 4),
        Column("ASP: largest lead", 1),
        Column("turns round at, ms an update", 2),
        Column("the same, µs a tensor", 0),
    ]
    lines = [
        "Times alone, at the paper's size: its networks, 50,000 images, batches of 128, four P100 servers behind one "
        "parameter server at 100 Gbit/s, 3 % noise. The paper says that AlexNet's 300 epochs take BSP longest, and "
        "those of the ResNets ASP longest (BSP < SSP < DSSP < ASP).",
        "The simulated server makes an update in no time, so that BSP only waits and cannot be the fastest. A server "
        "that works u seconds on an update, one after the other, works P u for P gradients of ASP and u for BSP, which "
        "adds them up first. ASP becomes the slower one at u = (seconds of a BSP step) / (P - 1), which the last "
        "columns show, also for each of the network's tensors (keys of the server).",
        "Where a message holds the server's link longer than the noise of a gradient (AlexNet: 1.5 ms against 0.3 ms) "
        "the workers keep their turns, nobody gets ahead, and ASP, SSP and DSSP make the same run.",
        *artefact.closing_notes,
    ]
    return Table(f"DSSP, Figure 3: times on equal servers, at scale {artefact.scale}", columns, body, lines)


def turning_point(of: Network) -> Sample:
    """Seconds an update of a server that works on one at a time, at which ASP takes as long as BSP."""

    def seconds(seed: int) -> float | None:
        run = of.alone.get("bsp", {}).get(seed)
        if run is None:
            return None
        seconds_a_step: float = run.summary["time_s"] / run.summary["updates"]
        others: int = run.config["cluster"]["workers"] - 1
        return seconds_a_step / others

    return of.sample(seconds)


def readings_table(artefact: Artefact) -> Table:
    """What the stock script's clock does, and what gradients as small as BSP's would do."""
    paper, body = published("dssp"), list[list[Value]]()
    for key, of in networks(artefact).items():
        if not any(name.endswith(READINGS) for name in of.learned):
            continue
        by_bsp = of.seconds_to_goal("bsp")
        for paradigm in ("bsp", "asp", "ssp_s3", "dssp"):
            for reading in ("", *READINGS):
                name = f"{paradigm}/{reading}" if reading else paradigm
                if name not in of.learned:
                    continue
                runs, reached = of.learned[name], of.seconds_to_goal(name)
                config = next(iter(runs.values())).config
                body.append(
                    [
                        f"{paper['networks'][key]}: {paper['names'][paradigm]}",
                        config["optimizer"]["lr"],
                        config["lr_clock"],
                        config["async_gradient"],
                        of.sample(lambda seed, runs=runs: first_drop(runs.get(seed))),  # type: ignore[misc]
                        of.final(name),
                        paired_difference(of.final(name).values, of.final(same_rate(name, of)).values),
                        reached,
                        paired_ratio(reached.values, by_bsp.values),
                    ]
                )
    columns = [
        Column("network, paradigm"),
        Column("rate", 4),
        Column("lr_clock"),
        Column("async_gradient"),
        Column("rate drops after epoch", 2),
        Column("accuracy at the end, %", 1),
        Column("above BSP's at this rate, points", 1),
        Column("s to BSP's best", 1, show_n=True),
        Column("time / BSP's", 2, show_n=True),
    ]
    lines = [
        "The paper's hyper-parameters are the defaults of MXNet's training script of that time. It divides synchronous "
        "gradients by all workers' samples and asynchronous ones by one worker's (async_gradient=mean): four "
        "asynchronous workers take four steps of full length where BSP takes one. mean_over_workers makes the steps of "
        "an epoch add up to BSP's.",
        "It also steps the rate by server updates, while the steps are given in epochs of one worker "
        "(lr_clock=server_updates): asynchronous rates drop four times too early (300 epochs: at 50 and 62.5 instead "
        "of 200 and 250). BSP is the same under all readings.",
        *artefact.closing_notes,
    ]
    return Table(f"DSSP, Figure 3: readings of the rate, at scale {artefact.scale}", columns, body, lines)


def same_rate(paradigm: str, of: Network) -> str:
    """BSP with the rate of this one."""
    _, _, reading = paradigm.partition("/")
    return f"bsp/{reading}" if f"bsp/{reading}" in of.learned else "bsp"


def first_drop(run: Run | None) -> float | None:
    """The epoch of the first evaluation after which updates were made at a lower rate; None if there is none."""
    if run is None:
        return None
    epochs, rates = run.curve("learning_rate", "epoch")
    return next((epoch for epoch, rate in zip(epochs, rates, strict=True) if rate < rates[0]), None)


def _scaled(sample: Sample, factor: float) -> Sample:
    return Sample(tuple(None if value is None else factor * value for value in sample.values))
