# A few targets do everything; `make help` lists them and the papers' artefacts.
PYTHON ?= python3
SCALE ?= laptop
SEEDS ?=
BUDGET ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXPERIMENTS := $(basename $(patsubst conf/experiment/%,%,$(wildcard conf/experiment/*/*.yaml)))
ARTEFACTS := $(subst /,-,$(EXPERIMENTS))
PAPERS := $(sort $(patsubst %/,%,$(dir $(EXPERIMENTS))))
RESULTS := $(lastword $(patsubst results=%,%,$(filter results=%,$(ARGS))))
INTO := $(if $(RESULTS),--results $(RESULTS))
CORES = $(shell $(PYTHON) -c "import os; print(os.cpu_count())")
PYTEST := $(BIN)/python -m pytest --dist loadgroup
SCALED := scale=$(SCALE) $(if $(SEEDS),'scale.seeds=[$(SEEDS)]') $(ARGS)

# Runs, then their report, if there is a plan: experiment, its plans' names, further words.
define made
@$(BIN)/python run.py +experiment=$(1) $(SCALED) $(3); code=$$?; \
	ls $(or $(RESULTS),results)/plans/$(2)-$(SCALE).json > /dev/null 2>&1 || exit $$code; \
	$(BIN)/python -m reports $(1) --scale $(SCALE) $(INTO) || code=1; exit $$code
endef

.DEFAULT_GOAL := help
.PHONY: help setup run check test test-all race papers report docs bench fidelity calibration kills hosts cuts races clean $(PAPERS) $(ARTEFACTS)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@for name in $(ARTEFACTS); do \
		printf "  %-14s %s\n" $$name "$$(sed -n "s/^title: //p" conf/experiment/$$(echo $$name | tr - /).yaml | tr -d \")"; done
	@echo "  $(PAPERS)"
	@echo "                 all artefacts of a paper, and what became of its claims"
	@echo "  These take SCALE=smoke|laptop|workstation|gpu|paper (default laptop), SEEDS=0,1,2 and ARGS=\"key=value ...\"."

setup: $(READY) ## make the virtual environment .venv from requirements.lock

$(READY): requirements.lock pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@# On all cores, which pip does not. With PYTHONDONTWRITEBYTECODE set, each of a run's many processes would
	@# otherwise compile all that it imports. (One file of torch, for a newer Python, does not compile.)
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib src runners reports || true
	@touch $@

run: $(READY) ## one run: make run ARGS="strategy=dssp model=resnet20"
	$(BIN)/python run.py $(ARGS)

check: $(READY) ## format, lint, types, who imports whom: exactly what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(READY) ## what every change runs: make test ARGS="-k dssp"
	$(PYTEST) -n $$(($(CORES) * 3 / 2)) -m "core or not (papers or system or processes or statistical or slow)" $(ARGS)

# Two workers per core: many of these tests wait for processes, and for time to pass.
test-all: $(READY) ## all tests: exactly what CI runs
	$(PYTEST) -n $$(($(CORES) * 2)) --hypothesis-profile=ci --durations=25 $(ARGS)

race: $(READY) ## which strategy first? A small race on the default cluster (2 minutes): make race ARGS="cluster=lab"
	$(BIN)/python run.py +race=first model=mlp epochs=10 eval_every_epochs=0.1 target.value=0.93 race.confirm=2 $(ARGS)

papers: $(READY) ## every table, figure and claim of all papers: make papers SCALE=laptop; with BUDGET=6h where undecided
	$(call made,all,*,$(if $(BUDGET),+judge=claims judge.budget=$(BUDGET)))

report: $(READY) ## the pages that show them: results/site/index.html; each claim at its best scale, or all at SCALE
	$(BIN)/python -m reports site $(if $(filter file,$(origin SCALE)),,--scale $(SCALE)) $(INTO)

docs: $(READY) ## write the tables of the documentation anew, from reference/
	$(BIN)/python -m reports docs

bench: $(READY) ## side-by-side measurements of speed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

fidelity: $(READY) ## does the simulator predict what real processes do? (4 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.fidelity && $(BIN)/python -m reports fidelity

calibration: $(READY) ## does a profile that was measured foresee other strategies? Also on emulated hosts, as root (60 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.calibration $(ARGS)

kills: $(READY) ## 300 parts of small runs of real processes are killed; as root also hosts (20 minutes)
	$(BIN)/python -m benchmarks.kills $(ARGS)

hosts: $(READY) ## does the simulator predict runs over several hosts? Emulated ones, as root (45 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.hosts $(ARGS)

cuts: $(READY) ## a host is cut off and comes back; packets are lost or late: each strategy, as root (8 minutes)
	$(BIN)/python -m benchmarks.cuts $(ARGS)

races: $(READY) ## do real processes confirm races? On local workers and on emulated hosts, as root (6 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.races $(ARGS)

clean: ## remove the virtual environment and caches; records stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(PAPERS): $(READY)
	$(call made,$@,$@-*)

$(ARTEFACTS): $(READY)
	$(call made,$(subst -,/,$@),$@)
