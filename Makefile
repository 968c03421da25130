# make setup | demo | reader | test | test-fast | lint | format | docs | bench | results-phantom | results-ablations | results-cbis | results-folds | results-long | results-looks | results-faithfulness
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Runs of a study at a time, one thread each.
WORKERS ?= 2
# The dataset of results-cbis, -folds, -long and -looks (docs/data.md), and ImageNet weights: a file, or "imagenet".
CBIS ?= ../shared/data/cbis-margins/manifest.csv
VGG16 ?= ../shared/weights/vgg16_imagenet_features.safetensors

.PHONY: setup demo reader test test-fast lint format docs bench results-phantom results-ablations results-cbis results-folds results-long results-looks results-faithfulness clean
.DEFAULT_GOAL := setup

setup: $(STAMP)

# The constraints pin every version. Where they do not lead pip to a CPU build of torch, install that first
# (README.md, "Installation"); pip then keeps it.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "protopyramid needs Python 3.11 or newer")'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/protopyramid demo --out demo

# The reader in a browser: the shipped model of phantoms, with the phantoms that it was trained and tested on to click.
reader: setup
	test -f demo/cases/manifest.csv || $(BIN)/protopyramid data phantom demo/cases --patients 300
	$(BIN)/protopyramid serve phantoms --data demo/cases/manifest.csv --open

# Everything, the slow tests on two processes. Coverage is that of the quick tests: on Python 3.11, measuring the slow ones too would take far longer.
test: lint
	$(BIN)/coverage run -m pytest -q -m "not slow"
	$(BIN)/coverage report
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m slow

# The quick tests on two processes, in about a minute: for use while writing code.
test-fast: setup
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site, in site/; a broken link or reference is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: setup
	$(BIN)/protopyramid bench

# The two share data, backbones and a reference: what one has trained, the other does not train again.
results-phantom: setup
	$(BIN)/protopyramid study studies/phantom.toml --out results/phantoms --workers $(WORKERS)

results-ablations: setup
	$(BIN)/protopyramid study studies/ablations.toml --out results/phantoms --workers $(WORKERS)

# PRECISION=bf16-mixed is faster on CPUs with bf16 instructions and far slower on others (docs/scaling.md).
PRECISION ?= 32-true
REAL = --data $(CBIS) --set model.backbone.weights=$(VGG16) --set train.precision=$(PRECISION) --workers $(WORKERS)

results-cbis: setup
	$(BIN)/protopyramid study studies/cbis.toml --out results/cbis $(REAL)

results-folds: setup
	$(BIN)/protopyramid study studies/cbis-folds.toml --out results/cbis-folds $(REAL)

# The two share their runs; so does studies/cbis-long-tried.toml.
results-long: setup
	$(BIN)/protopyramid study studies/cbis-long.toml --out results/cbis-long $(REAL)

results-looks: setup
	$(BIN)/protopyramid study studies/cbis-looks.toml --out results/cbis-long $(REAL)

# Measures the runs that results-phantom and results-cbis have trained; trains nothing.
results-faithfulness: setup
	$(BIN)/python -m protopyramid.studies.faithfulness_table studies/faithfulness.toml --results results

clean:
	rm -rf build dist demo .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis site
