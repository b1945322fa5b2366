# `make demo` and `make test` do all the set-up they need; nothing else has to be installed but Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test lint docs clean

demo: $(STAMP)
	$(BIN)/trivet run recipes/demo.yaml --out studies/demo

test: $(STAMP) lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal src tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports
	$(BIN)/codespell src docs recipes examples benchmarks scripts README.md CONTRIBUTING.md CHANGELOG.md

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trivet needs Python 3.11 or newer, this is " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) site .pytest_cache .ruff_cache .hypothesis
