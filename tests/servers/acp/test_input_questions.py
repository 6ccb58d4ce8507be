"""Questions of MCP servers and tools, which the user of the editor answers."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom import ToolContext, tool
from mudroom.ports import InputForm
from mudroom.testing import Request, call

from .conftest import Line, MakeEditor

SCHEMA: Line = {"type": "object", "properties": {"branch": {"type": "string"}}}
BOTH: Line = {"elicitation": {"form": {}, "url": {}}}
ADDRESS = "https://login.example/start"


@tool
async def choose(ctx: ToolContext, url: str) -> str:
    """Ask the user."""
    schema = {} if url else SCHEMA
    answer = await ctx.ask_user(InputForm("git", "Which branch?", schema, url))
    return f"{answer.allowed} {answer.arguments} {answer.why}"


def script(url: str) -> Any:
    def answer(request: Request) -> Any:
        if request.results:
            return request.results[0].text
        if request.prompt == "Ask.":
            return call("task", prompt="Choose.", description="a choice")
        return call("choose", url=url)

    return answer


async def run_tool(
    make_editor: MakeEditor, abilities: Line, reply: Line, url: str = ""
) -> tuple[list[Line], str, str]:
    editor = make_editor(script(url), abilities=abilities, tools=[choose])
    questions: list[Line] = []

    def fill(params: Line) -> Line:
        questions.append(params)
        return reply

    editor.fill = fill
    async with editor.use() as session:
        await editor.ask(session, "Ask.")
    return questions, session, editor.join_text(session)


async def test_a_form_of_a_child_is_filled_by_the_user(make_editor: MakeEditor) -> None:
    reply = {"result": {"action": "accept", "content": {"branch": "main"}}}
    (question,), session, text = await run_tool(make_editor, BOTH, reply)
    child = f"{session}/1.1.1"
    assert question.pop("toolCallId")
    assert question == {
        "sessionId": child,
        "message": "MCP server git asks: Which branch?",
        "mode": "form",
        "requestedSchema": SCHEMA,
    }
    assert "True {'branch': 'main'}" in text


async def test_an_address_is_shown_to_the_user(make_editor: MakeEditor) -> None:
    reply = {"result": {"action": "accept"}}
    (question,), _, text = await run_tool(make_editor, BOTH, reply, ADDRESS)
    assert (question["mode"], question["url"]) == ("url", ADDRESS)
    assert question["elicitationId"]
    assert "True {}" in text


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"result": {"action": "decline"}}, "the user declined"),
        ({"result": {"action": "cancel"}}, "the user declined"),
        ({"result": {"content": {"branch": "main"}}}, "the user declined"),
        ({"result": {"action": "accept", "content": ["main"]}}, "the user answered"),
        ({"error": {"code": -32601, "message": "none"}}, "the editor could not answer: none"),
    ],
)
async def test_other_answers_give_no_values(make_editor: MakeEditor, reply: Line, why: str) -> None:
    questions, _, text = await run_tool(make_editor, BOTH, reply)
    assert len(questions) == 1
    assert why in text
    assert "branch" not in text


@pytest.mark.parametrize(
    ("abilities", "url", "why"),
    [
        ({}, "", "the editor shows no forms of MCP servers"),
        ({"elicitation": {"url": {}}}, "", "the editor shows no forms of MCP servers"),
        ({"elicitation": {"form": {}}}, ADDRESS, "the editor shows no addresses of MCP servers"),
        ({"elicitation": "all"}, "", "the editor shows no forms of MCP servers"),
    ],
)
async def test_a_client_that_cannot_show_a_question_is_not_asked(
    make_editor: MakeEditor, abilities: Line, url: str, why: str
) -> None:
    questions, _, text = await run_tool(make_editor, abilities, {"result": {}}, url)
    assert questions == []
    assert why in text
