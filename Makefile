# make chat      install, build the demo model once, and chat
# make test      install and run the tests (ten minutes at most); make test-all: the long ones too
# make screens   write anew what the tests of the screens' looks compare with
# make check     formatting, lint, types, import contracts
# make bench     the residency policies against each other, and what the engine costs against plain transformers
# ARGS="..."     goes to the program: make chat ARGS="--residency 25%"

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0

.DEFAULT_GOAL := chat
.PHONY: chat test test-all screens check bench clean

chat: $(VENV)/.installed
	@$(BIN)/python -m engine.demo.model
	@exec $(BIN)/moe-chat $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-all: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m "" $(ARGS)

screens: $(VENV)/.installed-test
	UPDATE_SCREENS=1 $(BIN)/python -m pytest -q tests/snapshots

check: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed
	$(BIN)/moe-chat bench policies --quick $(ARGS)
	$(BIN)/moe-chat bench overhead $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "moe-chat needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1)."; \
	  echo "Name another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "No virtual environment could be made. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@touch $@

# torch comes first and by itself, so that a build chosen beforehand (CPU-only, another CUDA) is kept by what follows.
$(VENV)/.torch: $(VENV)/.created
	$(BIN)/python -m pip install --quiet --progress-bar on "$(TORCH)"
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet -e ".[demo]"
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet -e ".[test]"
	@touch $@ $(VENV)/.installed
