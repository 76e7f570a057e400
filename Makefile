# make demo   install, then train the 5 x 3 matrix x 3 seeds on the embedded data and print the table
# make quick  format, lint, types and the tests that need no training: about a minute; T=tests/runners/gpu adds tests
# make test   install, then format check, lint, types and all tests but those of the gate and the slow ones
# make shapes the tests of what computes with tensors, with their shapes and types checked at each call
# make others all tests but these and the slow ones; .ci/run runs both
# make slow   the gate's and the slow ones: trainings on both devices, launches under faults, here and on a cluster of several
#             nodes here
# make mutants ROOMS="objectives retrieval" N=20 SEED=7: draws small faults there and lists those that no test notices
# make lowest, make newest   tests and a training with the lowest and newest versions of all requirements, in an
#             environment of their own; PYTHON=python3.13 chooses the interpreter
# make links  the links in goalgrid/, in a checkout that has none: unpacked from a zip, or cloned with core.symlinks=false
# make docs   the pages as a site, in site/
# make tour   run docs/tour.ipynb again and keep its outputs
# make bench  every benchmark in short form, as one table; ROOT=DIR: Flickr8k, as docs/flickr8k.md says
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
unexport PYTHONDONTWRITEBYTECODE # hundreds of processes of the tests share what the first that imports it compiles

TENSORS := tests/objectives tests/retrieval tests/runners/training
QUICK  := tests/grid tests/objectives tests/test_structure.py tests/test_docs.py tests/test_doctests.py
TESTS  := tests
PYTHON := python3
ENVS   := .cache
SUITE  := tests/grid tests/objectives tests/results/records tests/retrieval/test_model.py tests/runners/training/test_trainer.py

.PHONY: demo quick test check types tests shapes others slow mutants lowest newest tour docs bench clean

demo: $(READY)
	$(BIN)/goalgrid run demo

test: check

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs=2 types $(TESTS)

quick: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest $(QUICK) $(T)

types: $(READY)
	$(BIN)/mypy

tests: $(READY)
	$(BIN)/pytest

shapes: $(READY)
	$(BIN)/pytest --jaxtyping-packages=goalgrid.objectives,goalgrid.retrieval,beartype.beartype $(TENSORS)

others: $(READY)
	$(BIN)/pytest -m "not slow" $(TENSORS:%=--gate-of=%)

bench: $(READY)
	$(BIN)/python benchmarks $(if $(ROOT),--root $(ROOT))

slow: $(READY)
	$(BIN)/pytest -n 0 -m "gate or slow"

mutants: $(READY)
	$(BIN)/python -m tests.mutants $(ROOMS) $(if $(N),--n $(N)) $(if $(SEED),--seed $(SEED)) $(if $(FRESH),--fresh)

lowest:
	mkdir -p $(ENVS) && $(PYTHON) -m tests.lowest > $(ENVS)/lowest.txt
	$(MAKE) versions ENV=$(ENVS)/lowest PINS="--constraint $(ENVS)/lowest.txt"

newest:
	$(MAKE) versions ENV=$(ENVS)/newest PINS="--upgrade --upgrade-strategy eager"

.PHONY: versions
versions:
	rm -rf build && $(PYTHON) -m venv --clear $(ENV)
	$(ENV)/bin/pip install --no-compile --quiet --disable-pip-version-check $(PINS) '.[pretrained,ncr,nltk]' pytest pytest-xdist hypothesis beartype pyyaml
	$(ENV)/bin/python -m pytest -n 2 -o filterwarnings=default --disable-warnings $(SUITE)
	$(ENV)/bin/goalgrid run demo --only 'seed=0 objective=con_*' --runs $(ENV)/runs 2> $(ENV)/run.txt
	! grep warning: $(ENV)/run.txt
	$(ENV)/bin/goalgrid report demo --runs $(ENV)/runs

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

tour: $(READY)
	cd docs && ../$(BIN)/jupyter-execute --inplace tour.ipynb

.PHONY: links
links:
	for room in grid objectives results retrieval runners; do rm -f goalgrid/$$room && ln -s ../$$room goalgrid/$$room; done

$(READY): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,docs]'
	touch $(READY)

clean:
	rm -rf $(VENV) .cache runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
