# Each verb sets itself up in .venv with pip; you need only Python 3.11 or newer.
# Another Python: make PYTHON=python3.12 demo. Options for pip: make PIP_ARGS="--index-url ..." setup.
# Versions are those of constraints.txt; the newest that pyproject.toml allows: make CONSTRAINTS= setup.

PYTHON ?= python3
PIP_ARGS ?=
CONSTRAINTS ?= constraints.txt
WORKERS ?= 2
MARKS ?= not long
DATA ?=
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is left to the first import, which halves the time to a first front.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet
PIP := $(PIP_INSTALL) --no-compile $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) $(PIP_ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup dev demo stack stack-engine test lint format docs bench constraints lowest release clean

help:
	@echo "make setup    install the runtime into .venv"
	@echo "make dev      install the developer tools too"
	@echo "make demo     run a sweep on scikit-learn's digits: a front in 10 to 15 seconds on two cores of an AMD EPYC, in sweeps-out/"
	@echo "make stack    run docker-compose.yml without Docker: PostgreSQL, MLflow, Ray, the service; Ctrl-C ends it"
	@echo "make stack-engine  run docker-compose.yml on this machine's Docker engine: sweeps, kills, down and up; prints a table"
	@echo "make test     run the tests, warnings as errors; MARKS=long runs the long ones"
	@echo "make lint     ruff, mypy --strict, import-linter"
	@echo "make format   let ruff rewrite the code"
	@echo "make docs     build the user guide into site/, warnings as errors"
	@echo "make bench    measure against peers; prints tables. DATA=FOLDER with local data sets runs all of them"
	@echo "make constraints  resolve the versions in constraints.txt anew; installs nothing"
	@echo "make lowest   run the tests with the lowest versions that pyproject.toml allows, in an environment of their own"
	@echo "make release  VERSION=0.2.0: build and try the wheel, write the notes, tag; pushes nothing"
	@echo "make clean    remove .venv and what was built"

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "installing into $(VENV): a few minutes, once"
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "installing the developer tools into $(VENV)"
	$(PIP) --editable ".[dev]"
	@$(BIN)/python -W ignore -m compileall -q -q -j 0 $(VENV)/lib || true # else -W error meets others' warnings
	@touch $@

setup: $(VENV)/.runtime
	@echo "ready: $(BIN)/sweeper"

dev: $(VENV)/.dev
	@echo "ready: $(BIN)/python -m pytest, $(BIN)/sweeper"

demo: $(VENV)/.runtime
	$(BIN)/sweeper run sweeps/digits.yaml --out sweeps-out

$(VENV)/.stack: $(VENV)/.runtime
	$(PIP) --editable ".[stack]"
	@touch $@

stack: $(VENV)/.stack
	$(BIN)/python -m tools.stack --workers $(WORKERS)

stack-engine: $(VENV)/.dev
	$(BIN)/python benchmarks/stack_engine.py --workers $(WORKERS)

test: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -W error -n $(WORKERS) --dist loadscope --no-loadscope-reorder -m "$(MARKS)"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev
	@set -e; for name in neighbours places audits audits_sweep step_time step_scaling overhead large_store live_page kills account_kills stack_faults service_load service_fuzz mcp_fuzz; do echo "== $$name"; $(BIN)/python benchmarks/$$name.py; done
	@set -e; for name in thesis $(if $(DATA),tabular); do \
		echo "== $$name"; $(BIN)/python benchmarks/$$name.py $(if $(DATA),--data-dir $(DATA)); done

constraints: $(VENV)/.python
	$(PIP_INSTALL) $(PIP_ARGS) --dry-run --ignore-installed --report $(VENV)/resolved.json --editable ".[dev]"
	$(BIN)/python -m tools.constraints $(VENV)/resolved.json > $(VENV)/constraints.txt
	mv $(VENV)/constraints.txt constraints.txt

lowest: $(VENV)/.python
	$(BIN)/python -m tools.constraints --lowest > $(VENV)/lowest.txt
	$(MAKE) VENV=$(VENV)/lowest CONSTRAINTS=$(VENV)/lowest.txt test

release: $(VENV)/.dev
	$(BIN)/python -m tools.release "$(VERSION)" $(PIP_ARGS)

clean:
	rm -rf $(VENV) site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
