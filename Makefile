# Two commands are all a new user needs: `make demo` and `make test`. Both install into .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo picture test check golden bench wheel clean

demo: .venv/installed
	$(BIN)/certood demo --out runs/demo

# What the README shows. Needs Chromium.
picture: demo
	$(BIN)/python tests/browser.py runs/demo/report/index.html docs/report.png

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2 -m "not slow"

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2

golden: .venv/installed
	CERTOOD_GOLDEN=write $(BIN)/pytest -q -k golden

bench: .venv/installed
	$(BIN)/python benchmarks/run.py $(ONLY)

wheel: .venv/installed
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# torch goes first and by its exact pin: an open range would pull in a CUDA stack on a machine that has a CPU wheel.
.venv/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "certood needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.lock)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf .venv dist build *.egg-info runs
