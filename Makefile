# make demo   set up, train on books read together, print the table, answer queries, explain a novel item and click it;
#             make demo DATA=icd10cm does it with clinical phrases
# make test   set up, lint, type-check, run the test suite
# make test-slow   the tests that take minutes each: real data, whole training runs, kills and damaged files
# make wheel-check   build the source distribution and the wheel, and try the wheel in a fresh environment
# make docs   build the documentation site in site/
# make test-lowest   the tests with the lowest versions that pyproject.toml allows, in an environment of their own
# make test-integrations   the retrievers for LangChain, LlamaIndex and Haystack, in an environment of their own
# make test-ray   a Ray cluster of three nodes that loses one, in the same environment (a few minutes)
# make test-mutants   small mistakes put into a copy of the method: do the tests notice? MINUTES=8 of them
# make examples   run the examples of examples/ on a small shop, each in a temporary folder
# make lock   write the lock files from constraints.txt and constraints-integrations.txt
# All work from any state, again and again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
export HF_HUB_OFFLINE := 1

INTEGRATIONS := .venv-integrations
LOWEST := .venv-lowest
MUTANTS := .venv-mutants
MINUTES ?= 8
SEED ?= 0
# What test-lowest runs. All of it takes several minutes; test-lowest-ci takes the tests that use the dependencies most.
LOWEST_TESTS ?= tests
LOWEST_CI := tests/data tests/emmett tests/test_dependencies.py \
	$(addprefix tests/serve/test_,api_types.py app.py client.py config_file.py http_server.py middleware.py serve_settings.py) \
	$(addprefix tests/encoders/test_,cache_folder.py encoder_folder.py onnx_graph.py pretrained.py)

.PHONY: demo docs examples test test-integrations test-ray test-slow test-slow-ci test-lowest test-lowest-ci test-mutants check wheel-check setup lock clean

setup: $(READY)

# A half-made environment has no .ready and is made again.
$(READY): pyproject.toml requirements.lock
	@echo "setting up $(VENV) (a few minutes the first time)"
	@rm -f $@
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install torch==2.13.0
	@$(PIP) install --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

lock:
	@$(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/python -m pip --quiet install uv
	@$(call write-lock,constraints.txt,requirements.lock)
	@$(call write-lock,constraints-integrations.txt,requirements-integrations.lock)

# Keeps the first lines of a lock file, and writes the versions of a file of constraints with their hashes.
write-lock = grep '^\#' $(2) > $(VENV)-lock/new && grep -v '^torch==' $(1) | $(VENV)-lock/bin/uv pip compile -q --no-deps \
	--generate-hashes --no-annotate --no-header --python-version 3.11 - >> $(VENV)-lock/new && mv $(VENV)-lock/new $(2)

# The frameworks are beside the project's environment and not in it: they bring fifty packages that nothing else needs.
$(INTEGRATIONS)/.ready: $(READY) requirements-integrations.lock
	@echo "setting up $(INTEGRATIONS)"
	@rm -f $@
	@test -x $(INTEGRATIONS)/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)
	@$(INTEGRATIONS)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps \
		-r requirements-integrations.lock
	@$(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
		> "$$($(INTEGRATIONS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/project.pth"
	@touch $@

test-integrations: $(INTEGRATIONS)/.ready
	$(INTEGRATIONS)/bin/python -m pytest tests/integrations

test-ray: $(INTEGRATIONS)/.ready
	$(INTEGRATIONS)/bin/python -m pytest tests/scale/test_ray_engine.py

$(MUTANTS)/.ready: constraints-mutants.txt
	@echo "setting up $(MUTANTS)"
	@rm -f $@
	@test -x $(MUTANTS)/bin/python || $(PYTHON) -m venv $(MUTANTS)
	@$(MUTANTS)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps -r constraints-mutants.txt
	@touch $@

test-mutants: $(READY) $(MUTANTS)/.ready
	$(MUTANTS)/bin/python tests/run_mutants.py $(PACKAGES) --minutes $(MINUTES) --seed $(SEED) --python $(BIN)/python

examples: $(READY)
	$(BIN)/python -m pytest -m slow tests/test_examples.py

$(LOWEST)/.ready: pyproject.toml constraints-lowest.txt
	@echo "setting up $(LOWEST)"
	@rm -f $@
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install torch==2.13.0
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps -r constraints-lowest.txt
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation -e .
	@touch $@

# The records of results are of the pinned versions, and the page is tested with those.
test-lowest: $(LOWEST)/.ready
	METAXC_GOLDEN=skip $(LOWEST)/bin/python -m pytest --ignore tests/serve/test_openapi.py --ignore-glob '*/test_page*' \
		$(LOWEST_TESTS)

test-lowest-ci:
	$(MAKE) test-lowest LOWEST_TESTS="$(LOWEST_CI)"

demo: $(READY)
	@$(BIN)/python demo.py $(DATA)

wheel-check: $(READY)
	@$(BIN)/python tests/check_wheel.py

docs: $(READY)
	@$(BIN)/python docs/build_site.py

check: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs/*.py demo.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/*.py demo.py
	$(BIN)/mypy src
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest --durations=25 --durations-min=5

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow --durations=25 --durations-min=5

test-slow-ci: $(READY)
	$(BIN)/python -m pytest -m 'slow and not nightly' --durations=25 --durations-min=5

clean:
	rm -rf $(VENV) $(VENV)-lock $(LOWEST) $(INTEGRATIONS) $(MUTANTS) demo demo-*/ site
