# Everything a person needs, each target from a fresh clone: `make demo`, `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Wheels only: nothing here may need a compiler. The constraints fix every version, so that next year's set-up is this one.
# Without warnings: a newer pip shows setuptools' advice on editable installs, which is for those who write packages.
PIP    := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --no-build-isolation --constraint constraints.txt

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.demo-ready ## Envoy, the picker and four simulated endpoints: what tier awareness is worth (under 2 minutes)
	$(BIN)/tierwise demo

.PHONY: test
test: $(VENV)/.test-ready ## all tests, with what was skipped and why
	$(BIN)/python -m pytest -m 'not cluster'
	$(MAKE) --no-print-directory test-vllm

.PHONY: test-vllm
test-vllm: ## the tests with the real vLLM on its CPU backend; its environment is made once and kept in the cache folder
	@vllm=$$($(PYTHON) tests/vllm/environment.py); status=$$?; \
	if [ $$status -eq 0 ]; then TIERWISE=$(abspath $(BIN)/tierwise) $$vllm -m pytest -c tests/vllm/pytest.ini tests/vllm; \
	elif [ $$status -ne 3 ]; then exit $$status; fi

.PHONY: test-cluster
test-cluster: $(VENV)/.test-ready ## the longer tests in a real cluster; its programs are built from their Go modules once
	@$(PYTHON) tests/cluster/environment.py >/dev/null; status=$$?; \
	if [ $$status -eq 0 ]; then $(BIN)/python -m pytest -m cluster tests/cluster; elif [ $$status -ne 3 ]; then exit $$status; fi

.PHONY: lint
lint: $(VENV)/.test-ready ## formatting, lint and strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

.PHONY: format
format: $(VENV)/.test-ready ## format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: bench
bench: $(VENV)/.test-ready ## the benchmarks behind benchmarks/README.md (about 20 minutes)
	$(BIN)/python -m benchmarks.all

.PHONY: proto
proto: $(VENV)/.test-ready ## compile proto/ into epp/pb/
	$(BIN)/python proto/generate.py

.PHONY: schemas
schemas: $(VENV)/.test-ready ## write the schemas of the charts' values
	$(BIN)/python -m epp.lab.values.generate

.PHONY: clean
clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip setuptools
	touch $@

$(VENV)/.demo-ready: $(VENV)/.made pyproject.toml constraints.txt
	@echo "setting up $(VENV) for the demo ..."
	$(PIP) --editable '.[standalone]'
	touch $@

$(VENV)/.test-ready: $(VENV)/.made pyproject.toml constraints.txt
	@echo "setting up $(VENV) for tests ..."
	$(PIP) --editable '.[test]'
	touch $@
