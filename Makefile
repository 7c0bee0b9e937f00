# Each target makes .venv by itself; all a machine needs is Python 3.11 or newer.
#
#   make demo  [ARGS="--no-spark"]     three brokers, trucks and a shop, pipelines; keys to kill, heal, poison, replay
#   make install                       only the environment, .venv: everything that the other targets need (2.3 GB)
#   make test  [ARGS="-k produce"]     every test but the long campaigns
#   make check                         format, lint, types, layers
#   make coverage                      make test, with what it covers of each module: branches, and all processes
#   make bench [ARGS="..."]            the loads and their floors, one table
#   make sim   [SEEDS=1000]            simulated clusters under faults, seed by seed; ARGS="--story cluster"
#   make soak                          the long campaigns
#   make docs                          the generated pages of docs/, written anew
#   make site                          the documentation as a site, in build/site
#   make lock  [ARGS="--upgrade"]      requirements.lock, after a change of the dependencies

PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11 python,$(if $(shell command -v $(name) >/dev/null 2>&1 && $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo yes),$(name))))
BIN := .venv/bin
INSTALLED := .venv/.installed
SPARK := .venv/.spark
WORKERS ?= 4
SEEDS ?= 100
REPORT ?= report
# A test's own limit (at most 600 s here) is a signal, which a call that hangs inside a C library never sees. Then the
# stacks of all threads are printed, and the process ends.
WATCHDOG := -o faulthandler_timeout=700 -o faulthandler_exit_on_timeout=true
PINNED := --quiet --generate-hashes --all-build-deps --allow-unsafe --strip-extras --no-header --no-annotate \
	--no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

.PHONY: demo install test check coverage bench sim soak docs site lock clean

demo: $(INSTALLED)
	@$(BIN)/penstock demo $(ARGS)

install: $(SPARK)

test: $(SPARK)
	$(BIN)/python -m pytest -n $(WORKERS) $(WATCHDOG) -m "not soak" $(ARGS)

check: $(SPARK)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

coverage: $(SPARK)
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -n $(WORKERS) $(WATCHDOG) -m "not soak" $(ARGS); status=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage $(REPORT) && exit $$status

bench: $(SPARK)
	@$(BIN)/python -m bench $(ARGS)

sim: $(INSTALLED)
	@$(BIN)/python -m penstock.simulator --seeds $(SEEDS) $(ARGS)

soak: $(SPARK)
	$(BIN)/python -m pytest -m soak $(ARGS)
	HYPOTHESIS_PROFILE=exploring $(BIN)/python -m pytest tests/properties $(ARGS)

docs: $(INSTALLED)
	$(BIN)/python docs/generate.py

site: $(SPARK)
	$(BIN)/zensical build --clean --strict

# The packages come first and are checked against their hashes; Penstock itself is then linked in, with the build
# backend from the same lock, so that nothing unpinned is ever fetched.
$(INSTALLED): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found; name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; echo "make: $(PYTHON) cannot make a virtual environment (on Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "installing into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Spark and what pipelines use beside it are half a gigabyte, and brokers do not need it.
$(SPARK): $(INSTALLED) requirements-spark.lock
	@echo "installing Spark into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	@touch $@

# Pins that are there stay; ARGS="--upgrade" renews them.
lock: $(INSTALLED)
	$(PYTHON) -m venv .venv/lock
	.venv/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	cat requirements.lock requirements-spark.lock > .venv/lock/all.lock
	.venv/lock/bin/pip-compile $(PINNED) $(ARGS) --extra dev --extra dev-pipelines --output-file .venv/lock/all.lock pyproject.toml > /dev/null
	cp .venv/lock/all.lock .venv/lock/dev.lock
	.venv/lock/bin/pip-compile $(PINNED) --extra dev --output-file .venv/lock/dev.lock pyproject.toml > /dev/null
	(echo '# Every package of `make`, pinned: names, versions and hashes, and no addresses. Made by `make lock`.'; \
		cat .venv/lock/dev.lock) > requirements.lock
	(echo '# What Spark needs beside requirements.lock, pinned in the same way. Made by `make lock`.'; \
		grep -vxFf .venv/lock/dev.lock .venv/lock/all.lock) > requirements-spark.lock

clean:
	rm -rf .venv
