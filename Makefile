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
# In the order of tests/conftest.py: xdist's own begins with the groups of most tests, which are not the longest.
PYTEST := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder
SCALED := scale=$(SCALE) $(if $(SEEDS),'scale.seeds=[$(SEEDS)]') $(ARGS)

# Runs, then their report, if there is a plan: the command that makes them, what is reported, the names of its plans.
define made
@$(BIN)/syncline $(1) $(SCALED); code=$$?; \
	ls $(or $(RESULTS),results)/plans/$(3)-$(SCALE).json > /dev/null 2>&1 || exit $$code; \
	$(BIN)/syncline report $(2) --scale $(SCALE) $(INTO) || code=1; exit $$code
endef

.DEFAULT_GOAL := help
.PHONY: help setup run check test test-all race papers report docs bench clean $(PAPERS) $(ARTEFACTS)

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
	$(BIN)/syncline run $(ARGS)

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
	$(BIN)/syncline race model=mlp epochs=10 eval_every_epochs=0.1 target.value=0.93 race.confirm=2 $(ARGS)

papers: $(READY) ## every table, figure and claim of all papers: make papers SCALE=laptop; with BUDGET=6h where undecided
	$(call made,$(if $(BUDGET),judge all judge.budget=$(BUDGET),run +experiment=all),all,*)

report: $(READY) ## the pages that show them: results/site/index.html; each claim at its best scale, or all at SCALE
	$(BIN)/syncline report site $(if $(filter file,$(origin SCALE)),,--scale $(SCALE)) $(INTO)

docs: $(READY) ## write the tables of the documentation anew, from reference/
	$(BIN)/syncline report docs

bench: $(READY) ## side-by-side measurements of speed; make bench ARGS=races: one that takes longer (ARGS=--help)
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove the virtual environment and caches; records stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(PAPERS): $(READY)
	$(call made,run +experiment=$@,$@,$@-*)

$(ARTEFACTS): $(READY)
	$(call made,run +experiment=$(subst -,/,$@),$(subst -,/,$@),$@)
