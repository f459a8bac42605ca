# From a fresh clone, with Python 3.11 to 3.13 and make:
#   make quickstart   audits two rankers on a planted collection, and a third that is the second debiased
#   make test         lint, types, then every test
#   make check        lint, types, and the tests that need no minutes
# Before a release, too (docs/RELEASING.md):
#   make wheel        builds a wheel and audits with it alone, outside the checkout
#   make lowest       the tests with the lowest versions that setup.cfg promises
#   make newest       the tests with the newest versions, without constraints.txt
#   make py313        `make test` with Python 3.13
#   make gpu-check    what needs a CUDA device: the tests marked gpu, and the speed there
# Each target installs what it needs into an environment of its own once; a second run installs nothing.

PYTHON ?= python3
PYTHON313 ?= python3.13
VENV := .venv
PIP := $(VENV)/bin/python -m pip
UV := $(VENV)/bin/uv
EXTRAS := test,docs,ray
OUT ?= quickstart-results
# Every bias at full strength (pooling: at 1 its test finds nothing), and enough queries to see what these rankers make of it
PLANTED := planted/topics=120,passages=2400,position=1,survivorship=1,gender=1,linguistic=1,pooling=0.7
# More for pytest, for example PYTEST="-m 'not java'"
PYTEST ?=
# Old releases beside the newest ones of what they bring announce what will leave: that is no error here. Java is left to `make test`.
PYTEST_VERSIONS ?= -m 'not java' $(patsubst %,-W default::%,DeprecationWarning PendingDeprecationWarning FutureWarning)

# The fast tier: every file directly in tests/ but those that build documentation or run its code, run examples or benchmarks, start Ray, write with every ranker, or simulate.
# PYTEST=tests/gender adds a folder.
FAST := $(filter-out $(patsubst %,tests/test_%.py,benchmarks docs examples pages ray statistics writing),$(sort $(wildcard tests/test_*.py)))

export HF_HUB_OFFLINE ?= 1

.PHONY: quickstart test check suite fast lint mypy docs gpu-check wheel lowest newest py313 clean

quickstart: $(VENV)/.demo
	$(VENV)/bin/pyterrier-debias audit --dataset $(PLANTED) --depth 20 --draws 1 --rotations 2 --out $(OUT) --overwrite

# Many tests start Python anew: each start would compile the package again where compiled files are not to be written.
test check: export PYTHONDONTWRITEBYTECODE =
# mypy has one process: beside the tests it costs half the time.
test: $(VENV)/.terrier lint
	$(MAKE) --no-print-directory --jobs 2 mypy suite

check: lint
	$(MAKE) --no-print-directory --jobs 2 mypy fast

# Three processes for two cores, since tests also wait, for files and for processes that they start. One that dies is a fault to be
# found: no other takes its place.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
suite: $(VENV)/.test
	$(VENV)/bin/python -m pytest $(PARALLEL) $(PYTEST)

fast: $(VENV)/.test
	$(VENV)/bin/python -m pytest $(PARALLEL) -q -m 'not java' $(FAST) $(PYTEST)

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .

mypy: $(VENV)/.test
	$(VENV)/bin/python -m mypy pyterrier_debias

gpu-check: $(VENV)/.test
	$(VENV)/bin/python benchmarks/gpu_check.py --out pyterrier_debias/pt_docs

docs: $(VENV)/.test
	$(VENV)/bin/python docs/build.py

wheel: $(VENV)/.tools
	rm -rf build dist
	$(VENV)/bin/python -m build --wheel --outdir dist
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(UV) venv --quiet --python $(VENV)/bin/python "$$folder/venv"; \
	$(UV) pip install --quiet --python "$$folder/venv/bin/python" --constraint constraints.txt "$$(echo dist/*.whl)[demo]"; \
	cd "$$folder"; \
	venv/bin/pyterrier-debias audit --depth 10 --draws 1 --out results; \
	test -s results/index.html -a -s results/findings.csv

lowest: $(VENV)/.tools
	$(UV) venv --quiet --clear --python $(VENV)/bin/python .venv-lowest
	$(UV) pip compile --quiet --resolution lowest-direct --python .venv-lowest/bin/python \
		$(patsubst %,--extra %,$(subst $(comma), ,$(EXTRAS))) --output-file .venv-lowest/requirements.txt setup.cfg
	$(UV) pip install --quiet --python .venv-lowest/bin/python --requirement .venv-lowest/requirements.txt
	$(UV) pip install --quiet --python .venv-lowest/bin/python --no-deps --editable .
	.venv-lowest/bin/python -m pytest $(PARALLEL) $(PYTEST_VERSIONS)

newest: $(VENV)/.tools
	$(UV) venv --quiet --clear --python $(VENV)/bin/python .venv-newest
	$(UV) pip install --quiet --upgrade --python .venv-newest/bin/python --editable '.[$(EXTRAS)]'
	.venv-newest/bin/python -m pytest $(PARALLEL) $(PYTEST_VERSIONS)

py313:
	$(MAKE) test VENV=.venv-3.13 PYTHON=$(PYTHON313)

comma := ,

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "pyterrier_debias needs Python 3.11, 3.12 or 3.13")'
	$(PYTHON) -m venv $(VENV)
	touch $@

# An environment that holds an extra is made anew for a change of what the project depends on, and for nothing else.
$(VENV)/.demo: $(VENV)/.python setup.cfg pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.test: $(VENV)/.python setup.cfg pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@ $(VENV)/.demo

# What builds wheels and resolves versions.
$(VENV)/.tools: $(VENV)/.python constraints.txt
	$(PIP) install --quiet --constraint constraints.txt build uv
	touch $@

# Terrier's jars, for the tests marked java. Without Java, or where the jars cannot be had, those tests are skipped and say why.
$(VENV)/.terrier: $(VENV)/.test
	if command -v java >/dev/null; then $(VENV)/bin/python -c 'import pyterrier as pt; pt.java.init()' || true; fi
	touch $@

clean:
	rm -rf $(VENV) .venv-* build dist *.egg-info docs/_build docs/_source
