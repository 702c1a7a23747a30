"""Every mistake in a config is one line: the key, what is allowed, what was given."""

import dataclasses

import pytest
from composing import assert_refused, line_of

from syncline.config import GROUPS, Invocation, RunConfig, choices


@pytest.mark.parametrize("group", [*GROUPS, "experiment"])
def test_an_unknown_choice_is_refused_with_the_allowed_ones(group: str) -> None:
    for given in ("nonsense", "5", "{}"):
        assert_refused([f"{group}={given}"], f"{group} must be one of ", *choices(group), f"; got '{given}'")


def test_an_unknown_key_at_the_top_is_refused_with_the_allowed_ones() -> None:
    keys = {field.name for kind in (RunConfig, Invocation) for field in dataclasses.fields(kind)}
    for override in ("xyz=3", "+xyz=3", "++xyz=3", "experiment.x=3"):
        line = line_of(override)
        assert line.startswith(f"{override.lstrip('+').partition('=')[0]}: unknown key")
        assert [key for key in keys if key not in line] == []


@pytest.mark.parametrize(
    ("overrides", "allowed"),
    [
        ("strategy.stalenes=3", ["s_lower", "r_max", "bound", "did you mean strategy.staleness=3 with strategy=ssp"]),
        ("strategy.staleness=3", ["s_lower", "r_max", "bound", "needs strategy=ssp"]),
        ("strategy=ssp strategy.s_lower=3", ["staleness"]),
        ("+cluster.network.latency=1", ["latency_s", "bandwidth_gbps"]),
        ("optimizer.schedule.at=1", ["factor", "at_epochs"]),
        ("model=resnet20 model.layers=3", ["depth", "width"]),
        ("dataset.root=data", ["train_size", "augment"]),
        ("model.depth.foo=3", ["model"]),
        ("seed.foo=3", ["a whole number"]),
        ("scenario.slow.0=3", ["scenario.slow must be a mapping such as {1: 1.5}"]),
        ("cluster.gradient_s.0=1", ["cluster.gradient_s must be a list such as [1.5, ...]"]),
        ("workers=6", ["did you mean cluster.workers=6?"]),
        ("lr=0.1", ["did you mean optimizer.lr=0.1?"]),
        ("ptimizer.lr=1", ["did you mean optimizer.lr=1?"]),
        ("sede=3", ["did you mean seed=3?"]),
        ("stratgy=bsp", ["did you mean strategy=bsp?"]),
        ("sceario.name=1", ["did you mean scenario?"]),
        ("race.confirm=1", ["it is one of syncline race"]),
        ("experimnt=dssp", ["did you mean +experiment=dssp?"]),
        ("cluster@foo=laptop", ["did you mean cluster=laptop?"]),
    ],
)
def test_an_unknown_key_is_refused_with_those_at_its_place_or_one_like_it(overrides: str, allowed: list[str]) -> None:
    *before, last = overrides.split()
    key = last.lstrip("+").partition("=")[0]
    assert_refused([*before, last], f"{key}: unknown key", *allowed)


OF_THE_WRONG_TYPE = {
    "a whole number": "seed=1.5 seed=null seed=true seed=inf seed=[1]",
    "a whole number or null": "max_updates=1e400 max_updates=1e3",
    "a number": "optimizer.lr=null",
    "a number or null": "epochs=long epochs={a:1} cluster.network.bandwidth_gbps=wide",
    "true or false": "gradients=maybe",
    "text": "results=null results=???",
    "a list such as [1.5, ...]": "cluster.gradient_s=[0.1,slow] cluster.gradient_s=0.1",
    "a list such as [1, ...]": "scale.seeds=[a]",
    "a mapping such as {1: 1.5}": "scenario.slow=[1] scenario.slow={a:2.0}",
    "{latency_s: ..., bandwidth_gbps: ..., ": "cluster.network=[1]",
    "{metric: ..., value: ...}": "target=null",
    "null or {name: <distribution>, ...}": "cluster.jitter=0.1",
}


@pytest.mark.parametrize(
    ("override", "kind"), [(word, kind) for kind, words in OF_THE_WRONG_TYPE.items() for word in words.split()]
)
def test_a_value_of_the_wrong_type_is_refused_with_its_key_and_the_type(override: str, kind: str) -> None:
    key, _, given = override.partition("=")
    assert_refused([override], f"{key} must be {kind}", f", got {given}")


# What is chosen -> values that are out of the range of their keys; numbers are the first ones beyond it.
OUT_OF_RANGE = {
    "": "seed=-1 seed=4294967296 batch_size=0 epochs=0 epochs=inf max_updates=0 max_time_s=-2 max_time_s=inf "
    "eval_every_epochs=0 threads=0 jobs=0 scale.seeds=[] scale.seeds=[1,1] lr_clock=wall async_gradient=sum "
    "momentum=nesterov target.metric=f1 dataset.train_size=0 cluster.workers=0 cluster.network.latency_s=-1 "
    "cluster.network.latency_s=nan cluster.message_tensors=0 cluster.ready=[0.5,0.4,1] cluster.gradient_s=[1e20] "
    "runner.checkpoint_every_s=0 local.steps=0 local.after_epochs=-1 local.optimizer=foo optimizer.lr=0 "
    "optimizer.lr=nan optimizer.momentum=1 optimizer.clip_norm=0 optimizer.schedule.kind=sine "
    "optimizer.schedule.factor=0 optimizer.schedule.every_epochs=0 optimizer.schedule.warmup_epochs=-1 "
    "optimizer.schedule.warmup_from=1.5 optimizer.schedule.final_factor=-1",
    "optimizer=adamw": "optimizer.weight_decay=-1 optimizer.average_decay=1 optimizer.beta1=1 optimizer.beta2=-1 "
    "optimizer.eps=0",
    "optimizer=rmsprop": "optimizer.alpha=1 optimizer.eps=0 optimizer.momentum=-0.1 optimizer.form=tf",
    "compress=sign": "compress.consensus=0",
    "compress=topk": "compress.density=0",
    "local=diloco": "local.optimizer=1.5 local.optimizer.beta1=1 local.optimizer.lr=fast",
    "model=resnet20": "model.depth=21 model.width=0",
    "dataset=cifar10": "dataset.test_size=-5",
    "model=wrn10_1": "model.depth=27 model.dropout=1",
    "model=bert_tiny dataset=qa_synthetic": "model.hidden_size=33 dataset.max_length=513 dataset.stride=61",
    "dataset=glyphs10": "dataset.image_size=7 dataset.seed=-1 dataset.label_noise=1",
    "model=deepfm dataset=criteo": "dataset.buckets=1 dataset.split_seed=-1",
    "model=deepfm dataset=ctr_synthetic": "dataset.values=1",
    "dataset=imagenet": "dataset.loaders=-1",
    "model=bert_tiny dataset=squad": "dataset.split=80/20",
    "tracker=wandb": "tracker.mode=on",
    "runner=local": "runner.transport=pigeon runner.pace=brisk runner.evaluate=never runner.checkpoint_every_epochs=0 "
    "runner.hang_s=-1 runner.hang_s=nan runner.leave_s=0 runner.start_timeout_s=0 runner.initial_workers=0 "
    "runner.initial_workers=5 runner.max_restarts=-1",
    "strategy=ssp": "strategy.staleness=-1",
    "strategy=dssp": "strategy.s_lower=-1 strategy.r_max=-1 strategy.bound=soft",
    "strategy=backup": "strategy.backups=-1 strategy.aggregate=median",
    **{f"strategy={name}": "strategy.k=0" for name in ("k_batch_sync", "k_batch_async")},
    **{f"strategy={name}": "strategy.k=0 strategy.k=5" for name in ("k_sync", "k_async")},
    "strategy=adasync": "strategy.k=0 strategy.variant=k_wait strategy.f0=first strategy.interval=0 "
    "strategy.interval=nan strategy.interval=inf strategy.k_cap=9",
    "strategy=adasync strategy.variant=k_batch_sync strategy.k=3": "strategy.k_cap=2",
    "strategy=adasync strategy.variant=k_batch_async": "strategy.k=5",
    "strategy=psp": "strategy.c=0 strategy.c=5 strategy.b=0 strategy.b=101 strategy.b=nan strategy.tau1=-1 "
    "strategy.tau1=inf strategy.tau2=nan strategy.tag=latest",
    "strategy=mindflayer": "strategy.within=0 strategy.within=inf",
    "strategy=rennala": "strategy.k=0",
    "strategy=ringmaster": "strategy.r=0",
    "strategy=sync_switch": "strategy.after=-1 strategy.scale=0 strategy.scale=inf",
    "strategy=gossip": "strategy.graph=star",
    "strategy=ad_psgd": "strategy.graph=exponential",
    "strategy=ds_sync": "strategy.group_size=1 strategy.average=never strategy.evaluate=last strategy.parity=odd "
    "strategy.impl=fast",
    "strategy=bsp": "strategy.impl=fast strategy.topology=ring",
}


@pytest.mark.parametrize(
    ("chosen", "word"), [(chosen, word) for chosen, words in OUT_OF_RANGE.items() for word in words.split()]
)
def test_a_value_out_of_range_is_refused_with_its_key_and_what_was_given(chosen: str, word: str) -> None:
    assert_refused([*chosen.split(), word], f"{word.partition('=')[0]} must ", ", got ")


@pytest.mark.parametrize(
    ("word", "allowed"),
    [
        ("seed=-1", "in 0 .. 4,294,967,295, got -1"),
        ("batch_size=0", ">= 1, got 0"),
        ("epochs=0", "> 0 or null, got 0.0"),
        ("optimizer.momentum=1", "in [0, 1), got 1.0"),
        (
            "local.optimizer=foo",
            "{name: adam | adamw | delayed_nesterov | rmsprop | sgd, ...}, {_target_: ..., ...} or null, got foo",
        ),
        ("lr_clock=wall", "one of samples, server_updates, got wall"),
        ("cluster.gradient_s=[1e20]", "<= 1,000,000,000, got 1e+20"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(word: str, allowed: str) -> None:
    assert line_of(word) == f"{word.partition('=')[0]} must be {allowed}"


STRATEGIES_OF_K = ("k_sync", "k_async", "k_batch_sync", "k_batch_async")
GRID = "cluster.workers must be 4, 6, 8, 9, ... and a multiple of the group size, got "


@pytest.mark.parametrize(
    ("overrides", "key", "allowed"),
    [
        ("cluster.jitter={name: trace, values: [1, -1]}", "cluster.jitter", "trace needs durations >= 0"),
        ("cluster.jitter={name: trace, values: []}", "cluster.jitter", "either values or path"),
        ("cluster.jitter.std=-0.5", "cluster.jitter", "normal.std must be >= 0"),
        ("cluster.jitter.name=gauss", "cluster.jitter.name", "must be one of constant, "),
        ("cluster.jitter.a=1", "cluster.jitter.a", "normal takes mean, std"),
        ("cluster.network={latency_s: x}", "cluster.network.latency_s", "a number"),
        ("local.optimizer={name: sgd, lr: 0}", "local.optimizer.lr", "> 0"),
        (
            "local=diloco;local.optimizer.name=[adam]",
            "local.optimizer",
            "{name: adam | adamw | delayed_nesterov | rmsprop | sgd",
        ),
        ("runner=slurm;runner.partition='a b'", "launcher.partition", "one word"),
        ("runner=slurm;runner.cpus=0", "launcher.cpus", ">= 1"),
        ("runner=slurm;runner.max_parallel=0", "launcher.max_parallel", ">= 1 or null"),
        ("runner=slurm;runner.extra=[gres]", "launcher.extra", "options of sbatch, which begin with -"),
        ("local.steps=2;optimizer=adam", "local.optimizer", "must be set with optimizer=adam"),
        ("local.steps=2;dataset.sharing=shared", "dataset.sharing", "must be partition with local.steps > 1"),
        ("local.optimizer={name: sgd, lr: 0.1};dataset.sharing=shared", "dataset.sharing", "must be partition"),
        ("local=diloco;optimizer.clip_norm=1", "optimizer.clip_norm", "must be null with local.optimizer"),
        # Replicas, which have no server.
        ("strategy=ds_sync;compress=sign;compress.pulls=true", "compress.pulls", "must be false"),
        ("strategy=asp;compress=sign;compress.pulls=true;update=gap_aware", "compress.pulls", "must be false"),
        ("strategy=ds_sync;update=gap_aware", "update", "must be mean"),
        ("dataset.concentration=1;dataset.sharing=shared", "dataset.sharing", "must be partition"),
        ("model=draw_small;dataset.concentration=1", "dataset.concentration", "task=classification"),
        ("strategy=gossip;compress=sign", "compress", "must be none with strategy=gossip"),
        (
            "strategy=gossip;strategy.graph=random;optimizer.average_decay=0.9",
            "optimizer.average_decay",
            "must be null with strategy=gossip here, whose workers do not receive from as many as they send to",
        ),
        ("strategy=ad_psgd;compress=randk;compress.feedback=false", "compress", "must be none with strategy=ad_psgd"),
        ("strategy=ad_psgd;dataset.sharing=shared", "dataset.sharing", "must be partition with strategy=ad_psgd"),
        ("strategy=ad_psgd;update=gap_aware", "update", "must be mean where strategy=ad_psgd has no server"),
        (
            "strategy=ad_psgd;local.by_speed=true",
            "local.by_speed",
            "must be false where strategy=ad_psgd has no server",
        ),
        ("strategy=ad_psgd;cluster.shards=2", "strategy=ad_psgd has no server", "cluster.shards must be 1"),
        ("strategy=ad_psgd;cluster.workers=1", "strategy=ad_psgd needs peers", "cluster.workers must be >= 2"),
        ("accumulate=33", "accumulate", "must be <= batch_size = 32"),
        ("local.steps=2;optimizer.decays=matrices", "local.optimizer", "must be set with optimizer.decays=matrices"),
        ("strategy=bsp;scenario=churn", "scenario.up", "goes on without a worker, at a server, got strategy=bsp"),
        ("strategy=asp;scenario=churn;runner=local", "scenario.up", "runner must be simulate, got local"),
        (
            "scenario.up={name: constant, value: 1}",
            "scenario.up",
            "and scenario.down must both be set, or both be null",
        ),
        ("strategy=asp;scenario.absences={0: [2, 1]}", "scenario.absences", "pairs of ascending seconds"),
        ("local.keep=0.5", "local.optimizer", "must be set with local.keep > 0"),
        ("local.fragments=2", "local.optimizer", "must be set with local.fragments > 1"),
        ("local=streaming_diloco;local.fragments=1", "local.fragments", "must be > 1 with local.overlap"),
        ("local=streaming_diloco;strategy=psp", "local.fragments", "must be 1 with strategy=psp"),
        ("local=streaming_diloco;strategy=k_sync;strategy.k=1", "local.fragments", "must be 1 with strategy=k_sync"),
        ("local=streaming_diloco;local.keep=0;strategy=ds_sync", "local.fragments", "must be 1 with strategy=ds_sync"),
        ("local=streaming_diloco;compress=int8", "compress", "must be none with local.fragments > 1"),
        ("local=streaming_diloco;update=gap_aware", "local.fragments", "must be 1 with update=gap_aware"),
        ("update=elastic", "local.optimizer", "must be set with update=elastic"),
        ("strategy=ds_sync;local=easgd", "local.keep", "must be 0 where strategy=ds_sync has no server"),
        ("strategy=ds_sync;local.by_speed=true", "local.by_speed", "must be false"),
        ("local.by_speed=true;lr_clock=server_updates", "local.by_speed", "must be false"),
        ("strategy=ds_sync;compress=sign;strategy.impl=naive", "compress", "must be none"),
        ("strategy=ds_sync;compress=sign;compress.feedback=false", "compress.feedback", "must be true"),
        ("strategy=ds_sync;strategy.bucket_mb=-1", "strategy.bucket_mb", "> 0"),
        ("strategy=ds_sync;strategy.impl=overlap;strategy.average=before_forward", "strategy.impl", "after_step"),
        ("strategy=bsp;strategy.impl=overlap", "strategy.impl", "needs strategy.topology=allreduce"),
        # Parts that are sent early.
        *(
            (f"strategy=bsp;strategy.topology=allreduce;strategy.impl=overlap;{word}", key, allowed)
            for word, key, allowed in (
                ("local.steps=2", "local.steps", "must be 1"),
                ("accumulate=2", "accumulate", "must be 1"),
                ("compress=int8", "compress", "must be none"),
                ("optimizer.clip_norm=1", "optimizer.clip_norm", "must be null"),
            )
        ),
        # Values that mean nothing: of targets, stragglers, times of gradients, samples.
        *(
            (words, words.rpartition(";")[2].partition("=")[0], allowed)
            for words, allowed in (
                ("target.value=90", "in 0 .. 1 for target.metric=accuracy (0.9 for 90 %)"),
                ("target.value=101", "in 0 .. 1 for target.metric=accuracy"),
                ("target.value=-0.1", "in 0 .. 1 for target.metric=accuracy"),
                ("target.metric=loss;target.value=-1", ">= 0 for target.metric=loss"),
                ("target.value=nan", "a finite number"),
                ("target.metric=loss;target.value=inf", "a finite number"),
                ("gradients=false;target.value=0.5", "null with gradients=false: nothing is learned"),
                ("model=char_lstm;dataset=pydoc_text;target.metric=word_perplexity;target.value=0.5", ">= 1"),
                ("scenario.slow={9:3}", "workers in 0 .. 3, cluster.workers being 4"),
                ("scenario.slow_shards={7:1}", "shards in 0 .. 0, cluster.shards being 1"),
                ("cluster.gradient_s=[1,2,3,4,5,6]", "at most cluster.workers = 4 entries (fewer repeat)"),
                ("batch_size=1438", "<= 1437: dataset=digits has 1,437 training samples"),
                ("gradients=false;batch_size=1438", "<= 1437: dataset=digits has 1,437 training samples"),
                ("dataset.train_size=64;batch_size=65", "<= 64: dataset=digits has 64 training samples"),
                ("cluster.workers=1438", "<= 1437: dataset=digits has 1,437 training samples"),
                ("dataset=cifar10;dataset.train_size=50001", "<= 50,000, all that cifar10 has, or null"),
                ("model=char_lstm;dataset=pydoc_text;dataset.length=320001", "<= 320,000, or no sample is left"),
            )
        ),
        # Times alone, of data that alone know their size.
        *(
            (f"{words};gradients=false", words.split(";")[1], "dataset.train_size must be set, got null")
            for words in (
                "model=char_lstm;dataset=text;dataset.path=x",
                "model=char_lstm;dataset=text8;dataset.path=x",
                "model=deepfm;dataset=criteo;dataset.file=x",
                "model=resnet50;dataset=imagenet;dataset.num_classes=10",
            )
        ),
        # Optimizers and their schedules.
        ("optimizer=nesterov;optimizer.momentum=0", "optimizer.nesterov", "needs optimizer.momentum > 0, got 0"),
        *(
            (";".join(f"optimizer.schedule.{word}" for word in words.split()), f"optimizer.schedule.{key}", allowed)
            for words, key, allowed in (
                ("at_epochs=[3,1]", "at_epochs", "must ascend"),
                ("kind=exponential at_epochs=[3]", "at_epochs", "goes with kind=step"),
                ("kind=linear", "end_epoch", "must be set with kind=linear"),
                ("kind=cosine", "end_epoch", "must be set with kind=cosine"),
                ("end_epoch=3", "end_epoch", "goes with kind=linear and kind=cosine"),
                ("from_epoch=3", "from_epoch", "goes with kind=linear and kind=cosine"),
                ("kind=cosine end_epoch=9 from_epoch=1 warmup_epochs=2", "from_epoch", "end of the warm-up (2.0)"),
                ("kind=cosine end_epoch=9 from_epoch=9", "end_epoch", "> from_epoch (9.0)"),
                ("kind=linear end_epoch=2 warmup_epochs=2", "end_epoch", "> warmup_epochs (2.0)"),
                ("kind=linear end_epoch=nan", "end_epoch", "> warmup_epochs (0.0)"),
                ("warmup_epochs=5 at_epochs=[3,9]", "at_epochs", "not lie before the end of the warm-up (5.0)"),
            )
        ),
        # Strategies, on a cluster of four workers.
        (
            "strategy=adasync;strategy.variant=k_batch_sync;strategy.k=3;strategy.k_cap=2",
            "strategy.k_cap",
            ">= strategy.k",
        ),
        ("strategy=k_async;strategy.k=5", "strategy.k", "<= cluster.workers = 4"),
        ("strategy=backup;strategy.backups=4", "strategy.backups", "< cluster.workers = 4, or no gradient is used"),
        *(
            (f"strategy=ds_sync;{word}", "strategy=ds_sync needs a grid", GRID)
            for word in (*(f"cluster.workers={num}" for num in (1, 2, 3, 5, 7)), "strategy.group_size=3")
        ),
        *(
            (f"strategy={name};cluster.shards=3", f"strategy={name} needs one logical server", "must be 1, got 3")
            for name in (*("dssp", "adasync", "rennala", "ringmaster"), *STRATEGIES_OF_K)
        ),
        ("strategy=ds_sync;cluster.shards=2", "strategy=ds_sync has no server", "cluster.shards must be 1, got 2"),
        ("strategy=bsp;strategy.topology=allreduce;cluster.shards=2", "strategy=bsp has no server", "must be 1, got 2"),
        # Real processes, and several hosts of them.
        *(
            (f"runner=local;{words}", key, allowed)
            for words, key, allowed in (
                ("strategy=bsp;runner.initial_workers=2", "runner.initial_workers", "null: strategy=bsp needs all"),
                ("target.value=0.9", "a target", "needs runner.evaluate=during"),
                ("gradients=false", "runner=local", "gradients must be true"),
                ("dataset.sharing=shared", "dataset.sharing", "partition for runner=local with a parameter server"),
            )
        ),
        *(
            (";".join(["runner=multinode", "hosts=[a,b,c]", *words.split()]), f"runner.{key}", allowed)
            for words, key, allowed in (
                ("runner.nodes=2", "nodes", "must be 3, as many as runner.hosts, or null"),
                ("runner.start=rsh", "start", "must be one of ssh, srun, command"),
                ("runner.start_command=x", "start_command", "goes with start=command, got 'x' with start=ssh"),
                ("runner.start=command", "start_command", "goes with start=command, got '' with start=command"),
                (
                    "runner.start=command runner.start_command=x runner.start_options=[-v]",
                    "start_options",
                    "must be empty unless start is ssh or srun",
                ),
                ("runner.nproc_per_node=[1,2]", "nproc_per_node", "must hold one number, 3 or none"),
                ("runner.nproc_per_node=[1,2,2]", "nproc_per_node", "must come to 4 ranks"),
                ("runner.nproc_per_node=[1,3,0]", "nproc_per_node", "must be in 1 .. 100,000"),
                ("runner.nproc_per_node=[2]", "nproc_per_node", "must come to 4 ranks"),
                ("runner.nproc_per_node=[1,1,2] runner.shards_on=own", "nproc_per_node", "must come to 5 ranks"),
                ("runner.hosts=[a,b,c,d,e]", "hosts", "must be at most 4, a rank each"),
                ("runner.master_port=0", "master_port", "must be in 1 .. 65535"),
                ("runner.shards_on=moon", "shards_on", "must be one of workers, own"),
                ("runner.ports=80-90", "ports", "must be LOW-HIGH in 1024 .. 65535 or empty"),
                ("runner.ports=2000", "ports", "must be LOW-HIGH in 1024 .. 65535 or empty"),
                ("runner.interface=10.0.0.1/8", "interface", "must be a name or an IPv4 network such as 10.0.0.0/16"),
                ("runner.hosts=[a,a,b]", "hosts", "must differ"),
                ("runner.hosts=[a,b,-oX]", "hosts", "must be names or addresses, got ['-oX']"),
            )
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_key_and_what_is_allowed(
    overrides: str, key: str, allowed: str
) -> None:
    assert_refused(overrides.split(";"), key, allowed)
