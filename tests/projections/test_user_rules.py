"""Rules in messages of the user: how they are found, and how a later message removes them."""

from __future__ import annotations

import pytest

from mudroom._core.events import AnyEvent, MessageDelivered
from mudroom._projections.context_size import ContextReceipts
from mudroom._projections.transcript import find_rules, list_rules
from mudroom.testing.event_builders import run_started


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("Never touch 3.txt.", "Never touch 3.txt."),
        ("- always run the tests", "always run the tests"),
        ("  2. Don't push.", "Don't push."),
        ("Rule: tabs, not spaces.", "tabs, not spaces."),
        ("* rule: Never push.", "Never push."),
        ("不要修改 notes.txt。", "不要修改 notes.txt。"),
        ("必须先运行测试", "必须先运行测试"),
    ],
)
def test_a_line_that_begins_like_a_rule_is_one(line: str, rule: str) -> None:
    assert list_rules([f"Do the work.\n{line}\nThen stop."]) == [rule]


@pytest.mark.parametrize(
    "line", ["Nevertheless go on.", "You must not stop.", "rules: none", "Musty room", "Rule:", ""]
)
def test_other_lines_are_no_rules(line: str) -> None:
    assert list_rules([line]) == []


def test_a_later_message_removes_a_rule_and_another_one_adds_it_again() -> None:
    texts = ["- never push\nalways test", "Rule removed: never push"]
    assert list_rules(texts) == ["always test"]
    assert find_rules(texts)["never push"] == "Rule removed: never push"
    assert list_rules([*texts, "Rule: never push"]) == ["never push", "always test"]


def test_rules_follow_the_conversation_through_messages_and_rewinds() -> None:
    receipts = ContextReceipts()
    events: list[AnyEvent] = [
        run_started("1", prompt="never push"),
        MessageDelivered(at=1, run="1", text="always test", message_id="p1", origin="user"),
        MessageDelivered(at=1, run="1", text="never tell", message_id="m1", origin="child"),
        run_started("1.1.1", parent="1", prompt="never read"),
        run_started("2", prompt="Rule removed: never push", continues="1"),
    ]
    for event in events:
        receipts.apply(event)
    assert receipts.list_rules() == ["always test"]
    assert receipts.list_rules("Rule: be brief") == ["always test", "be brief"]
    receipts.rewind("2")
    assert receipts.list_rules() == ["never push", "always test"]
    receipts.apply(run_started("3", prompt="never mind", continues=""))
    assert receipts.list_rules() == ["never mind"]
