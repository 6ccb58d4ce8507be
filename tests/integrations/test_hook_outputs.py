"""Outputs of hooks of many kinds, as data: formatters, loggers, guards, notifiers, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, structs

from mudroom._adapters.integrations.hook_programs.outcome import HookOutcome, read_ending

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("hook_outputs.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["title"] for case in CASES])
def test_an_output_has_its_outcome(case: dict[str, Any]) -> None:
    printed = case.get("stdout", "")
    stdout = printed if isinstance(printed, str) else json.dumps(printed)
    outcome = read_ending(case["event"], case.get("code", 0), stdout, case.get("stderr", ""))
    found = {
        name: value for name, value in structs.asdict(outcome).items() if value != DEFAULTS[name]
    }
    expected = dict(case["expect"])
    if failure := expected.pop("failure", ""):
        assert found.pop("failure").startswith(failure)
    assert found == expected


DEFAULTS = structs.asdict(HookOutcome())
assert DEFAULTS["updated_output"] is UNSET


def test_the_corpus_has_each_event_and_no_title_twice() -> None:
    from mudroom._adapters.integrations.hook_programs.events import RULES

    assert {case["event"] for case in CASES} == set(RULES)
    assert len({case["title"] for case in CASES}) == len(CASES) >= 60
