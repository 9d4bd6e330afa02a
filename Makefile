# Two commands do everything: `make demo` shows what this is, `make test` proves it. Both make .venv themselves.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint types layers unit bench bundled clean

demo: .venv/.core  ## build a world, play it, show the scores
	$(BIN)/python examples/demo.py

test: lint types layers unit  ## everything that a change must pass

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

layers: .venv/.dev
	$(BIN)/lint-imports

unit: .venv/.dev
	$(BIN)/python -m pytest -n 2

bench: .venv/.dev  ## the measurements behind docs/benchmarks.md
	$(BIN)/python -m benchmarks.reading
	$(BIN)/python -m benchmarks.niah
	$(BIN)/python -m benchmarks.sokoban
	$(BIN)/python -m benchmarks.search

bundled: .venv/.dev  ## make the bundled world and its tokenizer again
	$(BIN)/python -m memenvs.build.bundled data

.venv/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -c constraints.txt -e .
	touch $@

# torch first: 2.13.0 is a CPU build where these tests run; what depends on it would bring gigabytes of CUDA
.venv/.dev: .venv/.core
	$(PIP) torch==2.13.0
	$(PIP) -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv
