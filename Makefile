# Two commands do everything: `make demo` and `make test`.  Both first make .venv and install into it, once.
# make test: what a contributor runs at each commit, twelve minutes on two cores.  Which tests these are: tests/tiers.
#   make test ROOM=reshard   all tests of one room         make test SHARE=3   another tenth of the dear tests than this commit's
VENV    ?= .venv
EXTRAS  ?= dev,examples
# The versions that pip installs.
CONSTRAINTS ?= constraints.txt
# How many test processes: one per core.
WORKERS ?= auto
TESTS   := $(if $(ROOM),$(wildcard tests/unit/$(ROOM) hlosharding/$(ROOM)),--quick $(SHARE:%=--share %))
# Tests take between a millisecond and a minute: who has none left takes some of another process's.
# What pytest makes of a test's asserts is kept for the next run, also where an environment keeps no bytecode.
PYTEST  := PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal

BIN   := $(VENV)/bin
STAMP := $(VENV)/.hlosharding-installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint format pytest record newest oldest docs release bench bench-gpu-compile bench-search bench-interop onnx-models setup-onnx-models golden clean

help:           ## this list
	@grep -hE '^[a-z-]+: .*##' Makefile | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | column -t -s "$$(printf '\t')"

setup: $(STAMP) ## .venv with everything installed

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@test -x $(BIN)/python || .ci/shown "making $(VENV)" "$${PYTHON:-$$(.ci/find-python)}" -m venv $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade
	@.ci/shown "installing into $(VENV)" $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c $(CONSTRAINTS) -e '.[$(EXTRAS)]'
	@touch $@

demo: setup     ## the main job: a GPT-2 training step sharded, explained and run
	$(BIN)/python examples/gpt2_training.py

test: lint pytest ## linters, types, all cheap tests, a tenth of the dear ones (SHARE=3: which); ROOM=reshard: one room's

test-all: lint  ## linters, types, all tests: an hour; writes down what each takes, for `make test`
	$(PYTEST) --record-cpu-seconds

record: setup   ## the tests of `make test`; writes down what each takes, where many are new
	$(PYTEST) $(TESTS) --record-cpu-seconds

lint: setup     ## ruff, pyright, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

pytest: setup   ## the tests of `make test`
	$(if $(TESTS),,$(error there is no room $(ROOM)))
	$(PYTEST) $(TESTS)

newest:         ## a short set on the newest JAX, where the machine has Python 3.12 or 3.13
	@WORKERS=$(WORKERS) .ci/newest

oldest:         ## the cheap tests on the least versions that pyproject.toml allows
	@WORKERS=$(WORKERS) .ci/oldest

docs: setup     ## the site, into site/ (installs the extra docs)
	@.ci/shown "installing the extra docs" $(BIN)/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

release: setup  ## wheel and sdist of this version, checked, installed into an empty environment and tried (installs the extra release)
	@.ci/shown "installing the extra release" $(BIN)/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS) -e '.[release]'
	@VENV=$(VENV) .ci/release

format: setup   ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup    ## every benchmark table against live XLA, into docs/benchmarks.md
	$(BIN)/python -m benchmarks

bench-gpu-compile: setup ## the zoo compiled for eight H100s that need not be there (installs the extra cuda12)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[cuda12]'
	$(BIN)/python -m benchmarks.gpu_compile

bench-search: setup ## plans: the DistIR paper's tables, runs against one device, prices against measurements, memory, simulation's speed
	status=0; for table in plan_speed paper_plans pipeline_runs accuracy temp_memory simulation_scaling; do \
	  $(BIN)/python -m benchmarks.$$table || status=1; done; exit $$status

bench-interop: setup ## ONNX's node tests, partitioned too; Shardy's propagation and reshards beside ours
	status=0; for table in onnx_nodes against_shardy mesh_reshards; do $(BIN)/python -m benchmarks.$$table || status=1; done; exit $$status

onnx-models: setup-onnx-models ## real models, exported by PyTorch, against ONNX Runtime (installs the extra onnx-models)
	$(BIN)/python -m pytest -q -n $(WORKERS) tests/onnx_models

setup-onnx-models: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[onnx-models]'

golden: setup   ## write the golden files anew; review the diff
	$(BIN)/python -m pytest tests/golden --update-golden

clean:          ## remove .venv and caches
	rm -rf $(VENV) .venv-newest .venv-oldest site build dist out .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
