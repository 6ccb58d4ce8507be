# `make demo` runs four children on this repository, `make test` the tests. Both install what they need.
.DEFAULT_GOAL := help
PY := .venv/bin/python
.PHONY: help demo install dev test test-fast check docs format lock bench figures reliability mutants clean attacks real merges fits fleet package pictures

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: .venv/installed ## let four children read a part of this repository; needs no key
	@scripts/demo

install: .venv/installed ## create .venv with mudroom
	@echo "installed: .venv/bin/mudroom (next: . .venv/bin/activate, then mudroom)"

dev: .venv/developed ## create .venv with mudroom and all development tools

test: dev ## run the tests
	$(PY) -m pytest

test-fast: dev ## run the tests that start no process
	MUDROOM_FAST=1 $(PY) -m pytest

check: dev docs ## check style, types, import contracts and documentation links
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/pyright

docs: dev ## build the documentation site in build/site; a broken link is an error
	$(PY) scripts/site

pictures: dev ## record the pictures and measure the figures of the front page
	scripts/screencast
	scripts/screenshot

format: dev ## fix the style
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

attacks: dev ## run every attack on every sandbox tier, as root and as a user; prints the attack table
	$(PY) scripts/attacks

bench: dev ## measure, side by side with a bare loop
	$(PY) -m benchmarks

figures: dev ## measure all, and write the figures of docs/performance.md and docs/reliability.md (two to three hours)
	$(PY) -m benchmarks.pages
	-$(PY) -m benchmarks --history
	MUDROOM_FIGURES=1 $(MAKE) reliability

reliability: dev ## run the long fault tests and print their figures (about an hour)
	MUDROOM_LONG=1 $(PY) -m pytest tests/reliability tests/compaction tests/engine/test_firewall.py tests/engine/test_limits_left_behind.py tests/engine/test_call_order.py \
		tests/engine/test_replay_trees.py \
		tests/workspaces/test_landing_whole.py tests/workspaces/test_conflict_kinds.py \
		tests/integrations/test_hook_pairs.py \
		tests/batches/test_interruptions.py tests/engine/test_normalize.py tests/agent_files \
		tests/offline/test_ordinary_requests.py \
		tests/permissions/test_agent_patterns.py tests/scope/test_templates.py tests/growth

merges: dev ## let children change the packages of a folder at once, then run their tests: make merges FOLDER=...
	MUDROOM_LONG=1 MUDROOM_SUBJECTS=$(abspath $(FOLDER)) $(PY) -m pytest tests/reliability/test_real_repositories.py

fits: dev ## run the programs of others with mudroom, such as the agent SDKs and MCP servers; NEWEST=1: in their newest versions
	scripts/fits

real: dev ## run the tests against a real model on this machine; the first run builds its server (10 to 40 minutes)
	scripts/real

fleet: dev ## install Ray (330 MB) and run the tests with a Ray cluster; CHILDREN=10000 measures that many
	$(PY) -m pip install -q --require-hashes -r requirements/fleet.txt
	scripts/fleet $(if $(CHILDREN),--scale $(CHILDREN))

mutants: dev ## change code in small ways and print what no test notices: make mutants MODULE=src/... TESTS=tests/... MINUTES=8
	$(PY) -m pip install -q --require-hashes -r requirements/mutants.txt
	$(PY) scripts/mutants $(if $(MINUTES),--minutes $(MINUTES)) $(MODULE) $(TESTS)

package: dev ## build the packages for an index in dist; its links lead to the repository: make package URL=https://...
	MUDROOM_PROJECT_URL="$(URL)" $(PY) -m hatchling build -d dist

lock: ## write requirements/*.txt from pyproject.toml
	scripts/lock

clean: ## delete .venv, caches and build results
	rm -rf .venv .cache build .pytest_cache .ruff_cache .hypothesis

.venv/installed: requirements/run.txt pyproject.toml
	@scripts/venv run
	@touch $@

.venv/developed: requirements/dev.txt pyproject.toml
	@scripts/venv dev
	@touch $@ .venv/installed
