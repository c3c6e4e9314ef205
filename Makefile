# Every target sets up what it needs in $(VENV); nothing has to be done by hand.
# Each set of packages has a stamp in $(VENV), renewed when pyproject.toml or constraints.txt changes.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= auto
ARGS ?= --all
MINUTES ?= 5
SEED ?= 0

BIN := $(VENV)/bin
# --no-compile: modules are compiled when first imported, which shortens the set-up.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# Parallel tests and row threads do their own parallel work: one BLAS thread in each.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Compiled modules are kept: otherwise each of the many processes of the tests compiles scikit-learn again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow test-minimum coverage lint format fuzz soak bench reproduce docs clean
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.with-demo  ## choose and fit a model of wines, write it and a report to demo-output/
	$(BIN)/latently demo --output demo-output --force
	@echo "Open $(CURDIR)/demo-output/report.html in a browser."

test: $(VENV)/.with-test  ## run all tests and doctests but the slow ones
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n $(JOBS) --maxprocesses 8

test-slow: $(VENV)/.with-test  ## run the slow tests
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n $(JOBS) --maxprocesses 8 -m slow

coverage: $(VENV)/.with-test  ## run the tests with line coverage, in docs/_build/coverage and as a table
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n $(JOBS) --maxprocesses 8 \
		--cov=latently --cov-report=term --cov-report=html:docs/_build/coverage

# In an environment of its own, since packages that stand in the other must not be moved down.
test-minimum: $(VENV)-minimum/.with-minimum  ## run the contracts with the lowest versions of all dependencies
	$(ONE_THREAD) $(VENV)-minimum/bin/python -m pytest -q -n $(JOBS) --maxprocesses 8 tests/contracts tests/oracles

lint: $(VENV)/.with-lint  ## check formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.with-lint  ## format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: $(VENV)/.with-test  ## attack the library: make fuzz MINUTES=5 SEED=0; counts, and keeps what failed in fuzz-findings/
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED)

soak: $(VENV)/.with-test  ## fit 2000 times, and an endless stream, and watch memory and threads
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz.soak

bench: $(VENV)/.with-bench  ## time EM iterations against scikit-learn and the GEMM bound, and every way to run them
	$(BIN)/python benchmarks/mixtures.py
	$(BIN)/python benchmarks/ways.py
	$(BIN)/python benchmarks/fits.py
	$(BIN)/python benchmarks/binary.py
	$(BIN)/python benchmarks/nmf.py
	$(BIN)/python benchmarks/nlmf.py
	$(BIN)/python benchmarks/deep.py
	$(BIN)/python benchmarks/networks.py

reproduce: $(VENV)/.with-plots  ## run published tables again, which takes hours, and write the page: ARGS='003/table-3.5' runs one, --list lists
	$(BIN)/python -m reproductions $(ARGS)

docs: $(VENV)/.with-docs  ## build the documentation into docs/_build/html
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

clean:  ## remove what the other targets wrote, but keep the environment
	rm -rf demo-output docs/_build docs/generated build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks reproductions docs -type d -name __pycache__ -exec rm -rf {} +

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.with-demo: EXTRAS = [cli]
$(VENV)/.with-test: EXTRAS = [test]
# mypy reads the types of optional libraries too, so that it says the same in every environment.
$(VENV)/.with-lint: EXTRAS = [lint,test]
$(VENV)/.with-plots: EXTRAS = [plots]
$(VENV)/.with-docs: EXTRAS = [docs,deep]
$(VENV)/.with-bench: EXTRAS = [dask,deep]

$(VENV)-minimum/.with-minimum: pyproject.toml constraints-minimum.txt
	$(PYTHON) -m venv $(VENV)-minimum
	$(VENV)-minimum/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-minimum.txt \
		-e '.[test-minimum]'
	@touch $@

$(VENV)/.with-%: pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP_INSTALL) -e '.$(EXTRAS)'
	@touch $@
