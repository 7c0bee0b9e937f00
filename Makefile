# Each target makes .venv by itself; all a machine needs is Python 3.11 or newer.
#
#   make demo  [ARGS="--duration 5"]   a broker at work: a stream of events written, read back, shown on disk
#   make test  [ARGS="-k produce"]     every test but the long campaigns
#   make check                         format, lint, types, layers
#   make bench [ARGS="..."]            the loads and their floors, one table
#   make sim   [SEEDS=1000]            simulated clusters under faults, seed by seed; ARGS="--story cluster"
#   make soak                          the long campaigns
#   make docs                          the generated pages of docs/, written anew
#   make lock  [ARGS="--upgrade"]      requirements.lock, after a change of the dependencies

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python,$(if $(shell command -v $(name) >/dev/null 2>&1 && $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo yes),$(name))))
BIN := .venv/bin
INSTALLED := .venv/.installed
WORKERS ?= 3
SEEDS ?= 100

.PHONY: demo test check bench sim soak docs lock clean

demo: $(INSTALLED)
	@$(BIN)/penstock demo $(ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not soak" $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	@$(BIN)/python -m bench $(ARGS)

sim: $(INSTALLED)
	@$(BIN)/python -m penstock.testing.sim --seeds $(SEEDS) $(ARGS)

soak: $(INSTALLED)
	$(BIN)/python -m pytest -m soak $(ARGS)
	HYPOTHESIS_PROFILE=exploring $(BIN)/python -m pytest tests/properties $(ARGS)

docs: $(INSTALLED)
	$(BIN)/python docs/generate.py

# The packages come first and are checked against their hashes; Penstock itself is then linked in, with the build
# backend from the same lock, so that nothing unpinned is ever fetched.
$(INSTALLED): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found; name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; echo "make: $(PYTHON) cannot make a virtual environment (on Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "installing into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Pins that are there stay; ARGS="--upgrade" renews them.
lock: $(INSTALLED)
	$(PYTHON) -m venv .venv/lock
	.venv/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	cp requirements.lock .venv/lock/requirements.lock
	.venv/lock/bin/pip-compile --quiet --generate-hashes --extra dev --all-build-deps --allow-unsafe --strip-extras \
		--no-header --no-annotate --no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		$(ARGS) --output-file .venv/lock/requirements.lock pyproject.toml > /dev/null
	(echo '# Every package of `make`, pinned: names, versions and hashes, and no addresses. Made by `make lock`.'; \
		cat .venv/lock/requirements.lock) > requirements.lock

clean:
	rm -rf .venv
