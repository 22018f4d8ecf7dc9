# Each target makes .venv itself, once, and again when pyproject.toml or constraints.txt change.
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DOCS := $(VENV)/.installed-docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# tests run on one thread, so that they take no more of a machine than they need and fail alike everywhere
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: demo test test-slow lint format bench clean
.DEFAULT_GOAL := demo

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; make PYTHON=... names one")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[recbole,report,dp,serve,dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/fedrec run configs/demo.yaml

test: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python -m pytest

test-slow: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python -m pytest -m 'slow or not slow'

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python -m benchmarks

ifneq ($(wildcard docs/conf.py),)
.PHONY: docs
$(INSTALLED_DOCS): $(INSTALLED)
	$(PIP) -e '.[docs]'
	touch $@

docs: $(INSTALLED_DOCS)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
endif

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
