# `make demo` and `make test` set up what they need; `.ci/setup` says what that is.
.PHONY: setup demo test test-fast test-newest-spark newest-spark-if-possible test-deep test-all test-places check benchmarks lock clean

BIN := .venv/bin
STAMP := .venv/.set-up
# The Java that set-up found and tried.
WITH_JAVA := JAVA_HOME=$(CURDIR)/.venv/share/lakejoin/java
PYTEST := $(WITH_JAVA) $(BIN)/pytest -n 2 --dist worksteal
# The newest Spark that is supported, in an environment of its own; .venv has that of constraints.txt.
NEWEST := 4.2.0
NEWEST_VENV := .venv-spark-$(NEWEST)

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt .ci/setup .ci/packages .ci/fetch_jars.py
	@.ci/setup
	@touch $@

# Load a join of real flights, follow three rounds of changes and verify the result.
# `.venv/bin/lakejoin demo --tour` shows all kinds of joins.
demo: $(STAMP)
	$(WITH_JAVA) $(BIN)/lakejoin demo

# A full path of every kind of join, every rule and every exit code.
test: $(STAMP)
	$(PYTEST)

# Between commits, in less than four minutes: the tests without Spark, and one whole path of each kind of join.
test-fast: $(STAMP)
	$(PYTEST) -m "fast and not deep and not slow and not places"

# What `make test-fast` runs of the rooms that use Spark, on the newest version of it that is supported.
test-newest-spark: $(NEWEST_VENV)/.set-up
	JAVA_HOME=$(CURDIR)/$(NEWEST_VENV)/share/lakejoin/java $(NEWEST_VENV)/bin/pytest -n 2 --dist worksteal \
		-m "fast and not deep and not slow" tests/epochs tests/expectations tests/joins tests/lakehouse

$(NEWEST_VENV)/.set-up: pyproject.toml constraints.txt .ci/setup .ci/packages .ci/fetch_jars.py
	@.ci/setup $(NEWEST_VENV) $(NEWEST)
	@touch $@

# What `make test` leaves out: rules on every way, the tour, Spark Connect, alterations, kills, writers of all kinds;
# and a part on the newest Spark, where that can be installed.
test-deep: $(STAMP) newest-spark-if-possible
	$(PYTEST) -m "deep and not slow and not places"

newest-spark-if-possible:
	@if $(MAKE) $(NEWEST_VENV)/.set-up; then $(MAKE) test-newest-spark; \
		else echo "Spark $(NEWEST) cannot be installed here: its tests are skipped" >&2; fi

# Everything, also the slow tests: whole matrices. Takes hours.
test-all: $(STAMP)
	$(PYTEST) -m "not places"

# Tables, stages and the ledger on an object store: an S3 server that the tests start. What these tests need is fetched
# into the user's cache; where that is impossible, they are skipped.
test-places: $(STAMP)
	@$(WITH_JAVA) $(BIN)/python .ci/fetch_places.py || echo "the tests of places will be skipped" >&2
	$(WITH_JAVA) $(BIN)/pytest -rs -m places tests/places

# Measure, and write the figures of README.md and tests/README.md with their plot: about an hour.
benchmarks: $(STAMP)
	$(WITH_JAVA) $(BIN)/python -m tests.benchmarks.report

check: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Write constraints.txt anew from pyproject.toml. Versions already there stay, unless `make lock LOCK=--upgrade`.
lock: | $(BIN)/uv
	$(BIN)/uv pip compile --quiet --universal --fork-strategy fewest --all-extras --group dev \
		--no-annotate --custom-compile-command "make lock" --output-file constraints.txt $(LOCK) pyproject.toml

$(BIN)/uv:
	@.ci/setup

clean:
	rm -rf .venv .venv-spark-* build dist spark-warehouse metastore_db derby.log
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
