# Everything on a fresh machine in one command: `make demo` or `make test`.
# Another interpreter: make test PYTHON=python3.12. Another place: make test VENV=/tmp/crg.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PINS := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test bench lint golden clean

help: ## list the commands
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12 | sed 's/^/make /'

demo: $(VENV)/.core ## install what is needed and show the methods at work
	@$(BIN)/crg demo

test: lint ## install everything, then lint, types, layers and tests
	@echo "== pytest"
	@$(BIN)/python -m pytest

lint: $(VENV)/.all ## ruff, mypy --strict and import-linter
	@echo "== ruff check"
	@$(BIN)/ruff check .
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict"
	@$(BIN)/mypy --strict
	@echo "== lint-imports"
	@$(BIN)/lint-imports

bench: $(VENV)/.all ## measure the cost of a step and write docs/performance.*
	@$(BIN)/python benchmarks/step.py --write

golden: $(VENV)/.all ## write the golden runs anew, after a change that is meant to change them
	@$(BIN)/python tests/golden_runs.py

clean: ## remove the virtual environment and every cache
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist report.html
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@echo "Making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: name one with PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# A stamp is newer than the pins exactly when what it stands for is installed as pinned.
$(VENV)/.core: $(PINS) | $(VENV)/bin/python
	@echo "Installing crg into $(VENV)"
	@$(PIP) --editable '.[report]'
	@touch $@

$(VENV)/.all: $(PINS) | $(VENV)/bin/python
	@echo "Installing crg with all extras and the tools into $(VENV) (a few minutes at first)"
	@$(PIP) --editable '.[torch,fast,openclip,onnx,export,huggingface,diffusion,ray,report,dev]'
	@touch $@ $(VENV)/.core
