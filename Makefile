# `make setup`, `make demo` and `make test` are all a user needs; each makes .venv where there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run-stamp
DEV := $(VENV)/.dev-stamp
WORKERS ?= 2
# Where it is set, each worker and each command that a test starts compiles all of Berth and its tests anew.
unexport PYTHONDONTWRITEBYTECODE
FUZZ_SECONDS ?= 1800
OLDER ?= 1.36.3 1.35.4

.PHONY: help setup demo check test test-older test-long e2e fuzz-parity mixed-parity mutants bench bench-engine bench-cluster scoreboard spec golden manifests format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Berth needs Python 3.11 or later; say which with PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml requirements.lock dsl/grammar.lark | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(DEV): tests/requirements.lock $(RUN)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement tests/requirements.lock
	@touch $@

setup: $(RUN) ## a .venv with the command berth, to use it

demo: $(RUN) ## see it work in half a minute: embedded cluster, nothing to install
	@$(BIN)/berth demo

check: $(DEV) ## format, lint, types, import contracts, fast tests; under a minute
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }
	@$(BIN)/pytest -q -n $(WORKERS) -m "not cluster and not bench and not slow"

test: check ## everything that gates, real API server and Prometheus included
	@EFFORT=1 $(BIN)/pytest -q -n $(WORKERS) -m "(slow or sized or hypothesis) and not cluster"
	@$(BIN)/pytest -q -m cluster

test-older: $(DEV) ## the tests on a real API server of the two minor versions before (OLDER, built first)
	@for version in $(OLDER); do KUBERNETES=$$version $(BIN)/pytest -q -m cluster tests/cluster || exit 1; done

test-long: $(DEV) ## many more examples and seeds, half an hour of fuzzing (FUZZ_SECONDS)
	@EFFORT=20 $(BIN)/pytest --timeout 3600 -q -n $(WORKERS) -m "not cluster and not bench"
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

e2e: $(DEV) ## Kubernetes' own end-to-end tests of scheduling, with Berth as default-scheduler (FLAGS)
	@$(BIN)/python -m tests.e2e $(FLAGS)

fuzz-parity: $(DEV) ## random cases against kube-scheduler's own libraries (ORACLE=program, CASES, SEED)
	@ORACLE=$(ORACLE) $(BIN)/python -m tests.conformance.fuzz --cases $(or $(CASES),24000) --seed $(or $(SEED),0)

mixed-parity: $(DEV) ## 2,000 mixed pods on a real API server, each decision against the same (ORACLE=program, FLAGS)
	@ORACLE=$(ORACLE) $(BIN)/python -m tests.conformance.mixed $(FLAGS)

mutants: $(DEV) ## would a test notice a small change of plan, lowering, turns or reference? an hour or more
	@EFFORT=0.2 $(BIN)/python -m tests.mutants $(MUTANTS)

bench: $(DEV) ## how fast, as a table and JSON lines
	@$(BIN)/python -m tests.bench

scoreboard: $(DEV) ## what is said of wrong texts, against the base line (SHOW="lost wrong" lists)
	@$(BIN)/python -m tests.scoreboard $(SHOW)

bench-engine: $(DEV) ## decisions of all kinds, and beside a yardstick (ORACLE=path: and the real one)
	@ORACLE=$(ORACLE) $(BIN)/python -m tests.bench.workloads
	@$(BIN)/python -m tests.bench.beside
	@ORACLE=$(ORACLE) $(BIN)/python -m tests.bench.engine

bench-cluster: $(DEV) ## end to end beside kube-scheduler, pods of all kinds (FLAGS="--nodes 500 --only mixed")
	@$(BIN)/python -m tests.bench.backlogs $(FLAGS)

spec: $(DEV) ## the language's specification alone
	@$(BIN)/pytest -q tests/spec

manifests: $(DEV) ## make the base of deploy/kustomize from the chart anew, and what the chart knows of a configuration
	@$(BIN)/python -m tests.cluster.manifests

golden: $(DEV) ## write recorded texts anew; read the diff before committing it
	@$(BIN)/pytest -q tests/spec --update

format: $(DEV) ## format the code
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

clean: ## remove what was made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
