# make help lists the targets. Needs only git, make and a Python of at least 3.11 (PYTHON=python3.12 chooses one).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.stamp-run
DEV := $(VENV)/.stamp-dev
INSTALL := $(BIN)/python tools/install.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help install demo test test-slow test-sb3 audit bench docs notebooks pictures lint style types format clean venv

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

install: $(RUN) ## create .venv and install epg in it

demo: $(RUN) ## evolve two losses and compare them with PPO
	$(BIN)/epg demo

# The types are checked beside the tests: mypy uses one core for a minute.
test: style ## lint, types and every fast test
	@$(MAKE) --no-print-directory types & types=$$!; \
	$(BIN)/python -m pytest -m "not slow and not sb3" -n 3 --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$types || { echo "make test: mypy found errors; make types shows them."; exit 1; }; exit $$tests

test-slow: $(DEV) ## learning, 20 000 mutants, 100 kills and a soak: over an hour
	$(BIN)/python -m pytest -m slow

test-sb3: $(DEV) ## install Stable-Baselines3 (and PyTorch) and train with it
	$(INSTALL) torch
	$(INSTALL) -e '.[dev,sb3]'
	$(BIN)/python -m pytest -m sb3 tests/test_sb3.py

# pip-audit lives apart, so that its own dependencies do not mix with ours. It calls versions that it could not look up
# free of vulnerabilities: they are counted here.
audit: ## known vulnerabilities of the pinned versions; says how many could not be looked up
	@test -x $(VENV)-audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)-audit && \
	$(VENV)-audit/bin/python -m pip install -qq --disable-pip-version-check pip-audit; } || \
	{ echo "audit: pip-audit cannot be installed (offline?): nothing was checked."; exit 0; }; \
	said=$$($(VENV)-audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip --progress-spinner off 2>&1); code=$$?; \
	unknown=$$(echo "$$said" | grep -c "could not be audited"); all=$$(grep -c == constraints.txt); \
	test "$$unknown" != "$$all" || { echo "audit: none of $$all versions could be looked up: nothing was checked."; exit 0; }; \
	echo "$$said" | grep -v "could not be audited"; \
	echo "audit: $$unknown of $$all versions could not be looked up."; \
	case "$$said" in *onnectionError*|*"Failed to connect"*|*"Max retries"*) \
	echo "audit: the list of vulnerabilities cannot be reached: nothing was checked."; exit 0;; esac; exit $$code

bench: $(RUN) ## measure environment steps per second
	$(BIN)/epg bench

docs: $(DEV) ## build the site of the docs into build/site, refusing any warning
	$(BIN)/python -m mkdocs build --strict

notebooks: $(DEV) ## run the notebooks of the docs and keep what they print
	$(BIN)/python tools/run_notebooks.py

pictures: $(RUN) ## draw the families anew, for docs/families.md
	EPG=$(BIN)/epg tools/draw_families.sh

lint: style types ## ruff and mypy, changing nothing

style: $(DEV)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(DEV)
	$(BIN)/python -m mypy

format: $(DEV) ## let ruff format and fix what it can
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

clean: ## remove .venv, caches and builds; runs/ stays
	rm -rf $(VENV) $(VENV)-audit build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The run stamp is away while pip works: what was interrupted, even by kill -9, starts anew with the next make.
$(RUN): pyproject.toml constraints.txt
	@echo "Installing epg into $(VENV) (about a minute) ..."
	@rm -f $(RUN)
	@$(INSTALL) -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt
	@echo "Installing epg and its test tools into $(VENV) (about a minute) ..."
	@rm -f $(RUN)
	@$(INSTALL) -e '.[dev]'
	@touch $(RUN) $@

# So does an environment whose Python is gone.
ifneq ($(shell test -e $(RUN) && $(BIN)/python -c 'print("works")' 2>/dev/null),works)
.PHONY: $(RUN) $(DEV)
$(RUN) $(DEV): | venv
endif

venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "epg needs Python 3.11 or newer and $(PYTHON) is not: name one, as in 'make PYTHON=python3.12'." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "$(PYTHON) cannot create virtual environments: install its venv module (Debian, Ubuntu: python3-venv)." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
