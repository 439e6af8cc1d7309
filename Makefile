# Everything a new machine needs: Python 3.11 or newer and make.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: install test lint demo validate lab lab-small bench screenshot

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("simscale needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --config-settings editable_mode=compat --editable '.[test]'
	$(BIN)/python -m compileall -q simcore measure tui
	touch $(STAMP)

test: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Calibrate this machine, train for real on one and two ranks, predict both and print them side by side.
demo: $(STAMP)
	$(BIN)/simscale calibrate --quick --cpu-ranks 2 -o profile.json
	$(BIN)/simscale measure scenarios/2xcpu.toml --cpu-ranks 2 -o measured.json
	@echo; echo "From the calibration alone, which has not seen this model:"; echo
	$(BIN)/simscale predict scenarios/2xcpu.toml --profile profile.json --measured measured.json
	@echo; echo "With the measured step of one rank as the compute's anchor, so that only two ranks are scored:"; echo
	$(BIN)/simscale predict scenarios/2xcpu.toml --profile profile.json --measured measured.json --anchor 1

# Published runs predicted and scored: the figures of the README.
validate: $(STAMP)
	$(BIN)/simscale validate scenarios/published/*.csv --rows --max-mape 0.1

lab: $(STAMP)
	$(BIN)/python -m tests.lab.rehearse

lab-small: $(STAMP)
	$(BIN)/python -m tests.lab.rehearse --small

# The README's picture of the explorer.
screenshot: $(STAMP)
	$(BIN)/python -m tests.screenshot

bench: $(STAMP)
	$(BIN)/python -m tests.bench
