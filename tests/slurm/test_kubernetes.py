"""The jobs of Kubernetes that ship: the fields that torchrun, the run and its record depend on."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from runners.rank import composed
from syncline.live.node.ranks import Ranks

FOLDER = Path(__file__).parents[2] / "slurm"


def read(name: str) -> dict[str, Any]:
    """Of the first container: command, arguments and mounts; nodes, ranks of each, and volumes."""
    job = yaml.safe_load((FOLDER / name).read_text())
    if job["kind"] == "PyTorchJob":
        assert job["apiVersion"] == "kubeflow.org/v1"
        replicas = job["spec"]["pytorchReplicaSpecs"]
        assert set(replicas) == {"Master", "Worker"}
        assert replicas["Master"]["replicas"] == 1
        assert replicas["Master"]["template"] == replicas["Worker"]["template"]
        pod = replicas["Master"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "pytorch", "the operator looks for it"
        nodes, each = sum(part["replicas"] for part in replicas.values()), int(job["spec"]["nprocPerNode"])
        return {"container": container, "nodes": nodes, "each": each, "pod": pod, "mounts": container["volumeMounts"]}
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    trainer = job["spec"]["trainer"]
    (override,) = job["spec"]["podTemplateOverrides"]
    (container,) = override["spec"]["containers"]
    assert override["targetJobs"] == [{"name": container["name"]}] == [{"name": "node"}]
    nodes, each = trainer["numNodes"], trainer["numProcPerNode"]
    return {
        "container": trainer,
        "nodes": nodes,
        "each": each,
        "pod": override["spec"],
        "mounts": container["volumeMounts"],
    }


@pytest.mark.parametrize("name", ["pytorchjob.yaml", "trainjob.yaml"])
def test_a_job_starts_torchrun_with_words_that_fit_its_ranks_and_results_that_all_share(name: str) -> None:
    job = read(name)
    command, words = job["container"]["command"], job["container"]["args"]
    assert command[0] == "torchrun"
    assert command[-2] == "--run-path"
    assert command[-1].endswith("/run.py")
    options = {word.partition("=")[0] for word in command[1:-1]}
    assert not options & {"--nnodes", "--nproc-per-node", "--node-rank", "--master-addr"}, "they are the operator's"
    size = job["nodes"] * job["each"]
    composed(words, Ranks(0, job["each"], size, job["nodes"], "a", 29500, 0))  # raises if they do not fit
    (results,) = [word.partition("=")[2] for word in words if word.startswith("results=")]
    (mount,) = job["mounts"]
    assert results.startswith(f"{mount['mountPath']}/")
    (volume,) = job["pod"]["volumes"]
    assert volume["name"] == mount["name"]
    assert "claimName" in volume["persistentVolumeClaim"]
