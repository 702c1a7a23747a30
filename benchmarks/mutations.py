"""Do the tests find faults? Each mutation is put into a copy of the project, where the tier meant for it must fail.

python -m benchmarks.mutations                    all of them, in the files of the working tree
python -m benchmarks.mutations 3 17               these alone
python -m benchmarks.mutations --revision COMMIT  in the files of a commit

A mutation counts as found by a test that fails with it and passes without it. Of a tier (`make test` or `make
test-all`) the tests below the paths named with the mutation are run, until the first one fails.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from syncline.records.environment import cores

ROOT = Path(__file__).parent.parent
VENV = Path(sys.prefix)


@dataclass(frozen=True)
class Mutation:
    """One fault, as an edit of one file."""

    name: str  # what is wrong with it
    file: str
    before: str  # occurs once in the file
    after: str
    tests: Sequence[str]  # paths
    tier: Literal["test", "test-all"] = "test"  # target of the Makefile whose tests must find it

    def apply(self, folder: Path) -> None:
        """Edit the file of a copy. Raises ValueError where the text does not occur exactly once."""
        path = folder / self.file
        text = path.read_text()
        if (count := text.count(self.before)) != 1:
            raise ValueError(f"{self.file} must have {self.before!r} once for the mutation {self.name!r}, got {count}")
        path.write_text(text.replace(self.before, self.after))


MUTATIONS = [
    Mutation(
        "a tensor that no pass has reached gets zeros in place of None",
        "src/syncline/learning/flat.py",
        "self.gradient.fill_(UNREACHED)",
        "self.gradient.zero_()",
        ["tests/checking/test_own_cases.py"],
    ),
    Mutation(
        "two parameters that share memory are untied",
        "src/syncline/learning/storage.py",
        "            if id(other) in ours:\n",
        "            if False:\n",
        ["tests/learning/test_storage.py"],
    ),
    Mutation(
        "an optimizer's state is not restored",
        "src/syncline/learning/foreign.py",
        "            if self._restored:\n                self._optimizer.load",
        "            if False:\n                self._optimizer.load",
        ["tests/checking/test_own_cases.py"],
    ),
    Mutation(
        "ignored labels count for the test loss",
        "src/syncline/learning/task.py",
        "size += int((labels != IGNORED_LABEL).sum())",
        "size += labels.numel()",
        ["tests/learning/test_task.py"],
    ),
    Mutation(
        "the split of an own data set is drawn anew for the test",
        "src/syncline/assembly/data.py",
        "        seed_global_generators(DATA_SEED)\n",
        "",
        ["tests/checking/test_own_cases.py"],
    ),
    Mutation(
        "the record of another run is taken for one's own",
        "src/syncline/records/store.py",
        "        if identity != _identity(folder):\n",
        "        if False:\n",
        ["tests/records/test_damage.py"],
    ),
    Mutation(
        "the offset of another clock counts from when it was asked, not from the middle of the round trip",
        "src/syncline/live/wire/clock.py",
        "best = Clock(theirs - (asked + now) / 2, (now - asked) / 2)",
        "best = Clock(theirs - asked, (now - asked) / 2)",
        ["tests/live/wire/test_interfaces.py"],
    ),
    Mutation(
        "a push that only another shard received is asked for again",
        "src/syncline/live/shard/elastic.py",
        "self.iterations[worker] = report.iteration + 1  #",
        "self.iterations[worker] += 1  #",
        ["tests/live/shard/test_elastic.py"],
    ),
    Mutation(
        "the weights that a pending push was computed from are not kept",
        "src/syncline/learning/parameters.py",
        "if number < oldest and number not in pending]:",
        "if number < oldest]:",
        ["tests/live/shard/test_elastic.py"],
    ),
    Mutation(
        "a stale gradient is corrected away from where the weights have moved",
        "src/syncline/learning/update.py",
        "gradient.mul_((weights - push.weights)",
        "gradient.mul_((push.weights - weights)",
        ["tests/learning/test_update.py"],
    ),
    Mutation(
        "a worker that was killed is not started again",
        "src/syncline/live/node/keeper.py",
        "if code is not None and (code < 0 or code in TRY_AGAIN):",
        "if code is not None and code in TRY_AGAIN:",
        ["tests/live/node/test_keeper.py"],
    ),
    Mutation(
        "a run whose ranks were asked to stop goes on when torchrun restarts them",
        "runners/rank.py",
        "    if (made_in(results / found[0]) / STOPPED).exists():\n        return RESUMABLE\n",
        "",
        ["tests/live/test_runs.py"],
        tier="test-all",
    ),
    Mutation(
        "a client accepts a server that does not know the secret",
        "src/syncline/live/wire/handshake.py",
        'if not hmac.compare_digest(_receive(sock, PROOF_BYTES, ends), _proof(secret, b"server", nonce, theirs)):',
        "if not _receive(sock, PROOF_BYTES, ends):",
        ["tests/live/wire/test_handshake.py"],
    ),
    Mutation(
        "a stop whose checkpoint was not written says that it was",
        "runners/attempt.py",
        "elif newest != asked:",
        "elif newest > asked:",
        ["tests/live/test_attempt.py"],
    ),
    Mutation(
        "a preempted task of Slurm requeues itself as well",
        "runners/batch_scripts.py",
        "if [ $code = {RESUMABLE} ] && [ $is_time_over ]; then",
        "if [ $code = {RESUMABLE} ]; then",
        ["tests/slurm/test_scripts.py"],
    ),
    Mutation(
        "a step that a stop drops stays in the statistics of batch norm",
        "src/syncline/live/collective/steps.py",
        "buffers.copy_(before)  # this step is dropped",
        "pass  # this step is dropped",
        ["tests/live/collective/test_collective.py"],
        "test-all",
    ),
    Mutation(
        "the average of the weights forgets its start an update too late",
        "src/syncline/learning/optimizer.py",
        "(1 + self._updates) / (10 + self._updates)",
        "self._updates / (10 + self._updates)",
        ["tests/learning/test_optimizer_averaged.py"],
    ),
    Mutation(
        "error feedback sends again what was sent",
        "src/syncline/learning/compression.py",
        "None if wanted is None else wanted.sub_(flat)",
        "wanted",
        ["tests/learning/test_compression.py"],
    ),
    Mutation(
        "the last offset of a crop is never drawn",
        "src/syncline/datasets/images.py",
        "generator.integers(0, 2 * padding + 1, size=(2, batch))",
        "generator.integers(0, max(1, 2 * padding), size=(2, batch))",
        ["tests/datasets/test_images.py"],
    ),
    Mutation(
        "DRAW's filters of rows and columns are swapped",
        "src/syncline/models/draw.py",
        "        return rows, columns, log_gamma\n",
        "        return columns, rows, log_gamma\n",
        ["tests/models/test_draw.py"],
    ),
    Mutation(
        "padding of a batch can be an answer",
        "src/syncline/learning/task.py",
        "value=-math.inf",
        "value=0.0",
        ["tests/learning/test_task.py"],
    ),
    Mutation(
        "ResNet-50 for small images keeps ImageNet's max pooling",
        "src/syncline/models/bottleneck.py",
        "    network.maxpool = nn.Identity()\n",
        "",
        ["tests/models/test_bottleneck.py"],
    ),
    Mutation(
        "the fastest worker of a cluster may be one that does not exist",
        "src/syncline/timing/cluster.py",
        "min(config.gradient_s[: config.workers])",
        "min(config.gradient_s)",
        ["tests/timing/test_pace.py"],
    ),
    Mutation(
        "a chain of two states has the shares of its states swapped",
        "src/syncline/timing/distributions.py",
        "u < self.every / (self.every + self.lasting)",
        "u < self.lasting / (self.every + self.lasting)",
        ["tests/timing/test_memory.py"],
    ),
    Mutation(
        "a shifted exponential counts as memoryless, so that bounds are called equalities",
        "src/syncline/timing/run_times.py",
        "kinds.ShiftedExponential) and distribution.shift > 0",
        "kinds.ShiftedExponential) and distribution.shift < 0",
        ["tests/timing/test_expected_runtime.py"],
        "test-all",
    ),
    Mutation(
        "the staleness of a gradient is that of the last shard, not the largest",
        "src/syncline/records/spans.py",
        'about["staleness"] = max(int(value), about.get("staleness", 0))',
        'about["staleness"] = int(value)',
        ["tests/records/test_timeline.py"],
    ),
    Mutation(
        "a two-sided comparison with the reference counts one side",
        "src/syncline/operations/agreement.py",
        '2.0 * min(mean_p(differences, 0.0, "less")',
        '1.0 * min(mean_p(differences, 0.0, "less")',
        ["tests/operations/test_compare.py"],
        "test-all",
    ),
    Mutation(
        "Fieller's interval is shifted to the wrong side",
        "src/syncline/statistics.py",
        "    middle = -float(squares[0, 1]) / rest",
        "    middle = float(squares[0, 1]) / rest",
        ["tests/test_statistics.py"],
    ),
    Mutation(
        "several looks by Student's test have the limits for known variance",
        "src/syncline/sequential.py",
        "-float(scipy.special.stdtrit(n - 1, tail))",
        "-float(scipy.special.ndtri(tail))",
        ["tests/test_sequential.py"],
    ),
    Mutation(
        "a region of two bounds counts as one test in Holm's procedure",
        "src/syncline/statistics.py",
        "level((len(order) - num_rejected) * counts[position])",
        "level(len(order) - num_rejected)",
        ["tests/reports/test_effects.py", "tests/test_statistics.py"],
    ),
    Mutation(
        "the peak of tuning leans to the wrong side",
        "src/syncline/studies/grid.py",
        "0.5 * (left - right) / bend",
        "0.5 * (right - left) / bend",
        ["tests/studies/test_tune.py"],
    ),
    Mutation(
        "a race is tuned on seeds that also judge",
        "src/syncline/studies/race.py",
        "grid = race.factor, race.points, race.tuning_seeds, race.validation",
        "grid = race.factor, race.points, race.seeds[:2], race.validation",
        ["tests/studies/test_race.py"],
    ),
    Mutation(
        "a seed of the command line may tune and judge",
        "runners/tuning.py",
        "judging = judging | {compose(row)[0].seed for row in (sweep(asked) if asked else [])}",
        "judging = set(judging)",
        ["tests/runners/test_tuning.py"],
    ),
    Mutation(
        "a second Ctrl-C is taken for an echo",
        "runners/stop.py",
        "if number != signal.SIGINT and now - self._received_at < ECHO_S:",
        "if now - self._received_at < ECHO_S:",
        ["tests/runners/test_stopping.py"],
    ),
    Mutation(
        "going back to a checkpoint drops the snapshot at it",
        "runners/observer.py",
        "if its_updates > updates:",
        "if its_updates >= updates:",
        ["tests/runners/test_observer.py"],
    ),
    Mutation(
        "the contract allows a staleness one above the bound",
        "src/syncline/checking/harness.py",
        'staleness <= bound, f"staleness',
        'staleness <= bound + 1, f"staleness',
        ["tests/checking/test_check.py"],
    ),
    Mutation(
        "a resumed run forgets what compressed pushes have left out",
        "src/syncline/simulation/worker_gradients.py",
        '            yield f"compress-{worker}", push\n',
        "            pass\n",
        ["tests/simulation/test_resumption.py"],
    ),
    Mutation(
        "a resumed replica has the momentum of the first one",
        "src/syncline/simulation/replicas.py",
        'yield f"optimizer-{number}", optimizer',
        'yield f"optimizer-{number}", self._optimizers[0]',
        ["tests/simulation/test_resumption.py"],
    ),
    Mutation(
        "a step of a replica is not divided by its push-sum weight",
        "src/syncline/learning/push_sum.py",
        "    if push_sum_weight == 1.0:\n",
        "    if True:\n",
        ["tests/simulation/test_collective.py"],
    ),
    Mutation(
        "a resumed run forgets the push-sum weights",
        "src/syncline/simulation/replicas.py",
        '        yield "push-sum", self._push_sum\n',
        "",
        ["tests/simulation/test_resumption.py"],
    ),
    Mutation(
        "after an interrupt a push of the current version is rejected, too",
        "src/syncline/server/shard.py",
        "self._min_valid_version[command.worker] = self.totals.updates",
        "self._min_valid_version[command.worker] = self.totals.updates + 1",
        ["tests/server/test_shard.py"],
    ),
    Mutation(
        "PSP's timeout runs from the last gradient, not from the c-th",
        "src/syncline/strategies/psp.py",
        "        if self.deadline is not None:\n            return []\n        self.deadline = now + self.tau1",
        "        self.deadline = now + self.tau1",
        ["tests/papers/test_psp.py"],
    ),
    Mutation(
        "the seconds that a cancelled gradient was not computed are not taken off",
        "src/syncline/simulation/workers.py",
        "        self.cancelled_s[worker] += at - now\n        self._totals",
        "        self.cancelled_s[worker] += 0.0\n        self._totals",
        ["tests/simulation/test_interrupts.py"],
    ),
    Mutation(
        "a push that is under way from a worker that is lost arrives",
        "src/syncline/simulation/loop.py",
        "        if self._cluster.loses_workers and self._workers.is_void(worker, push.sent_at):\n",
        "        if False:\n",
        ["tests/simulation/test_churn.py"],
    ),
    Mutation(
        "messages do not queue at the link between regions",
        "src/syncline/timing/network.py",
        "            self._links[link] = enters + size_bytes * link_s\n",
        "",
        ["tests/timing/test_regions.py"],
    ),
    Mutation(
        "a worker that keeps a replica is overwritten by what it is sent",
        "src/syncline/learning/local_steps.py",
        "            self._mix(self._replica, number)\n",
        "            pass\n",
        ["tests/simulation/test_local_steps.py"],
    ),
    Mutation(
        "a fragment that was not sent is drawn to what was sent of it before",
        "src/syncline/learning/local_steps.py",
        "number - 2 if self.overlap else number - 1",
        "number - 2 if self.overlap else number",
        ["tests/simulation/test_local_steps.py"],
    ),
    Mutation(
        "a worker that overlaps pushes before its last push is answered",
        "src/syncline/simulation/loop.py",
        "if workers.num_missing[worker]:\n            workers.finishes_at",
        "if False:\n            workers.finishes_at",
        ["tests/simulation/test_local_steps.py"],
    ),
    Mutation(
        "a worker that overlaps computes at what comes while it waits to push",
        "src/syncline/simulation/replay.py",
        "self._take(worker, row.shard, row.version)\n",
        "pass\n",
        ["tests/live/test_what_is_pushed.py"],
    ),
    Mutation(
        "a strategy's commands at the start are not carried out",
        "src/syncline/simulation/loop.py",
        "                self._carry_out(shard, shard.begin(0.0))\n",
        "                pass\n",
        ["tests/simulation/test_interrupts.py"],
    ),
    Mutation(
        "an asynchronous peer leaves the other out of the mean",
        "src/syncline/learning/peer_replica.py",
        "            own.add_(theirs.to(own.device)).mul_(0.5)\n",
        "            own.mul_(0.5)\n",
        ["tests/simulation/test_peers.py"],
    ),
    Mutation(
        "a peer leaves its own weights out of the mean",
        "src/syncline/strategies/collective.py",
        "                yield Averaging(sorted([worker, *senders]), [worker])\n",
        "                yield Averaging(sorted(senders or [worker]), [worker])\n",
        ["tests/strategies/test_contract.py"],
    ),
    Mutation(
        "backup workers that wait for one that dies are not released",
        "src/syncline/strategies/backup.py",
        "        return news + self._update() if len(self.held) >= self.members.count else news",
        "        return news",
        ["tests/strategies/test_contract.py"],
    ),
    Mutation(
        "DSSP's loaded state lacks the iterations that a worker was given",
        "src/syncline/strategies/dssp.py",
        "    extra: dict[int, int]  # r_p where it is above 0\n",
        "",
        ["tests/strategies/test_contract.py"],
    ),
    Mutation(
        "what all runs share wins over what a run says itself",
        "src/syncline/plan.py",
        "(label, [*_overrides_for(label, learning), *overrides])",
        "(label, [*overrides, *_overrides_for(label, learning)])",
        ["tests/test_plan.py"],
    ),
    Mutation(
        "a failed run counts as finished when a plan is made again",
        "src/syncline/plan.py",
        "if rerun or status(results / entry.config.identity) != FINISHED]",
        'if rerun or status(results / entry.config.identity) not in (FINISHED, "failed")]',
        ["tests/test_plan.py"],
    ),
    Mutation(
        "a module that the user's code imports is left out of the hash",
        "src/syncline/targets.py",
        "            waiting += imports\n",
        "",
        ["tests/test_targets.py"],
    ),
    Mutation(
        "a target is reached above its value only",
        "src/syncline/monitor.py",
        "else value >= wanted",
        "else value > wanted",
        ["tests/test_monitor.py"],
    ),
    Mutation(
        "a run makes an update too many",
        "src/syncline/progress.py",
        'return "max_updates" if updates >= self.updates else None',
        'return "max_updates" if updates > self.updates else None',
        ["tests/simulation/test_loop.py"],
    ),
    Mutation(
        "DS-Sync averages in columns where it should in rows",
        "src/syncline/strategies/ds_sync.py",
        "return step % 2",
        "return (step + 1) % 2",
        ["tests/papers/test_dssync.py"],
    ),
    Mutation(
        "DSSP's range is not the paper's by default",
        "conf/strategy/dssp.yaml",
        "r_max: 12\n",
        "r_max: 11\n",
        ["tests/test_config_choices.py"],
    ),
]


def copied(revision: str | None, folder: Path) -> None:
    """A copy of the tracked files: as they are in the working tree, or in a commit."""
    folder.mkdir()
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    pack = ["git", "archive", revision] if revision else ["tar", "--create", "--null", "--files-from=-"]
    packed = subprocess.run(pack, cwd=ROOT, input=names, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract"], cwd=folder, input=packed, check=True)


def tested(folder: Path, tier: str, tests: Sequence[str]) -> tuple[int, str]:
    """Run these tests of a tier in a copy until the first failure.

    Returns:
        pytest's exit code, and the test function that failed, if any.
    """
    arguments = f"-x -n 0 -p no:cacheprovider {' '.join(tests)}"
    ready = VENV / ".ready"  # this environment serves all copies
    command = ["make", "--old-file", str(ready), tier, f"VENV={VENV}", f"ARGS={arguments}"]
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}:{folder}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    code = re.search(r"Error (\d+)", done.stderr)
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", done.stdout, re.M)  # without its parameters
    return int(code[1]) if code else done.returncode, failed[1] if failed else ""


def found_by(mutation: Mutation, revision: str | None) -> str:
    """The test that finds a mutation; empty where none does.

    Raises:
        ValueError: the mutation cannot be applied, or the tests cannot be run.
    """
    with tempfile.TemporaryDirectory() as place:
        right, wrong = Path(place) / "right", Path(place) / "wrong"
        copied(revision, wrong)
        mutation.apply(wrong)
        code, test = tested(wrong, mutation.tier, mutation.tests)
        if code == 0:
            return ""
        if code != 1 or not test:
            raise ValueError(f"the tests for the mutation {mutation.name!r} ended with pytest's exit code {code}")
        copied(revision, right)
        code, _ = tested(right, mutation.tier, [test])
        if code != 0:
            raise ValueError(f"{test} fails without the mutation {mutation.name!r}, too")
        return test


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("numbers", nargs="*", type=int, help="of mutations; all if none is named")
    parser.add_argument("--revision", help="commit whose files are mutated (the working tree)")
    asked = parser.parse_args(arguments)
    chosen = [(number, each) for number, each in enumerate(MUTATIONS, 1) if number in (asked.numbers or [number])]

    def outcome(one: tuple[int, Mutation]) -> bool:
        number, mutation = one
        try:
            test = found_by(mutation, asked.revision)
        except ValueError as error:
            print(f"{number:3}  {mutation.name}\n       ERROR {error}", flush=True)
            return False
        by = f"by {test} (make {mutation.tier})" if test else f"MISSED by make {mutation.tier}"
        print(f"{number:3}  {mutation.name}\n       {by}", flush=True)
        return bool(test)

    with ThreadPoolExecutor(cores()) as pool:
        outcomes = list(pool.map(outcome, chosen))
    print(f"{sum(outcomes)} of {len(outcomes)} found")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
