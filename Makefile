# Two commands do everything: `make demo` shows it, `make test` checks it. Both make their environment first.
PYTHON ?= python3.11
UV_DIR := .uv
UV := $(UV_DIR)/bin/uv
BIN := .venv/bin
WORKERS ?= 2
SYNCED := .venv/.synced

.PHONY: demo test check test-long test-real docs lock clean

demo: $(SYNCED)
	$(BIN)/windtunnel bench serve --embedded paced --num-prompts 200 --request-rate 50 --random-input-len 128 --random-output-len 32

test: check
	$(BIN)/pytest -n $(WORKERS) -m "not long"

test-long: check
	$(BIN)/pytest -m "not real"

# Wants a server: WINDTUNNEL_REAL_URL=http://HOST:PORT make test-real
test-real: $(SYNCED)
	$(BIN)/pytest -m real

check: $(SYNCED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

docs: $(SYNCED)
	$(BIN)/python docs/generate.py

# The lock holds versions and hashes, and no registry's address. `make lock` makes it anew from pyproject.toml.
lock: $(UV)
	rm -f uv.lock
	$(UV) export --quiet --python $(PYTHON) --extra catalog --extra drill --extra eplb --extra hub --extra nixl --extra plots --all-groups --no-emit-project --no-header --format requirements.txt --output-file requirements.lock
	rm -f uv.lock

# uv lives in a folder of its own, so that syncing the environment can't remove it.
$(UV):
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target $(UV_DIR) "uv>=0.9"

$(SYNCED): $(UV) requirements.lock pyproject.toml
	test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

clean:
	rm -rf .venv $(UV_DIR) build dist
