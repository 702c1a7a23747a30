"""The command that measures a cluster: in virtual time the cluster is known, and must be found again."""

import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from commands import made

from benchmarks.hosts import update_seconds_here
from runners import calibrate, measuring
from runners.commands import main
from runners.failures import RunFailed
from runners.stop import INTERRUPTED
from syncline.config import compose
from syncline.timing.calibration import LEAST
from syncline.timing.cluster import ClusterConfig
from syncline.timing.distributions import Trace
from syncline.timing.network import NetworkConfig

ROOT = Path(__file__).parents[2]
DOCUMENTED = [
    line for line in (ROOT / "docs/calibration.md").read_text().splitlines() if line.startswith("syncline calibrate")
]
VIRTUAL = ["runner=simulate", "model=softmax_regression", "cluster.workers=3", "cluster.gradient_s=[0.03,0.04,0.06]"]
STRAGGLING = "scenario.compute_delay={name: two_state, low: 0.0, high: 0.04, every: 24.0, lasting: 8.0}"


def profile_in(folder: Path) -> ClusterConfig:
    """The profile lab, as a run will read it."""
    plain = yaml.safe_load((folder / "cluster" / "lab.yaml").read_text())
    return ClusterConfig(**{**plain, "network": NetworkConfig(**plain["network"])})


def errors(folder: Path) -> dict[str, float]:
    """Percent, by strategy, from the comments of the profile."""
    lines = (folder / "cluster" / "lab.yaml").read_text().splitlines()
    words = [line.split() for line in lines if line.startswith("# Not fitted: ")]
    return {each[3].rstrip(","): float(each[-1].strip("(%).")) for each in words}


def call(tmp_path: Path, *words: str) -> int:
    """The last of equal words counts."""
    return main(["calibrate", "lab", "--config-dir", str(tmp_path), f"results={tmp_path / 'results'}", *words])


@pytest.mark.slow
def test_a_network_and_workers_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ASP and streams alone are fitted; what messages of 350 KB take at 0.1 Gbit/s dominates these runs."""
    monkeypatch.setattr(measuring, "STREAM_UPDATES", 20)
    monkeypatch.setattr(calibrate, "HELD_OUT", ("ssp", "backup"))
    network = ["cluster.network.bandwidth_gbps=0.1", "cluster.network.latency_s=0.002", "cluster.network.sharing=fair"]
    weight = "cluster.network.later_weight=0.6"
    assert call(tmp_path, *VIRTUAL[:1], "model=resnet8", *VIRTUAL[2:], *network, weight, "--samples=60") == 0
    cluster = profile_in(tmp_path)
    np.testing.assert_allclose(cluster.gradient_s, [0.03, 0.04, 0.06], rtol=0.02)
    assert cluster.network.bandwidth_gbps == pytest.approx(0.1, rel=0.02)
    assert cluster.network.later_weight == pytest.approx(0.6, abs=0.02)
    assert (cluster.workers, cluster.measured_workers, cluster.network.sharing) == (3, 3, "fair")
    found = errors(tmp_path)
    assert set(found) == {"ssp", "backup"}
    assert max(map(abs, found.values())) <= 2.0


@pytest.mark.slow
def test_persistent_stragglers_are_foreseen_and_independent_draws_miss_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = []
    monkeypatch.setattr(measuring, "SEEDS", 8)
    monkeypatch.setattr(calibrate, "table", lambda name, made: predictions.extend(made) or SimpleNamespace(print=print))
    words = [*VIRTUAL[:3], "cluster.gradient_s=[0.03]", "--no-links", "--samples=1500", STRAGGLING]
    assert call(tmp_path, *words) == 0
    cluster = profile_in(tmp_path)
    assert isinstance(cluster.jitter, Trace)
    assert cluster.jitter.block > 50
    (ssp,) = [each for each in predictions if each.strategy == "ssp"]
    assert abs(ssp.error) < 0.04
    assert ssp.independent_error < -0.08
    assert np.median([abs(each.error) for each in predictions]) < 0.02


def test_a_record_gives_the_seconds_and_the_latency_of_its_run(tmp_path: Path) -> None:
    words = ["gradients=false", "epochs=null", "strategy=ssp", "max_updates=200", "cluster.workers=2"]
    record = made(tmp_path / "results", *words, "cluster.network.bandwidth_gbps=null")
    assert call(tmp_path, f"--from={record.name}", "--validate", "--samples=100") == 0
    cluster = profile_in(tmp_path)
    assert cluster.network == NetworkConfig(cluster.network.latency_s)
    assert cluster.network.latency_s == pytest.approx(1e-4)
    assert cluster.workers == 2
    assert {*errors(tmp_path)} == {*measuring.HELD_OUT}
    assert {path.name for path in (tmp_path / "cluster").iterdir()} == {"lab.yaml", "lab-seconds.csv", "lab.svg"}


@pytest.mark.parametrize("command", [line for line in DOCUMENTED if "from=" in line])
def test_a_documented_command_without_real_processes(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As written, in a folder that has its file or its record."""
    monkeypatch.chdir(tmp_path)
    seconds = np.random.default_rng(0).gamma(9.0, 0.01, (60, 3))
    Path("seconds.csv").write_text("0,1,2\n" + "\n".join(",".join(map(str, row)) for row in seconds) + "\n")
    if "<identity>" in command:
        short = ["gradients=false", "epochs=null", "max_updates=200"]
        command = command.replace("<identity>", made(Path("results"), *short).name)
    assert main(command.split()[1:]) == 0
    assert list(Path("my/cluster").glob("*.yaml"))


@pytest.mark.processes
def test_a_documented_command_measures_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As written, but smaller: gradients, a stream of one sender beside a silent worker, and one of two."""
    (command,) = [line for line in DOCUMENTED if "runner=" not in line and "--from" not in line]
    monkeypatch.setattr(measuring, "STREAM_UPDATES", 5)
    short = ["model=softmax_regression", "cluster.workers=2", f"--samples={2 * LEAST}", "--no-validate"]
    own = [f"results={tmp_path / 'results'}", "runner.pace=absolute", "cluster.gradient_s=[0.02]"]
    assert main([*command.split()[1:], *short, *own, "--config-dir", str(tmp_path)]) == 0
    cluster = profile_in(tmp_path)
    assert cluster.workers == 2
    assert all(0.015 < seconds < 1.0 for seconds in cluster.gradient_s)
    text = (tmp_path / "cluster" / "lab.yaml").read_text()
    assert 0 < cluster.update_s < 0.1
    for told in ("# Start-up: ", "# Stream of 1 sender: ", "# Stream of 2 senders: "):
        assert told in text


@pytest.mark.parametrize(
    "words",
    [
        ["strategy=asp"],
        ["strategy=asp", "compress=topk_both"],
        ["strategy=bsp", "strategy.topology=allreduce"],
        ["strategy=bsp", "strategy.topology=allreduce", "compress=int8"],
        ["strategy=ds_sync", "compress=topk"],
        ["strategy=ds_sync"],
    ],
    ids=" ".join,
)
def test_what_a_shard_or_a_member_does_with_what_it_received_is_measured(words: list[str]) -> None:
    config, _ = compose(["model=mlp", "dataset=digits", "cluster.workers=4", *words])
    seconds = update_seconds_here(config)
    assert 1e-6 < seconds < 0.1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["strategy=ssp"], "strategy=ssp cannot be given: calibrate sets strategy"),
        (["--samples=0"], "--samples must be >= 1, got 0"),
        (["--links=yes"], "syncline calibrate: argument --links/--no-links: ignored explicit argument 'yes'"),
        (["--from=nothing"], "--from must be a CSV or the identity of a finished run in {results}, got 'nothing'"),
        (["--from=absent.csv"], "trace.path: cannot read 'absent.csv': No such file or directory"),
        (["--from=a.csv", "--validate"], "--links and --validate make runs: --from FILE.csv goes without them"),
        (["--from=a.csv", "model=lenet"], "--from goes with results= and rerun= alone: no other key has an effect"),
        (["--config-dir", "/dev/null/my"], "--config-dir: nothing can be written to /dev/null"),
        (["--config"], "syncline calibrate takes no --config; its options are -h, --help, --samples"),
        (["cluster.worker=3"], "cluster.worker: unknown key; cluster takes"),
        (["runner=simulate", "--samples=5"], f"a profile needs {LEAST} or more gradients of each worker, got"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    assert call(tmp_path, *words) == 1
    said = capsys.readouterr()
    last = said.err.splitlines()[-1]
    assert last.startswith(f"error: {line.format(results=results)}")
    assert said.out == ""
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize(
    ("name", "rule"), [("Lab", "must be of small letters"), ("model=lenet", "must be of small"), ("laptop", "ships")]
)
def test_a_name_is_a_new_one_of_a_choice(
    name: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", name, "--config-dir", str(tmp_path), "runner=simulate"]) == 1
    said = capsys.readouterr().err
    assert name in said
    assert rule in said


def test_the_folder_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(calibrate.VARIABLE, raising=False)
    assert main(["calibrate", "lab"]) == 1
    assert "give --config-dir DIR, or set SYNCLINE_CONFIG_DIR" in capsys.readouterr().err


def test_a_profile_is_replaced_on_request_and_kept_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*VIRTUAL, "--no-links", "--no-validate", "--samples=30"]
    monkeypatch.setenv(calibrate.VARIABLE, str(tmp_path))
    assert main(["calibrate", "lab", f"results={tmp_path / 'results'}", *words]) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "cluster").iterdir()}
    assert call(tmp_path, *words) == 1
    assert "lab.yaml exists; rerun=true replaces it" in capsys.readouterr().err

    def fails(*_: object) -> None:
        raise RunFailed("worker 1: out of luck")

    with monkeypatch.context() as patched:
        patched.setattr(calibrate, "validate", fails)
        assert call(tmp_path, *words, "--validate", "rerun=true", "seed=1") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "error: worker 1: out of luck"
    assert {path.name: path.read_bytes() for path in (tmp_path / "cluster").iterdir()} == before
    assert call(tmp_path, *words, "rerun=true", "seed=1") == 0
    assert (tmp_path / "cluster" / "lab-seconds.csv").read_bytes() != before["lab-seconds.csv"]


def test_what_is_not_good_enough_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A memory as long as the measurement, and a prediction that is off."""
    path = tmp_path / "seconds.csv"
    path.write_text("0\n" + "0.1\n" * 30 + "0.3\n" * 30)
    assert call(tmp_path, f"--from={path}") == 0
    assert "were measured: --samples 300 would tell more" in capsys.readouterr().out
    (line,) = calibrate.remarks(
        calibrate.Findings([np.full(50, 0.1)], NetworkConfig(), None, 0.0, [], None),
        [calibrate.Prediction("ssp", 1.0, 1.06, 1.0), calibrate.Prediction("bsp", 1.0, 0.96, 1.0)],
    )
    assert line == "ssp is foreseen with an error of +6.0%, above 5%"


@pytest.mark.usefixtures("signals")
def test_ctrl_c_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the documented command."""
    monkeypatch.setattr(calibrate, "findings", lambda asked: signal.raise_signal(signal.SIGINT))
    assert main(["calibrate", "lab", "--config-dir", str(tmp_path)]) == INTERRUPTED
    assert capsys.readouterr().err.startswith("interrupted; ")
    assert not (tmp_path / "cluster").exists()
