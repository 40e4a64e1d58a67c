# Every target makes .venv itself, from a bare clone with Python >= 3.11 and nothing else: the core for `make demo`, and
# in the same place all that the tests need, torch among it, for the others. A stamp says which of both is there.
PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt
CORE   := .venv/.core
READY  := .venv/.ready

.PHONY: demo test lint bench gpu-test browser-test annif-test security soak fuzz mutants docs clean
.DEFAULT_GOAL := test

$(CORE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "longtail needs Python >= 3.11; run e.g. make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "installing the core of longtail into .venv: some 500 MB, about half a minute"
	@$(PYTHON) -m venv .venv
	@$(PIP) --no-compile --editable .
	@touch $@

$(READY): $(CORE)
	@echo "installing what the tests need into .venv: torch among it, 3 GB more, some minutes"
	@$(PIP) --editable '.[dev]'
	@touch $@

demo: $(CORE)   ## the bundled sample through the commands
	$(BIN)/longtail demo

test: lint   ## everything CI runs, on up to four cores
	$(BIN)/pytest --numprocesses auto --maxprocesses 4

lint: $(READY)   ## style, forbidden calls, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/style_counts.py --check
	$(BIN)/python scripts/forbidden_calls.py src scripts benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY)   ## reading and metrics, for which the repository has all data
	@for script in reading metrics; do $(BIN)/python benchmarks/$$script.py || exit 1; done

fuzz: $(READY)   ## long fuzzing of every parser (FUZZ_RUNS executions each)
	$(PIP) atheris
	FUZZ_RUNS=$${FUZZ_RUNS:-200000} $(BIN)/python -m tests.fuzz

mutants: $(READY)   ## breaks modules on purpose (MODULES, else all), SAMPLE places in each: how many do tests see
	$(PIP) mutmut
	PYTHONPATH=scripts $(BIN)/python -m mutants $(MODULES) --sample $${SAMPLE:-20} --seed $${SEED:-0}

HOSTILE := tests/security tests/contract/test_golden_models.py tests/faults/test_damaged_folders.py tests/fuzz \
  tests/unit/data/test_bad_input.py tests/unit/data/test_lines.py tests/unit/server/test_server_limits.py \
  tests/unit/server/test_server_overload.py tests/unit/server/test_server_reload.py \
  tests/unit/server/test_server_connections.py tests/unit/server/test_server_request_source.py \
  tests/contract/test_serve_schema.py tests/unit/store tests/unit/report/test_report_page.py \
  tests/browser/test_page_safety.py

security: $(READY)   ## hostile folders, inputs and requests as one job; known holes of the pinned versions
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 $(HOSTILE)
	$(BIN)/python tests/security/audit_packages.py constraints.txt

soak: $(READY)   ## hundreds of kills, signals, failing disks, hostile folders and malformed inputs (SEED)
	$(BIN)/python -m tests.faults.soak --seed $${SEED:-0}
	HOSTILE_STEP=7 $(BIN)/pytest tests/security/test_hostile_models.py -s

gpu-test: $(READY)   ## tests that need a CUDA device; torch in .venv must be a build with CUDA
	$(BIN)/pytest -m gpu tests/gpu

browser-test: $(READY)   ## the page in a real browser
	$(PIP) playwright
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium; } || \
	  { echo "browser-test needs Chromium: apt install chromium, as root"; exit 2; }
	$(BIN)/pytest -m browser tests/browser

annif-test:   ## the backend inside the real Annif, in an environment of its own
	PYTHON=$(PYTHON) sh tests/annif/run.sh

docs: $(READY)   ## the documentation as a site without a network, in site/; checks that its links and code blocks hold
	$(PIP) --editable '.[docs]'
	$(BIN)/mkdocs build --strict --quiet
	$(BIN)/pytest tests/test_readme.py tests/test_start_page.py tests/test_docs.py tests/test_docs_site.py

clean:
	rm -rf .venv .venv-annif .pytest_cache .mypy_cache .ruff_cache demo site
