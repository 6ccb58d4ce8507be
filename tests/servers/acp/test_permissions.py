"""Questions about calls: at every depth, many at once, kept answers, and clients that are rude."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mudroom import ToolContext, tool
from mudroom._core.agents import Mode
from mudroom.ports import InputForm
from mudroom.testing import Request, call

from ..gate import Gate
from .conftest import Line, MakeEditor


def nest(depth: int) -> Any:
    """Return a script whose run at this depth writes a file."""

    def answer(request: Request) -> Any:
        if request.results:
            return " ".join(result.text for result in request.results)
        level = request.prompt.count("x")
        if level < depth:
            return call("task", prompt="x" * (level + 1), description=f"level {level + 1}")
        return call("write", file_path="made.txt", content="new text\n")

    return answer


@pytest.mark.parametrize("subagents", [True, False])
async def test_a_question_of_depth_three_reaches_the_client(
    make_editor: MakeEditor, *, subagents: bool
) -> None:
    editor = make_editor(nest(3), subagents=subagents)
    async with editor.use() as session:
        await editor.ask(session, "Write it.")
    (question,) = [line["params"] for line in editor.requests]
    child = f"{session}/1.1.1.1.1.1.1"
    tool_call = question["toolCall"]
    assert question["sessionId"] == (child if subagents else session)
    assert tool_call["kind"] == "edit"
    path = str(editor.folder / "made.txt")
    diff = {"type": "diff", "path": path, "oldText": None, "newText": "new text\n"}
    assert tool_call["content"][0] == diff
    assert tool_call["locations"] == [{"path": path}]
    kinds = [option["kind"] for option in question["options"]]
    assert kinds == ["allow_once", "allow_always", "reject_once"]
    if subagents:
        ids = [each["toolCallId"] for each in editor.list_updates("tool_call", child)]
        assert tool_call["toolCallId"] in ids
        states = editor.list_states()[child]
        assert states == ["running", "requires_action", "running", "idle"]
    else:
        assert tool_call["title"].startswith("general 1.1.1.1.1.1.1: write")
    assert (editor.folder / "made.txt").read_text() == "new text\n"


async def test_an_answer_for_always_holds_for_the_folder_and_later_sessions(
    make_editor: MakeEditor,
) -> None:
    editor = make_editor(nest(1))
    editor.answer = lambda _: "allow_always"
    async with editor.serve():
        for _ in range(2):
            session = await editor.open()
            await editor.ask(session, "Write it.")
            await editor.ask(session, "Write it again.")
    assert len(editor.requests) == 1
    assert "Always allow in this folder: write" in str(editor.requests[0])


async def test_children_ask_at_once_and_each_call_once(make_editor: MakeEditor) -> None:
    def answer(request: Request) -> Any:
        if request.turn:
            return "Done."
        if request.prompt == "Ask.":
            return [call("task", prompt=f"Write {number}.") for number in range(5)]
        name = request.prompt.split()[1]
        return call("write", file_path=f"{name}txt", content=name)

    editor = make_editor(answer)
    editor.answer = lambda _: None
    async with editor.use() as session:
        prompt = editor.start_prompt(session, "Ask.")
        await editor.wait_until(lambda: len(editor.requests) == 5)
        for line in editor.requests:
            editor.choose(line, "allow")
        await editor.finish(prompt)
    asked = Counter(line["params"]["sessionId"] for line in editor.requests)
    assert sorted(asked.values()) == [1] * 5
    assert len(list(editor.folder.glob("*.txt"))) == 5


async def test_a_cancel_ends_questions_that_the_client_never_answers(
    make_editor: MakeEditor,
) -> None:
    """The client gets no `$/cancel_request`, since nothing says whether it knows that method."""
    editor = make_editor(nest(2))
    editor.answer = lambda _: None
    async with editor.use() as session:
        prompt = editor.start_prompt(session, "Write it.")
        await editor.wait_until(lambda: editor.requests)
        editor.notify("session/cancel", sessionId=session)
        result = await editor.finish(prompt)
        editor.choose(editor.requests[0], "cancelled")
        editor.choose(editor.requests[0], "allow")
    assert result["stopReason"] == "cancelled"
    assert [line for line in editor.lines if line.get("method") == "$/cancel_request"] == []
    assert not (editor.folder / "made.txt").exists()


async def test_each_outcome_but_a_choice_to_allow_denies_the_call(make_editor: MakeEditor) -> None:
    editor = make_editor(nest(0))
    answers: list[Any] = ["reject", "cancelled", "nonsense"]
    editor.answer = lambda _: answers.pop(0)
    async with editor.use() as session:
        assert (await editor.ask(session, "Write it."))["stopReason"] == "end_turn"
        assert "the user said no" in editor.join_text(session)
        assert editor.list_updates("tool_call_update")[-1]["status"] == "failed"
        await editor.ask(session, "Write it.")
        await editor.ask(session, "Write it.")
        editor.answer = lambda _: None
        prompt = editor.start_prompt(session, "Write it.")
        await editor.wait_until(lambda: len(editor.requests) == 4)
        editor.send(id=editor.requests[-1]["id"], error={"code": -1, "message": "no screen"})
        await editor.finish(prompt)
    assert not (editor.folder / "made.txt").exists()
    assert "the editor could not decide: no screen" in editor.join_text(session)


async def test_a_wider_mode_holds_at_once_and_for_the_next_prompt(make_editor: MakeEditor) -> None:
    gate = Gate(nest(0))
    editor = make_editor(gate)
    async with editor.use() as session:
        prompt = editor.start_prompt(session, "Write it.")
        await gate.asked.wait()
        assert (
            await editor.request("session/set_mode", sessionId=session, modeId="acceptEdits") == {}
        )
        gate.opened.set()
        await editor.finish(prompt)
        await editor.ask(session, "Write it.")
    assert editor.requests == []
    assert (editor.plans[-1].mode, editor.plans[-1].resume) == (Mode.ACCEPT_EDITS, session)
    options = editor.list_updates("config_option_update")[-1]["configOptions"]
    assert options[0]["currentValue"] == "acceptEdits"


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
