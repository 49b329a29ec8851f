# Every target sets up what it needs by itself, in .venv: only Python 3.11+ and make have to be there.
# `make help` lists the targets; docs/testing.md says more about those that test.

VENV ?= .venv
SCALE ?= 0.1
WORKERS ?= 2
TIMEOUT ?= 600
HARNESS ?= tests.harnesses:SqliteHarness tests.harnesses:PostgresHarness
TESTS ?= tests

PY := $(VENV)/bin/python
ours := alkstore alkstore_postgres alkstore_sqlite contract_tests tests examples benchmarks

# A server for PostgreSQL is shared by all workers; a test that hangs says where, and fails.
pytest := $(PY) -m pytest -p contract_tests.plugin -p tests.support.postgres_plugin --timeout $(TIMEOUT)
parallel := $(if $(filter-out 0 1,$(WORKERS)),-n $(WORKERS) --dist loadgroup)
harnesses = $(foreach harness,$(HARNESS),--harness $(harness))

# DIR, URL and what `bench` takes are heeded only when written on the command line: an environment may hold such names by chance.
given = $(findstring command,$(origin $(1)))

.DEFAULT_GOAL := help
.PHONY: help run test soak check format contract bench clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run:  ## Index files with three workers, one of them killed [DIR=directory] [URL=postgresql://...]
	@.ci/venv "$(VENV)" $(if $(and $(call given,URL),$(URL)),postgres)
	@$(PY) examples/index_files.py $(if $(and $(call given,URL),$(URL)),--url "$$URL") -- $(if $(and $(call given,DIR),$(DIR)),"$$DIR")

test:  ## Run the contract suite on both engines, and all other tests [SCALE=0.1] [WORKERS=2]
	@.ci/venv $(VENV) dev
	ALKSTORE_TEST_SCALE=$(SCALE) $(pytest) $(parallel) --pyargs contract_tests.suite $(TESTS) $(harnesses)

soak:  ## The same with every round of every test: takes its time
	@$(MAKE) --no-print-directory test SCALE=1 TIMEOUT=3600

check:  ## Check formatting, lint and types
	@.ci/venv $(VENV) dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m basedpyright --pythonpath $(PY)
	$(PY) -m compileall -q $(ours)

format:  ## Format the code, and mend what the linter can mend
	@.ci/venv $(VENV) dev
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

contract:  ## Run only the contract suite, on any engine [HARNESS="module:Class ..."] [SCALE=0.1]
	@.ci/venv $(VENV) dev
	ALKSTORE_TEST_SCALE=$(SCALE) $(pytest) $(parallel) --pyargs contract_tests.suite $(harnesses)

bench:  ## Measure alkstore beside its peers [QUICK=1] [ENGINE=sqlite] [ONLY=raw,alkstore] [QUESTION=worker] [ROUNDS=5] [OUT=directory]
	@.ci/venv $(VENV) dev
	@$(PY) -m benchmarks $(if $(and $(call given,QUICK),$(filter-out 0,$(QUICK))),--quick)$(if $(call given,ENGINE), --engine "$$ENGINE")$(if $(call given,ONLY), --only "$$ONLY")$(if $(call given,QUESTION), --question "$$QUESTION")$(if $(call given,ROUNDS), --rounds "$$ROUNDS")$(if $(call given,OUT), --out "$$OUT")

clean:  ## Remove what the other targets have made
	rm -rf $(VENV) .venv-bench build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
