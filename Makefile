# make setup | demo | reader | pictures | model | model-card | model-phantoms | test | test-fast | lint | format | docs | bench | results-phantom | results-ablations | results-cbis | results-folds | results-long | results-looks | results-outlined | results-faithfulness | test-hostile | audit | lock | sbom
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Runs of a study at a time, one thread each.
WORKERS ?= 2
# The dataset of results-cbis, -folds, -long and -looks (docs/data.md), and ImageNet weights: a file, or "imagenet".
CBIS ?= ../shared/data/cbis-margins/manifest.csv
CMMD ?= ../shared/data/tompei-margins/manifest.csv
CESM ?= ../shared/data/cesm-margins/manifest.csv
SHIPPED := src/protopyramid/shipped
VGG16 ?= ../shared/weights/vgg16_imagenet_features.safetensors

.PHONY: setup browser demo reader pictures model model-card model-phantoms test test-fast lint format docs bench results-phantom results-ablations results-cbis results-folds results-long results-looks results-outlined results-faithfulness test-hostile audit lock sbom clean
.DEFAULT_GOAL := setup

setup: $(STAMP)

# The constraints pin every version. Where they do not lead pip to a CPU build of torch, install that first
# (docs/install.md); pip then keeps it.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "protopyramid needs Python 3.11 or newer")'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/protopyramid demo --out demo

# The reader in a browser, with the shipped model of phantoms and its cases to click.
reader: setup
	$(BIN)/protopyramid serve phantoms --open

# The shipped model `phantoms`: the demo's run with its pictures and a few cases.
model-phantoms: demo
	$(BIN)/protopyramid models pack demo/run --name phantoms --cases demo/phantoms/manifest.csv --licence "MIT (weights and phantoms)" --licence-file LICENSE --summary "the demo's model of synthetic mammogram patches: circumscribed, indistinct, spiculated, negative" --out $(SHIPPED)/phantoms.zip

# The shipped model `margins`: figures out of fold from the study of outlined lesions, then one training on all
# rows of the three sources (docs/models.md). Stopped at any point, the same command continues.
SEEDS ?= 0,1,2
LICENCE = "MIT (weights); data CC BY 3.0 and CC BY 4.0"
SUMMARY = "margins of breast masses on film and digital mammograms: circumscribed, indistinct, spiculated, negative"
comma := ,
FOLDS = $(foreach seed,$(subst $(comma), ,$(SEEDS)),$(OUTLINED)/seed-$(seed)/protopyramid-all)

model: PIECE = --variants protopyramid-all --seeds $(SEEDS)
model: KEPT =
model: results-outlined
	mkdir -p model
	$(BIN)/protopyramid train margins --data $(OUTLINED)/margins.csv --out model/run --resume $(SETTINGS)
	$(BIN)/protopyramid models cost $(FOLDS) --most 0.002
	$(BIN)/protopyramid models card model/run --words studies/margins-card.toml --data $(OUTLINED)/margins.csv $(addprefix --fold ,$(FOLDS)) --out model/MODEL_CARD.md
	$(BIN)/protopyramid models pack model/run --name margins --version 1 --bits 8 --without-pictures --card model/MODEL_CARD.md --licence $(LICENCE) --summary $(SUMMARY) --out model/margins.zip
	test $$(wc -c < model/margins.zip) -le 20000000
	cp model/margins.zip $(SHIPPED)/margins.zip

# The card of the shipped `margins` again, from the kept results of its folds; weights and everything else stay.
model-card: setup
	mkdir -p model
	$(BIN)/protopyramid data join film=$(CBIS) cmmd=$(CMMD) cesm=$(CESM) model/margins.csv
	$(BIN)/protopyramid models card margins --words studies/margins-card.toml --data model/margins.csv $(foreach seed,$(subst $(comma), ,$(SEEDS)),--fold studies/kept/outlined/seed-$(seed)/protopyramid-all) --out model/MODEL_CARD.md
	$(BIN)/protopyramid models pack margins --name margins --version 1 --bits 8 --without-pictures --card model/MODEL_CARD.md --licence $(LICENCE) --summary $(SUMMARY) --out model/margins.zip
	test $$(wc -c < model/margins.zip) -le 20000000
	cp model/margins.zip $(SHIPPED)/margins.zip

# Everything, on two processes. Coverage is that of the quick tests: on Python 3.11, measuring the slow ones too would take far longer.
test: lint browser
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n 2 -m "not slow"
	$(BIN)/coverage combine -q
	$(BIN)/coverage report
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m slow

# The reader's tests drive Chromium: it is installed where that can be done without asking, else they are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || echo "Chromium is not installed: the tests of the reader's page will be skipped"

# The quick tests on two processes, in about a minute: for use while writing code.
test-fast: setup
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

# Every entry point with every kind of bad input: more than 5,000 cases, an hour or so on one core. Then longer
# searches of hypothesis, and every command struck at every one of its writes.
# One part of them: make test-hostile HOSTILE="--part 1/8".
HOSTILE ?=
test-hostile: setup
	$(BIN)/python -m tests.hostile $(HOSTILE)
	EXAMPLES=500 $(BIN)/python -m pytest -q tests/hostile/test_parsers.py
	FAULTS=all $(BIN)/python -m pytest -q tests/faults tests/training/test_kill.py

# Known vulnerabilities of the pinned versions (where the network can be asked) and their licences.
audit: setup
	$(BIN)/python -m tools.supply audit

# requirements.lock, with hashes, from constraints.txt; and the SBOM of a release, in CycloneDX.
lock: setup
	$(BIN)/python -m tools.supply lock

sbom: setup
	$(BIN)/python -m tools.supply sbom --out dist/protopyramid.cdx.json

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site, in site/; a broken link or reference is an error (with --quiet, mkdocs would not count warnings).
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures of README and docs; one of them: make pictures PICTURES=reader.png
PICTURES ?=
pictures: setup
	$(BIN)/python -m tools.pictures $(PICTURES)

bench: setup
	$(BIN)/protopyramid bench

# The two share data, backbones and a reference: what one has trained, the other does not train again.
results-phantom: setup
	$(BIN)/protopyramid study studies/phantom.toml --out results/phantoms --workers $(WORKERS)

results-ablations: setup
	$(BIN)/protopyramid study studies/ablations.toml --out results/phantoms --workers $(WORKERS)

# PRECISION=bf16-mixed is faster on CPUs with bf16 instructions and far slower on others (docs/scaling.md).
PRECISION ?= 32-true
SETTINGS = --set model.backbone.weights=$(VGG16) --set train.precision=$(PRECISION)
REAL = --data $(CBIS) $(SETTINGS) --workers $(WORKERS)

results-cbis: setup
	$(BIN)/protopyramid study studies/cbis.toml --out results/cbis $(REAL)

results-folds: setup
	$(BIN)/protopyramid study studies/cbis-folds.toml --out results/cbis-folds $(REAL)

# The two share their runs; so does studies/cbis-long-tried.toml.
results-long: setup
	$(BIN)/protopyramid study studies/cbis-long.toml --out results/cbis-long $(REAL)

results-looks: setup
	$(BIN)/protopyramid study studies/cbis-looks.toml --out results/cbis-long $(REAL)

# Film and digital mammograms: the three manifests are joined first. Pieces: PIECE="--seeds 0 --variants vgg16-all,protopyramid-all"
# Results of earlier pieces are in studies/kept/outlined, so a run that was measured is not trained again.
OUTLINED = results/outlined
KEPT = --kept studies/kept/outlined
PIECE ?=

results-outlined: setup
	$(BIN)/protopyramid data join film=$(CBIS) cmmd=$(CMMD) cesm=$(CESM) $(OUTLINED)/margins.csv
	$(BIN)/protopyramid study studies/outlined.toml --out $(OUTLINED) $(SETTINGS) --workers $(WORKERS) --data $(OUTLINED)/margins.csv $(KEPT) $(PIECE)

# Measures the runs that the studies above have trained; trains nothing. What was measured is kept in the repository.
results-faithfulness: setup
	$(BIN)/python -m protopyramid.studies.faithfulness_table studies/faithfulness.toml --results results --kept studies/kept/faithfulness

clean:
	rm -rf build dist demo .audit .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis site
