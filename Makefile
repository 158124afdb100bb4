# Everything a newcomer needs, one word each. Every target does its own set-up; a second run finds it done.
#   PYTHON=python3.12     which interpreter to use (3.11 or newer)
#   ARGS="-k lease"       passed on to pytest, the start page (--port, --on postgresql) or the benchmarks
#   WORKERS=4             how many tests run side by side (three for every two processors)
#   SEMEL_EFFORT=full     how hard the proofs try: small (default) or full

PYTHON ?= python3
SEMEL_EFFORT ?= small
ARGS ?=
# Three for every two processors: a third of the tests' time is waiting for servers and child processes. Each worker
# collects all tests, so more of them cost more than they save.
WORKERS ?= $(shell echo $$((($$(nproc 2>/dev/null || echo 2) * 3 + 1) / 2)))
export PYTHON SEMEL_EFFORT
# Tests and the examples start hundreds of processes. Without this each would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
CODE = $(wildcard src tests examples bench)
# Of the contract suite the memory store alone is fast, and to collect the others takes longer than to run it.
FAST = $(wildcard tests/unit tests/contract/test_memory.py tests/shape)
# What the tests start by themselves; the same names as in scripts/setup-system.
test verify: SERVERS = wrk node chromium postgresql pgbouncer mariadb redis rabbitmq promtool ministack
bench: SERVERS = wrk postgresql mariadb redis rabbitmq

.DEFAULT_GOAL := help
.PHONY: help run test check check-code check-tests verify bench format lock docs clean setup-run setup-run-postgresql setup-dev

help: ## show this list
	@if [ -t 1 ]; then on='\033[1;36m' off='\033[0m'; fi; \
	awk -v on="$$on" -v off="$$off" 'BEGIN { FS = ":.*## "; print "usage: make <target>\n" } \
	/^[a-z]+:.*## / { printf "  %s%-8s%s %s\n", on, $$1, off, $$2 } \
	/^#   / { sub("^#   ", ""); vars = vars "  " $$0 "\n" } \
	END { printf "\nvariables\n%s", vars }' $(firstword $(MAKEFILE_LIST))

# On PostgreSQL it needs the server and its clients, which are among what developers install.
run: $(if $(findstring postgresql,$(ARGS)),setup-run-postgresql,setup-run) ## set everything up and open the start page: four services, buttons that break them; Ctrl-C stops all
	@exec $(BIN)/python -m examples.start $(ARGS)

test: setup-dev ## set everything up and run all tests
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: setup-dev ## format, lint, types, layers, spelling and the fast tests; under a minute
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-tests check-code

# The two halves of `make check`, side by side: what is said of each is printed when it has ended.
check-code:
	$(BIN)/python scripts/generate-sync --check
	$(BIN)/python scripts/generate-signatures --check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

check-tests:
	$(BIN)/pytest -n auto -m "not slow" $(FAST) $(ARGS)

verify: setup-dev ## all tests at full effort, the long proofs with them; prints what they ran
	SEMEL_TEST_MYSQL=$${SEMEL_TEST_MYSQL:-1} SEMEL_TEST_NEWEST_REDIS=$${SEMEL_TEST_NEWEST_REDIS:-1} SEMEL_EFFORT=full \
		$(BIN)/pytest -n $(WORKERS) --dist worksteal --timeout=14400 --durations-by-folder $(ARGS)

bench: ## compare with the bare stores and with peers
	@scripts/setup-system venv $(SERVERS)
	@scripts/setup-venv bench
	.venv-bench/bin/python -m bench $(ARGS)

format: setup-dev ## rewrite the code in the project's form, and what is generated from it
	$(BIN)/python scripts/generate-sync
	$(BIN)/python scripts/generate-signatures
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## resolve the dependencies again (UPGRADE=1: take newer versions)
	@scripts/setup-system venv
	@scripts/setup-venv installer
	scripts/lock

docs: ## build the documentation into site/
	@scripts/setup-system venv
	@scripts/setup-venv docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove environments, caches and build output
	rm -rf .venv .venv-bench .servers .start .hotel .payments .assets .hospital artifacts .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build site
	find src tests examples bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

setup-run:
	@scripts/setup-system venv
	@scripts/setup-venv run

setup-run-postgresql:
	@scripts/setup-system venv postgresql
	@scripts/setup-venv dev

setup-dev:
	@scripts/setup-system venv java $(SERVERS)
	@scripts/setup-venv dev
