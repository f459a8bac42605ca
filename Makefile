# From a fresh clone, with Python 3.11 or newer and make:
#   make quickstart   audits two rankers on the embedded collection
#   make test         lint, then every test
# Each target installs what it needs into .venv once; a second run installs nothing.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip
OUT ?= quickstart-results

export HF_HUB_OFFLINE ?= 1

.PHONY: quickstart test lint docs clean

quickstart: $(VENV)/.demo
	$(VENV)/bin/pyterrier-debias audit --depth 30 --draws 2 --out $(OUT) --overwrite

test: $(VENV)/.terrier lint
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .

docs: $(VENV)/.test
	$(VENV)/bin/python docs/build.py

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit("pyterrier_debias needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	touch $@

# An environment that holds an extra is made anew for a change of what the project depends on, and for nothing else.
$(VENV)/.demo: $(VENV)/.python setup.cfg pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.test: $(VENV)/.python setup.cfg pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test,docs,linguistic,ray]'
	touch $@ $(VENV)/.demo

# Terrier's jars, for the tests marked java. Without Java, or where the jars cannot be had, those tests are skipped and say why.
$(VENV)/.terrier: $(VENV)/.test
	if command -v java >/dev/null; then $(VENV)/bin/python -c 'import pyterrier as pt; pt.java.init()' || true; fi
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info docs/_build docs/api docs/pages
