# `make demo` and `make test` need nothing but Python 3.11 or newer; the environment is made when it is first asked for.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$candidate && break; done)

# What Python has compiled is kept, also where the machine says otherwise: without that, each start of a command and of a
# test process compiles all that it imports once more, and for tests that takes longer than many of them.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup test quick check demo faults mutants chaos soak fuzz format lock clean

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "fallow needs Python 3.11 or newer with venv (Debian: apt install python3-venv)" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "installing the pinned requirements into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

# All tests; what is skipped says why. In three processes, the hardest first: on two cores, since tests of servers wait
# for half of their time. Choose: make test ARGS="tests/log -x", which runs in one process, as PROCESSES=0 does.
PROCESSES ?= $(if $(ARGS),0,3)
test: $(READY)
	@$(BIN)/pytest -rsfE --numprocesses $(PROCESSES) --dist loadgroup --no-loadscope-reorder $(ARGS)

# In a minute or two what needs no server: the language, the model, policies, the judge. Choose: make quick ARGS="-k quota"
QUICK := admission cluster events metrics placement/explain placement/fit placement/policy placement/queue placement/search projector queueing reasons simulator/history unit view
quick: $(READY)
	@HYPOTHESIS_EXAMPLES=5 $(BIN)/pytest -q --no-servers --numprocesses auto --dist loadgroup $(QUICK:%=tests/%) $(ARGS)

# What a change must pass before its tests run.
check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports --no-logo

# A generated day of jobs on 64 virtual nodes. Choose: make demo ARGS="--count 300 --seed 7"
demo: $(READY)
	@$(BIN)/fallow demo $(ARGS)

# The real services in 10,000 simulated worlds full of faults. Choose: make faults ARGS="--seeds 500 --faults crash,late"
faults: $(READY)
	@$(BIN)/fallow faults $(if $(findstring --seeds,$(ARGS)),,--seeds 10000) --shrink $(ARGS)

# One defence at a time taken out of a copy of the code: is it noticed? Choose: make mutants ARGS="--minutes 5"
mutants: $(READY)
	@$(BIN)/fallow faults --mutants $(ARGS)

# Kills and other mishaps on a real Kafka and a real Valkey. Choose: make chaos ARGS="--kills 50 --seed 7"
chaos: $(READY)
	@PYTHONPATH=. $(BIN)/python -m tests.chaos.run $(ARGS)

# Hours of operation in minutes. Choose: make soak ARGS="--minutes 5"
soak: $(READY)
	@PYTHONPATH=. $(BIN)/python -m tests.chaos.soak $(ARGS)

# Five million inputs for everything that takes bytes from elsewhere. Choose: make fuzz ARGS="--inputs 100000 --seed 7"
fuzz: $(READY)
	@PYTHONPATH=. $(BIN)/python -m tests.fuzz.campaign $(ARGS)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Writes both locks again; needs uv on the PATH. They name no registry: each machine uses its own. The second one is what
# the image installs: the same versions, without the tools and without what only stands in for real servers.
COMPILE := uv pip compile pyproject.toml --python-version 3.11 --universal --generate-hashes --quiet \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
lock:
	$(COMPILE) --extra dev --extra demo --extra plots --upgrade --output-file requirements.lock
	$(COMPILE) --constraint requirements.lock --no-annotate \
		--output-file requirements-run.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
