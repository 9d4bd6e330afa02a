# Two commands do everything: `make demo` shows what this is, `make test` proves it. Both make .venv themselves.

PYTHON ?= python3
BIN := .venv/bin

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

bundled: .venv/.dev  ## make the bundled world and its tokenizer again
	$(BIN)/python -m memenvs.build.bundled data

.venv/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.dev: .venv/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv
