# Two commands matter: `make run` serves with sample data, `make test` passes the tests.
# Both need Python (3.11 or later) and make, nothing else; the rest is installed into .venv by hash.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header -q

.PHONY: run test test-system check format lock clean

run: .venv/.run
	@$(BIN)/petstore serve --demo

test: .venv/.dev
	$(BIN)/python -m pytest -m "not system" -n auto

# These come from the system: apt-get install chromium nginx-light openssl postgresql-15 pgbouncer
test-system: .venv/.system
	$(BIN)/python -m pytest -m system

check: .venv/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy server/src server/tests client/src client/tests tests
	$(BIN)/lint-imports

format: .venv/.dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: .venv/.dev
	$(LOCK) requirements/run.in --no-emit-package petstore-server -o requirements/run.lock $(UPGRADE)
	$(LOCK) requirements/dev.in -c requirements/run.lock --no-emit-package petstore-server --no-emit-package petstore-client -o requirements/dev.lock $(UPGRADE)
	$(LOCK) requirements/system.in -c requirements/dev.lock -o requirements/system.lock $(UPGRADE)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/.run: requirements/run.lock server/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Setting up .venv (once)" >&2
	@$(PIP) install --require-hashes -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation -e server
	@touch $@

.venv/.dev: .venv/.run requirements/dev.lock client/pyproject.toml
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@$(PIP) install --no-deps --no-build-isolation -e client
	@touch $@

.venv/.system: .venv/.dev requirements/system.lock
	@$(PIP) install --require-hashes -r requirements/system.lock
	@touch $@
