# Everything on a fresh machine in one command: `make demo` or `make test`.
# Another interpreter: make test PYTHON=python3.12. Another place: make test VENV=/tmp/crg.
# More processes for the tests: make test WORKERS=8.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Every file that is downloaded is one of those that the index had when the pins were made.
HASHED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	--only-binary :all: --require-hashes --requirement
OURS := $(PIP) --no-deps --no-build-isolation --editable .
# Waiting BLAS threads of several workers would spin against each other.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Images for containers set this, and then each of the tests' processes compiles torch for itself.
unexport PYTHONDONTWRITEBYTECODE
# In a variable, because make -n would run every line that names MAKE itself.
STYLE = $(MAKE) --no-print-directory style
PINS := pyproject.toml constraints.txt $(wildcard requirements/*.txt)

.DEFAULT_GOAL := help
.PHONY: help demo test bench soak docs lint style golden pins dist clean

help: ## list the commands
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12 | sed 's/^/make /'

demo: $(VENV)/.core ## install what is needed and show the methods at work
	@$(BIN)/crg demo
	@echo "Your own images: $(BIN)/crg predict --help. A live page for them: $(BIN)/python -m pip install -c constraints.txt -e '.[server]', then $(BIN)/crg serve --model mini."

# Style and types are checked beside the tests, which check the layers; what they say comes after.
test: $(VENV)/.all ## install everything, then lint, types, layers and tests
	@said=$$(mktemp); $(STYLE) >"$$said" 2>&1 & style=$$!; \
	echo "== pytest"; tests=0; $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder || tests=$$?; \
	failed=0; wait $$style || failed=$$?; cat "$$said"; rm -f "$$said"; \
	if [ $$failed != 0 ]; then echo "Style or types failed: see above."; fi; \
	if [ $$tests != 0 ]; then exit $$tests; fi; exit $$failed

lint: style ## ruff, mypy --strict and import-linter
	@echo "== lint-imports"
	@$(BIN)/lint-imports

style: $(VENV)/.all
	@echo "== ruff check"
	@$(BIN)/ruff check .
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict"
	@$(BIN)/mypy --strict

bench: $(VENV)/.all ## measure the cost of a step and write docs/performance.*
	@$(BIN)/python benchmarks/step.py --write

# MINUTES=5 for a short one; SEED=1 for other cases. See tools/soak.py.
soak: $(VENV)/.all ## attack the package for an hour and count what was handled
	@$(BIN)/python tools/soak.py --minutes $(or $(MINUTES),60) --seed $(or $(SEED),0)

docs: $(VENV)/.all ## build the documents and an API reference as a site in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "Open it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

golden: $(VENV)/.all ## rewrite golden runs and outputs of notebooks after an intended change
	@$(BIN)/python tests/test_golden.py
	@$(BIN)/python tools/notebooks.py docs/notebooks/*.ipynb

dist: $(VENV)/.core ## build the wheel and the source archive into dist/
	@$(PIP) build
	@$(BIN)/python -m build --no-isolation --outdir dist

# torch stays out: its builds for CPU and GPU come from other indexes, with other needs and hashes.
LOCK = echo 'torch ; python_version < "3"' | $(BIN)/uv pip compile --quiet pyproject.toml \
	--universal --generate-hashes --no-annotate --custom-compile-command 'make pins' \
	--constraint constraints.txt --override - --group build

pins: $(VENV)/bin/python ## rewrite requirements/*.txt from constraints.txt and the index
	@$(PIP) uv
	@$(LOCK) --extra report --output-file requirements/demo.txt
	@$(LOCK) --all-extras --output-file requirements/test.txt

clean: ## remove the virtual environment and every cache
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site report.html
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@echo "Making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: name one with PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# A stamp is newer than the pins exactly when what it stands for is installed as pinned.
$(VENV)/.core: $(PINS) | $(VENV)/bin/python
	@echo "Installing crg into $(VENV)"
	@$(HASHED) requirements/demo.txt
	@$(OURS)
	@touch $@

# Most modules of the large libraries are never imported: those that are get compiled then.
$(VENV)/.all: $(PINS) | $(VENV)/bin/python
	@echo "Installing crg with all extras and the tools into $(VENV) (a few minutes at first)"
	@$(HASHED) requirements/test.txt --no-compile
	@$(PIP) --no-compile torch # without hashes: see pins
	@$(OURS)
	@touch $@ $(VENV)/.core
