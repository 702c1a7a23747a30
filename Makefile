# A few words do everything; `make help` lists them and the papers' artefacts.
PYTHON ?= python3
SCALE ?= laptop
SEEDS ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARTEFACTS := $(subst /,-,$(basename $(patsubst conf/experiment/%,%,$(wildcard conf/experiment/*/*.yaml))))

.DEFAULT_GOAL := help
.PHONY: help setup run check test bench fidelity kills clean $(ARTEFACTS)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@for name in $(ARTEFACTS); do \
		printf "  %-14s %s\n" $$name "$$(sed -n 's/^title: //p' conf/experiment/$$(echo $$name | tr - /).yaml)"; done
	@echo "  An artefact takes SCALE=smoke|laptop|gpu|paper|timing (default laptop; not all have each) and SEEDS=0,1,2."

setup: $(READY) ## make the virtual environment .venv from requirements.lock

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

run: $(READY) ## one run: make run ARGS="strategy=dssp model=resnet20"
	$(BIN)/python run.py $(ARGS)

check: $(READY) ## format, lint, types, who imports whom: exactly what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(READY) ## all tests: make test ARGS="-k dssp"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto $(ARGS)

bench: $(READY) ## side-by-side measurements of speed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

fidelity: $(READY) ## does the simulator foresee what real processes do? (4 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.fidelity

kills: $(READY) ## 50 small runs of real processes, a worker killed in each (20 minutes)
	$(BIN)/python -m benchmarks.kills $(ARGS)

clean: ## remove the virtual environment and caches; records stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(ARTEFACTS): $(READY)
	@$(BIN)/python run.py +experiment=$(subst -,/,$@) scale=$(SCALE) $(if $(SEEDS),'scale.seeds=[$(SEEDS)]') $(ARGS); \
		code=$$?; [ -e results/plans/$@-$(SCALE).json ] || exit $$code; \
		$(BIN)/python -m reports $(subst -,/,$@) --scale $(SCALE) || code=1; exit $$code
