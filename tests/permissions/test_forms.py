"""Forms of MCP servers at the prompt: fields, limits, defaults, addresses, and stopping."""

from __future__ import annotations

from typing import Any

from mudroom._cli.interactive.questions.approvals import ApprovalPrompt
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom._core.ports.approval import InputForm

from .test_approvals import ScriptedUI

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "branch": {"type": "string", "description": "Name of the branch", "minLength": 2},
        "depth": {"type": "integer", "minimum": 1, "maximum": 9},
        "push": {"type": "boolean", "default": False},
        "style": {"oneOf": [{"const": "s", "title": "squash"}, {"const": "m", "title": "merge"}]},
        "labels": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
    },
    "required": ["branch"],
}


async def fill(
    form: InputForm, *answers: str | None
) -> tuple[ApprovalDecision, ScriptedUI, list[bool]]:
    ui = ScriptedUI(*answers)
    approvals = ApprovalPrompt(ui)
    stops: list[bool] = []
    approvals.stop = lambda: stops.append(True)
    request = ApprovalRequest("1.1.1", "coder", "mcp__git__commit", {}, why="", form=form)
    return await approvals.questions.decide(request), ui, stops


async def test_a_form_is_asked_field_by_field() -> None:
    form = InputForm("git", "How to commit?", SCHEMA)
    answers = ("x", "main", "ten", "12", "3", "no", "s", "a, c")
    decision, ui, stops = await fill(form, *answers)
    assert decision.allowed and not stops
    assert decision.arguments == {
        "branch": "main",
        "depth": 3,
        "push": False,
        "style": "s",
        "labels": ["a", "c"],
    }
    title = "MCP server git asks, in a call of coder#1.1.1 (1 of 5)"
    assert ui.titles[:2] == [title, title]
    assert "How to commit?" in ui.bodies[0] and "Name of the branch" in ui.bodies[0]
    assert "Name of the branch; at least 2 characters" in ui.bodies[0]
    assert "it has fewer than 2 characters" in ui.bodies[1]
    assert "'ten' is not a whole number" in ui.bodies[3]
    assert "12 is more than 9" in ui.bodies[4]
    assert ui.labels[0] == ["decline to answer"]
    assert ui.labels[5] == ["yes", "no", "the default: no", "decline to answer"]
    assert ui.labels[6] == ["squash", "merge", "no value", "decline to answer"]
    assert "? MCP server git: How to commit?" in ui.text and "Answered." in ui.text


async def test_optional_fields_can_be_left_out() -> None:
    skip = "no value"
    decision, _, _ = await fill(InputForm("git", "How?", SCHEMA), "main", skip, skip, skip, skip)
    assert decision.arguments == {"branch": "main", "push": False}


async def test_limits_of_a_wrong_type_are_not_used() -> None:
    wrong = {"minimum": "5", "maximum": None, "minLength": [1], "maxLength": True, "format": 7}
    kinds = {"depth": "integer", "branch": "string"}
    properties = {name: {"type": kind, **wrong} for name, kind in kinds.items()}
    schema = {"type": "object", "properties": properties}
    decision, ui, _ = await fill(InputForm("git", "How?", schema), "3", "main")
    assert decision.arguments == {"depth": 3, "branch": "main"}
    assert "at least" not in ui.bodies[0] and "at most" not in ui.bodies[0]


async def test_a_form_is_declined_or_the_run_is_stopped() -> None:
    form = InputForm("git", "How?", SCHEMA)
    decision, ui, stops = await fill(form, "main", "decline to answer")
    assert (decision.allowed, decision.arguments, stops) == (False, None, [])
    assert "Declined." in ui.text
    decision, ui, stops = await fill(form, None)
    assert (decision.allowed, stops) == (False, [True])


async def test_an_address_is_shown_with_its_host_and_without_hidden_characters() -> None:
    form = InputForm("git", "Log in\x1b[2J.", url="https://git.example.com/login?x=\u202e1")
    decision, ui, _ = await fill(form, "yes")
    assert decision.allowed
    assert "on the host git.example.com. mudroom does not open it." in ui.bodies[0]
    assert "\x1b" not in ui.bodies[0] and "\u202e" not in ui.bodies[0]
    assert not (await fill(form, "no"))[0].allowed


async def test_a_question_without_fields_is_yes_or_no() -> None:
    form = InputForm("git", "Go on?", {"type": "object", "properties": {}})
    assert (await fill(form, "yes"))[0].allowed
    assert not (await fill(form, "no"))[0].allowed
