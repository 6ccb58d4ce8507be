# mudroom: `make demo` runs the main job, `make test` the tests; both set up what they need.
.DEFAULT_GOAL := help
PY := .venv/bin/python
.PHONY: help demo install dev test check docs format lock bench reliability clean attacks

help: ## say what there is
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: install ## the main job, for real, on this repository
	@scripts/demo

install: .venv/installed ## .venv with mudroom in it

dev: .venv/developed ## the same, and what tests and checks need

test: dev ## the tests
	$(PY) -m pytest

check: dev docs ## style, types, import contracts, links of the pages
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/pyright

docs: dev ## the documentation site, build/site; a link that leads nowhere is an error
	$(PY) scripts/site

format: dev ## mend the style
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

attacks: dev ## every attack, on every kind of walls, as root and as a user; prints the table of SECURITY.md
	$(PY) scripts/attacks

bench: dev ## the figures, side by side with the floor
	$(PY) -m benchmarks

reliability: dev ## the long proofs of what the tests prove in short, and their figures (an hour or two)
	MUDROOM_LONG=1 $(PY) -m pytest tests/reliability tests/engine/test_firewall.py

lock: ## write requirements/*.txt anew from pyproject.toml
	scripts/lock

clean: ## away with .venv, caches and what was built
	rm -rf .venv .cache build .pytest_cache .ruff_cache .hypothesis

.venv/installed: requirements/run.txt pyproject.toml
	@scripts/venv run
	@touch $@

.venv/developed: requirements/dev.txt pyproject.toml
	@scripts/venv dev
	@touch $@ .venv/installed
