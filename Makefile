# Everything runs in .venv of this folder. Needed: Python 3.11 or newer. For the tests on a real Kafka
# also Java 17 and Maven (or Docker, or KAFKA_BOOTSTRAP_SERVERS); for some others prometheus and chromium.

PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3; do \
	if command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$p; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install demo test lint format typecheck unit bench docs wheel clean

help: ## What there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */\1\t/' | expand -t 12

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
	$(BIN)/pytest --durations=15

bench: $(VENV)/.installed-dev ## Benchmarks
	@for file in $$(find tests/bench -name 'bench_*.py' | sort); do echo "== $$file"; PYTHONPATH=. $(BIN)/python $$file || exit 1; done

docs: $(VENV)/.installed ## Generated parts: schemas/ and docs/configuration.md
	$(BIN)/python -m cockpithat.contract.schema --write schemas
	$(BIN)/python -m stream.settings > docs/configuration.md

wheel: $(VENV)/.installed-dev ## Build the wheel into dist/
	$(PIP) wheel -q --no-deps -w dist .

clean: ## Remove what was built, .venv and caches
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
