"""Refusals as recorded in the public test suites of other projects: none is misread.

From crmne/ruby_llm, Arize-ai/openinference and traceloop/openllmetry, without keys and ids.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.models._errors import extract_error_text
from mudroom._adapters.models.refusals.classifier import Meaning, read_refusal

PATH = Path(__file__).with_name("recorded_refusals.jsonl")
RECORDED: list[dict[str, Any]] = [json.loads(line) for line in PATH.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    "each", RECORDED, ids=[f"{each['provider']}-{each['status']}" for each in RECORDED]
)
def test_a_recorded_refusal_means_what_it_says(each: dict[str, Any]) -> None:
    body = json.dumps(each["body"]).encode()
    text = extract_error_text(body)
    refusal = read_refusal(each["status"], text, body, each["headers"])
    assert refusal.meaning is Meaning(each["meaning"])
    assert refusal.wait == each["wait"]
    assert refusal.may_retry is (refusal.meaning is Meaning.LOAD)
