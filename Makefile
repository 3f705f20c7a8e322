# Every command here works from a fresh clone: each makes or renews .venv first.
SHELL := /bin/bash
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	command -v $(p) >/dev/null && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
PY := .venv/bin/python
VENV = $(if $(PYTHON),$(PYTHON) openrelay/embedded/setup_venv.py,$(error OpenRelay needs Python 3.11 or newer; install it or name it with PYTHON=/path/to/python3))
# For commands that only read code: a database is never reached, and settings want none of the user's.
OFFLINE = env -u DEBUG DATABASE_URL=postgres://nobody@127.0.0.1:1/none DJANGO_SETTINGS_MODULE=openrelay.test_settings

.PHONY: help up test test-deep coverage mutants check schema tour bench lock clean venv venv-dev venv-sdk
help:
	@echo 'make up      run OpenRelay here: database, broker, demo fleet, web, worker, beat, agents'
	@echo 'make tour    tell its story against a running `make up`'
	@echo 'make test    run every test (ARGS="-k name" for some)'
	@echo 'make test-deep  random histories by the hundred (HISTORIES=500)'
	@echo 'make coverage    run every test and measure line and branch coverage (ARGS=\"tests/nodes\" for some)'
	@echo 'make mutants    plant faults, and see the random histories find them (ARGS="name" for some)'
	@echo 'make check   lint, types, floors, migrations, schema'
	@echo 'make schema  write docs/openapi.yaml anew from the code'
	@echo 'make bench   measure'
	@echo 'make lock    resolve the requirements anew'
	@echo 'make clean   remove .venv and caches; var/ with its data stays'

venv:
	@$(VENV) run
venv-sdk:
	@$(VENV) run sdk
venv-dev:
	@$(VENV) dev sdk

# exec: Ctrl-C and signals reach the supervisor itself, which ends everything in order.
up: venv
	@exec $(PY) -m openrelay.embedded --follow-parent

test: venv-dev
	@$(PY) -m pytest $(ARGS)

test-deep: export HISTORIES ?= 200
test-deep: venv-dev
	@$(PY) -m pytest tests/histories $(ARGS)

# Parallel data files: the processes that tests start are measured too, and combined at the end.
coverage: venv-dev
	@$(PY) -m pytest --cov --cov-report=term:skip-covered --cov-report=html $(ARGS)

mutants: venv-dev
	@exec $(PY) -m tests.mutants $(ARGS)

check: venv-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/lint-imports
	# Without a cache: what the plugin for Django keeps of one run misleads it in the next.
	$(OFFLINE) $(PY) -m mypy --cache-dir=/dev/null
	$(OFFLINE) $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	@if [ -f docs/openapi.yaml ]; then set -e; \
		$(OFFLINE) $(PY) manage.py spectacular --validate --fail-on-warn --file .venv/openapi.yaml; \
		diff -u docs/openapi.yaml .venv/openapi.yaml \
			|| { echo 'The committed schema is not what the code says: run `make schema` and commit.'; exit 1; }; fi

schema: venv-dev
	$(OFFLINE) $(PY) manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml

tour: venv-sdk
	@test -f "$${OPENRELAY_HOME:-var}/demo.json" || { echo 'There is no demo yet: run `make up` in another terminal first.'; exit 1; }
	@exec $(PY) manage.py tour $(ARGS)

bench: venv-dev
	@exec $(PY) -m bench $(ARGS)

LOCK = .venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate
lock: venv-dev
	$(LOCK) requirements.in -o requirements.txt
	$(LOCK) requirements-dev.in -c requirements.txt -o requirements-dev.txt
	$(LOCK) --no-deps requirements-sdk.in -o requirements-sdk.txt

clean:
	rm -rf .venv .coverage .coverage.* htmlcov .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
