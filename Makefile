# Two commands set everything up on a machine with Python >= 3.11:  make demo  ·  make test
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= runs
PORT   ?= 5000
WORKERS ?= 2
STAMP  := $(VENV)/.installed
export RAY_USAGE_STATS_ENABLED = 0
export MLFLOW_DISABLE_TELEMETRY = true
export DO_NOT_TRACK = true

.PHONY: help install demo test test-quick test-slow test-plain test-gpu lint bench soak golden docs size ui clean
help:
	@echo "make demo       run the main job on the embedded data: tables, heatmaps, one HTML page"
	@echo "make test       lint and the quick test suite, side by side"
	@echo "make test-quick the quick test suite alone"
	@echo "make test-slow  the tests marked slow"
	@echo "make test-plain the numeric tests on the plainest x86 kernels"
	@echo "make test-gpu   CUDA against the CPU; ABLATE_TEST_DEVICE=cpu make test-gpu rehearses it without a GPU"
	@echo "make lint       ruff and mypy"
	@echo "make bench      speed, printed beside what it is compared with"
	@echo "make soak       the driver with 20,000 trials on 200 slots; a report of 5,000 trials; a sweep killed twenty times and a first pass ten times, one on nodes that share nothing, compared with those left in peace; four that write into an MLflow server that fails; the image's commands; error rates of rules of comparison; a method without effect in each shipped comparison (an hour and a half)"
	@echo "make golden     after a new component, a raised REVISION or an edit that left all numbers the same: prove it, and renew all generated files"
	@echo "make docs       run the demo and the tutorials at full size, and write their output into the documents"
	@echo "make size       statements, functions, modules and exports by folder, beside those of the last version"
	@echo "make ui         the demo's reports and MLflow's pages, on the loopback address"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ablate needs Python >= 3.11; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=26'
	$(BIN)/python -m pip uninstall --quiet --quiet --yes ablate  # the distribution's name before ablate-dml
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e ".[test]"
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # on all cores; some hold templates of code, which are none
	@touch $@

demo: install
	$(BIN)/python -m ablate.run search_spaces/ddml.yaml --out $(OUT)

test: install
	@$(MAKE) --no-print-directory -j 2 lint test-quick  # mypy has one core; tests take what it leaves

test-quick: install
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: install
	$(BIN)/python -m pytest -m slow -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-plain: install
	$(BIN)/python -m tests.plain -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-gpu: install
	$(BIN)/python -m pytest tests/gpu -rs $(if $(filter cpu,$(ABLATE_TEST_DEVICE)),-n $(WORKERS) --dist loadfile)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python -m tests.benchmarks --json $(OUT)/bench.json

soak: install
	$(BIN)/python -m tests.ablate.cluster.image
	$(BIN)/python -m tests.scale.drive
	ABLATE_TEST_SOAK=1 $(BIN)/python -m pytest -m slow tests/trainables/methods/test_long_runs.py
	ABLATE_TEST_SOAK=1 $(BIN)/python -m pytest -m slow tests/faults/test_driver.py -k sigkill
	$(BIN)/python -m tests.faults.soak
	$(BIN)/python -m tests.reports.stats.simulate
	$(BIN)/python -m tests.reports.stats.simulate_classes
	$(BIN)/python -m tests.reports.stats.simulate_searches
	$(BIN)/python -m tests.reports.stats.simulate_looks
	$(BIN)/python -m tests.reports.stats.simulate_failures 600
	$(BIN)/python -m tests.reports.stats.simulate_designs
	$(BIN)/python -m tests.reports.stats.simulate_chances
	$(BIN)/python -m tests.ablate.planted

golden: install
	$(BIN)/python -m tests.trainables.test_golden
	$(BIN)/python -m tests.trainables.renew_digests
	$(BIN)/python -m ablate plan --schema > docs/schema.tmp && mv docs/schema.tmp docs/schema.json
	$(BIN)/python -m tests.ablate.reference
	$(BIN)/python -m tests.trainables.test_support_matrix docs/guides/components.md

docs: install demo
	$(BIN)/python -m tests.reports.picture $$(ls -t $(OUT)/reports/ddml-*/report.html | head -n 1) docs/pictures/report.png
	$(BIN)/python -m tests.tutorials

size: install
	@$(BIN)/python .ci/size.py

ui: install
	$(BIN)/ablate ui --out $(OUT) --port $(PORT)

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
