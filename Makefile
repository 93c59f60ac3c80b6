# Two commands matter: `make run` serves with sample data, `make test` passes the tests.
# Both need Python (3.11 or later) and make, nothing else; the rest is installed into .venv (or VENV=DIRECTORY) by hash.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
PIP_OPTIONS := --disable-pip-version-check --no-input -q
PIP := $(BIN)/python -m pip $(PIP_OPTIONS)
# The lock files are complete, so pip need not look for dependencies.
INSTALL := $(PIP) install --no-deps --require-hashes
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header -q
TEST_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1) + 2)') # many tests wait for processes and timers
BENCH_PACKAGES := nginx-light wrk redis-tools golang-go

# All processors together compile the modules in less time than pip.
COMPILE := $(BIN)/python -m compileall -q -j 0

# Commands and tests start faster with compiled modules, even where the environment turns them off, as in many containers.
unexport PYTHONDONTWRITEBYTECODE

DIST ?= dist

.PHONY: run test test-system test-clients torture mutants bench bench-against bench-setup check check-locks audit dist format lock clean

run: $(VENV)/.run
	@$(BIN)/petstore serve --demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not system" -n $(TEST_PROCESSES) --dist worksteal

# These come from the system: apt-get install chromium nginx-light nodejs npm php-cli php-curl openssl postgresql-15 redis-server pgbouncer
# prometheus debootstrap faketime iproute2 iptables systemd-container podman catatonit runc netavark aardvark-dns. The tests that make a
# Debian, a network or a container run only as root.
test-system: $(VENV)/.system $(VENV)/.tools $(if $(shell command -v npm),$(VENV)/.npm)
	$(BIN)/python -m pytest -m system

# Generates clients in seven languages from both contracts, compiles them, and calls a server with them. They come from the
# system: apt-get install npm default-jdk-headless libgeronimo-annotation-1.3-spec-java php-cli php-curl php-mbstring
# php-guzzlehttp-guzzle ruby ruby-typhoeus ruby-marcel mono-runtime mono-mcs libnewtonsoft-json5.0-cil and
# libmono-system-{net-http,web,runtime-serialization,componentmodel-dataannotations}4.0-cil. ONLY=go,java
test-clients: $(VENV)/.clients
	$(BIN)/python -m generated_clients $(if $(ONLY),--only $(ONLY))

# Tries to break the service; docs/reliability.md has the results. ONLY=power,histories SEEDS=1-10 IMAGES=100 KILLS=20
# SECONDS=60 REQUESTS=1000000 ROUNDS=1000 CHANGES=10000
torture: $(VENV)/.dev
	$(BIN)/python -m torture $(if $(ONLY),--only $(ONLY)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(IMAGES),--images $(IMAGES)) $(if $(KILLS),--kills $(KILLS)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(REQUESTS),--requests $(REQUESTS)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(CHANGES),--changes $(CHANGES))

# Changes the product with cosmic-ray, in a clone of the last commit; tests should fail. docs/reliability.md has the results.
# ONLY=parser,gate COUNT=50 SEED=2
mutants: $(VENV)/.mutants
	PATH=$(BIN):$$PATH nice -n 10 $(BIN)/python -m torture.mutants $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) \
		$(if $(COUNT),--count $(COUNT))

# Measures the service; bench/README.md explains the options. ONLY=lists,cancels ROUNDS=3 SECONDS=1 QUICK=1
# REPORT=1
bench: $(VENV)/.bench
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(REPORT),--report)

# What each operation costs against another commit. COMMIT=HEAD~1 ROUNDS=10 ONLY=cancel,import
bench-against: $(VENV)/.bench
	$(BIN)/python -m bench.against $(COMMIT) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(SECONDS),--seconds $(SECONDS))

bench-setup:
	@test "$$(id -u)" = 0 || { echo "Run as root: apt-get update && apt-get install -y $(BENCH_PACKAGES)" >&2; exit 1; }
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(BENCH_PACKAGES)

check: $(VENV)/.tools
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy server/src server/tests client/src client/tests tests bench torture testing generated_clients deploy conftest.py
	$(BIN)/lint-imports

# Not part of `check`: it needs the network, and a new advisory would fail a change that has nothing to do with it.
audit: $(VENV)/.tools
	$(BIN)/uv tool run pip-audit --strict --disable-pip --require-hashes $(patsubst %,-r %,$(wildcard requirements/*.lock))

# Whether all that is locked can be installed without a compiler on each Python and machine, by what the index says of
# its files: nothing is downloaded. It needs the network.
check-locks: $(VENV)/.tools
	@for lock in $(wildcard requirements/*.lock); do for python in 3.11 3.12 3.13 3.14; do for machine in x86_64 aarch64; do \
		$(BIN)/uv pip install -q --dry-run --target $(VENV)/none --no-deps --require-hashes --only-binary :all: \
			--python-version $$python --python-platform $$machine-manylinux_2_28 -r $$lock || \
			{ echo "$$lock cannot be installed without a compiler on Python $$python, $$machine." >&2; exit 1; }; \
	done; done; done
	@echo "All lock files have wheels for Python 3.11 to 3.14 on x86_64 and arm64."

# The files of a release, in DIST=DIRECTORY: wheels and source archives, the lock files to install them with, a bill of
# materials (CycloneDX) of each lock file, and an archive of the whole repository, which has the documents and `deploy/`.
# Another run at the same commit writes the same bytes.
dist: $(VENV)/.tools
	@git diff --quiet HEAD || echo "Files were changed since the commit that the distributions name." >&2
	@mkdir -p $(DIST) && rm -f $(DIST)/petstore[-_]* $(DIST)/SHA256SUMS
	@for each in server client; do cd $(CURDIR)/$$each && shown=$$($(BIN)/python -m hatchling build -d $(abspath $(DIST)) 2>&1) || \
		{ echo "$$shown" >&2; exit 1; }; done
	@cd requirements && cp scale-out.lock $(abspath $(DIST))/petstore-server.lock && \
		cp otel.lock $(abspath $(DIST))/petstore-server-otel.lock && cp client.lock $(abspath $(DIST))/petstore-client.lock
	@for each in server server-otel client; do $(BIN)/python -W ignore -m cyclonedx_py requirements --pyproject $${each%-otel}/pyproject.toml \
		--output-reproducible -o $(DIST)/petstore-$$each.cdx.json $(DIST)/petstore-$$each.lock || exit 1; done
	@name=petstore-$$(cd server && $(BIN)/python -m hatchling version) && git archive --format=tar --prefix=$$name/ \
		--add-virtual-file=$$name/server/src/petstore_server/commit.txt:$$(git rev-parse HEAD) HEAD | gzip -9n >$(DIST)/$$name.tar.gz
	@cd $(DIST) && sha256sum petstore[-_]* >SHA256SUMS && cat SHA256SUMS

format: $(VENV)/.tools
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: $(VENV)/.tools
	$(LOCK) requirements/pip.in -o requirements/pip.lock $(UPGRADE)
	$(LOCK) requirements/run.in --no-emit-package petstore-server -o requirements/run.lock $(UPGRADE)
	$(LOCK) requirements/dev.in -c requirements/run.lock --no-emit-package petstore-server --no-emit-package petstore-client -o requirements/dev.lock $(UPGRADE)
	$(LOCK) requirements/tools.in -o requirements/tools.lock $(UPGRADE)
	$(LOCK) requirements/client.in -c requirements/dev.lock --no-emit-package petstore-client -o requirements/client.lock $(UPGRADE)
	$(LOCK) requirements/scale-out.in -c requirements/dev.lock --no-emit-package petstore-server -o requirements/scale-out.lock $(UPGRADE)
	$(LOCK) requirements/otel.in -c requirements/dev.lock --no-emit-package petstore-server -o requirements/otel.lock $(UPGRADE)
	$(LOCK) requirements/system.in -c requirements/dev.lock -o requirements/system.lock $(UPGRADE)
	$(LOCK) requirements/bench.in -c requirements/dev.lock -o requirements/bench.lock $(UPGRADE)
	$(LOCK) requirements/mutants.in -c requirements/dev.lock -c requirements/bench.lock --no-emit-package yattag -o requirements/mutants.lock $(UPGRADE)
	$(LOCK) requirements/clients.in -c requirements/dev.lock -c requirements/tools.lock -c requirements/system.lock -c requirements/bench.lock -o requirements/clients.lock $(UPGRADE)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# A pip outside of $(VENV) can install the one of $(VENV); otherwise Python unpacks one first, which takes longer.
$(VENV)/.pip: requirements/pip.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11")'
	@echo "Setting up $(VENV) (once)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@$(PYTHON) -m pip --python $(BIN)/python $(PIP_OPTIONS) install --no-compile --require-hashes -r requirements/pip.lock 2>/dev/null || \
		{ $(PYTHON) -m venv $(VENV) && $(PIP) install --no-compile --require-hashes -r requirements/pip.lock; }
	@$(COMPILE) $(VENV)/lib
	@touch $@

$(VENV)/.run: $(VENV)/.pip requirements/run.lock server/pyproject.toml
	@$(INSTALL) --no-compile -r requirements/run.lock
	@$(COMPILE) -x '/(pip|pygments|hatchling|trove_classifiers)/' $(VENV)/lib server/src & \
		$(PIP) install --no-deps --no-build-isolation -e server; status=$$?; wait; exit $$status
	@touch $@

# The development requirements include those of the server. What every test process would do when it begins is done
# here: making Hypothesis's table of characters, compiling the console's templates, and compiling the tests with the
# assertions as pytest rewrites them. So is what mypy finds in the libraries, for the test of the client's examples.
$(VENV)/.dev: $(VENV)/.pip requirements/run.lock requirements/dev.lock server/pyproject.toml client/pyproject.toml
	@$(INSTALL) --no-compile -r requirements/dev.lock
	@$(PIP) install --no-deps --no-build-isolation -e server -e client
	@$(BIN)/python -c 'from hypothesis import strategies; strategies.text().validate()' & \
		$(BIN)/python -c 'import testing.prepared' & \
		MYPYPATH=$(CURDIR)/client/src $(BIN)/python -m mypy --config-file= --strict --no-error-summary \
			--cache-dir .pytest_cache/d/mypy -c 'import petstore_client' & \
		$(COMPILE) -x '/(mypy|mypyc|pip|pygments|setuptools)/' $(VENV)/lib server/src client/src; wait
	@$(BIN)/python -m pytest --collect-only -qq server/tests >/dev/null & \
		$(BIN)/python -m pytest --collect-only -qq tests client/tests >/dev/null; wait
	@touch $(VENV)/.run $@

$(VENV)/.tools: $(VENV)/.dev requirements/tools.lock
	@$(INSTALL) -r requirements/tools.lock
	@touch $@

$(VENV)/.system: $(VENV)/.dev requirements/system.lock
	@$(INSTALL) -r requirements/system.lock
	@touch $@

$(VENV)/.clients: $(VENV)/.dev $(VENV)/.npm requirements/clients.lock
	@$(INSTALL) -r requirements/clients.lock
	@touch $@

# Packages of Node.js, by their hashes: those of generated clients, and what verifies webhooks.
$(VENV)/.npm: $(VENV)/.pip generated_clients/npm/package-lock.json
	@mkdir -p $(VENV)/npm && cp generated_clients/npm/*.json $(VENV)/npm
	@npm ci --prefix $(VENV)/npm --ignore-scripts --no-audit --no-fund --silent
	@touch $@

$(VENV)/.bench: $(VENV)/.dev requirements/bench.lock
	@$(INSTALL) -r requirements/bench.lock
	@touch $@

$(VENV)/.mutants: $(VENV)/.dev requirements/mutants.lock
	@$(INSTALL) -r requirements/mutants.lock
	@touch $@
