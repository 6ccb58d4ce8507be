"""Prompts of the editor: text, calls with differences, plans, choices, cancels, wrong content."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integrations.mcp_servers.servers import make_quick
from tests.waiting import wait_until

from mudroom import ModelOptions, Reason, Report
from mudroom._core.budgets import Budget
from mudroom._core.messages import AssistantMessage, StopReason, TextBlock, ThinkingBlock
from mudroom.errors import ModelRefused
from mudroom.testing import Request, call
from mudroom.views import describe_end
from mudroom_hosts.file_prompts import FilePrompt

from .conftest import Line, MakeEditor

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
"""An image of one pixel."""


async def test_text_and_thoughts_stream_and_the_answer_has_the_reason(
    make_editor: MakeEditor,
) -> None:
    text = "A long answer with many words, so that it comes in several pieces. " * 3
    editor = make_editor([[ThinkingBlock("Let me think."), text]])
    async with editor.use() as session:
        result = await editor.ask(session, "Hello.")
    assert result["stopReason"] == "end_turn"
    assert result["_meta"]["mudroom"]["reason"] == "GOAL"
    assert editor.join_text(session) == text
    assert editor.join_text(session, "agent_thought_chunk") == "Let me think."
    chunks = editor.list_updates("agent_message_chunk")
    assert len(chunks) > 1
    assert len({chunk["messageId"] for chunk in chunks}) == 1
    assert editor.list_updates("usage_update")[-1]["used"] > 0


async def test_calls_have_kinds_places_and_differences(make_editor: MakeEditor) -> None:
    calls = [
        call("write", file_path="a.txt", content="one\ntwo\n"),
        call("read", file_path="a.txt", offset=2),
        call("edit", file_path="a.txt", old_string="two", new_string="three"),
        call("write", file_path="a.txt", content="four\n"),
        call("grep", pattern="four"),
        call("bash", command="echo $((40 + 2))"),
        call("read", file_path="missing.txt"),
    ]
    todos = [
        {"content": "Look.", "status": "completed"},
        {"content": "Write.", "status": "in_progress"},
    ]
    editor = make_editor([*calls, call("todo", todos=todos), "Done."])
    async with editor.use() as session:
        await editor.ask(session, "Work.")
    started = editor.list_updates("tool_call")
    path = str(editor.folder / "a.txt")
    kinds = ["edit", "read", "edit", "edit", "search", "execute", "read"]
    assert [each["kind"] for each in started[:7]] == kinds
    assert [each["status"] for each in started[:7]] == ["pending"] * 7
    (plan,) = editor.list_updates("plan")
    assert plan["entries"] == [{**todo, "priority": "medium"} for todo in todos]
    assert started[1]["locations"] == [{"path": path, "line": 2}]
    assert started[5]["rawInput"] == {"command": "echo $((40 + 2))"}
    diffs = [
        (each["oldText"], each["newText"])
        for update in editor.list_updates("tool_call_update")
        for each in update.get("content", [])
        if each["type"] == "diff"
    ]
    expected = [(None, "one\ntwo\n"), ("two", "three"), ("one\nthree\n", "four\n")]
    assert list(dict.fromkeys(diffs)) == expected
    ends = [each for each in editor.list_updates("tool_call_update") if "failed" in str(each)]
    assert [each["toolCallId"] for each in ends] == [started[6]["toolCallId"]]
    assert "42" in str(editor.list_updates("tool_call_update"))


async def test_the_output_of_a_command_is_shown_while_it_runs(make_editor: MakeEditor) -> None:
    command = "seq 9; until [ -e go ]; do sleep 0.05; done; echo end"
    editor = make_editor([call("bash", command=command), "Done."])

    def list_texts() -> list[tuple[str, str]]:
        return [
            (update.get("status", ""), part["content"]["text"])
            for update in editor.list_updates("tool_call_update")
            for part in update.get("content", [])
        ]

    async with editor.use() as session:
        prompt = editor.start_prompt(session, "Work.")
        await editor.wait_until(list_texts)
        assert list_texts()[0] == ("", "\n".join(map(str, range(1, 10))))
        (editor.folder / "go").touch()
        await editor.finish(prompt)
    status, text = list_texts()[-1]
    assert status == "completed" and text.split() == [*"123456789", "end"]
    assert len({update["toolCallId"] for update in editor.list_updates("tool_call_update")}) == 1


@pytest.mark.parametrize(
    ("answer", "budget", "expected"),
    [
        (call("glob", pattern="*"), Budget(turns=1), "max_turn_requests"),
        (
            AssistantMessage((TextBlock("I would"),), stop_reason=StopReason.LENGTH),
            Budget(),
            "max_tokens",
        ),
        (
            AssistantMessage((TextBlock("I refuse."),), stop_reason=StopReason.REFUSAL),
            Budget(),
            "refusal",
        ),
    ],
)
async def test_limits_and_refusals_have_their_stop_reasons(
    make_editor: MakeEditor, answer: Any, budget: Budget, expected: str
) -> None:
    editor = make_editor([answer] * 9, prompt_budget=budget)
    async with editor.use() as session:
        result = await editor.ask(session, "Work.")
    assert result["stopReason"] == expected, result


def test_a_run_that_ended_without_an_error_says_why_in_words() -> None:
    report = Report[Any](run_id="1", text="", reason=Reason.LOOP)
    assert describe_end(report) == "The run repeated itself and was stopped."


async def test_a_failed_model_is_an_error_and_the_session_goes_on(make_editor: MakeEditor) -> None:
    def answer(request: Request) -> Any:
        return ModelRefused("the model failed") if "Fail." in str(request.messages[-1]) else "Fine."

    editor = make_editor(answer)
    async with editor.use() as session:
        error = await editor.ask(session, "Fail.")
        result = await editor.ask(session, "Again.")
    assert error["code"] == -32603
    assert "the model failed" in error["message"]
    assert error["data"] == {"reason": "ERROR"}
    assert result["stopReason"] == "end_turn"


async def test_cancels_stop_the_prompts_before_them(make_editor: MakeEditor) -> None:
    entered = asyncio.Event()

    async def answer(request: Request) -> Any:
        if "Wait." in str(request.messages[-1]):
            entered.set()
            await asyncio.Event().wait()
        return "Fine."

    editor = make_editor(answer)
    async with editor.use() as session:
        first = editor.start_prompt(session, "Wait.")
        second = editor.start_prompt(session, "Second.")
        await entered.wait()
        editor.notify("session/cancel", sessionId=session)
        third = editor.start_prompt(session, "Third.")
        results = [await editor.finish(each) for each in (first, second, third)]
        entered.clear()
        fourth = editor.start_prompt(session, "Wait.")
        await entered.wait()
        editor.notify("$/cancel_request", requestId=fourth)
        results.append(await editor.finish(fourth))
        fifth = editor.start_prompt(session, "Never.")
        editor.notify("session/cancel", sessionId=session)
        results.append(await editor.finish(fifth))
    reasons = [each["stopReason"] for each in results]
    assert reasons == ["cancelled", "cancelled", "end_turn", "cancelled", "cancelled"]
    assert len(editor.model.requests) == 3


async def test_attachments_reach_the_model(make_editor: MakeEditor) -> None:
    editor = make_editor(["Seen."], model_options=ModelOptions(takes_images=True))
    image: Line = {"type": "image", "mimeType": "image/png", "data": PNG}
    blocks: list[Line] = [
        {"type": "text", "text": "Look at these."},
        {"type": "resource_link", "name": "a", "uri": "file:///tmp/a%20b.txt"},
        {"type": "resource", "resource": {"uri": "file:///x.py#L1", "text": "import mud"}},
        image,
    ]
    wrong: list[list[Line]] = [
        [{"type": "audio", "mimeType": "audio/wav", "data": ""}],
        [],
        *([image | {"data": data}] for data in (None, "", "?", 1234, ["QUJD"])),
    ]
    async with editor.use() as session:
        await editor.request("session/prompt", sessionId=session, prompt=blocks)
        errors = [
            await editor.request("session/prompt", sessionId=session, prompt=each) for each in wrong
        ]
    sent = str(editor.model.requests[0].messages[0])
    assert "Attached: /tmp/a b.txt" in sent
    assert '<resource from="/x.py (L1)">\\nimport mud\\n</resource>' in sent
    assert "ImageBlock" in sent
    audio, empty, *images = errors
    message = "a model gets no content of type audio here"
    assert (audio["code"], audio["message"]) == (-32602, message)
    assert "the prompt is empty" in empty["message"]
    texts = {error["message"] for error in images}
    assert texts == {"an image of the prompt has no data in base64"}


async def test_prompts_of_files_are_commands(make_editor: MakeEditor) -> None:
    editor = make_editor(["One.", "Two."])
    fields: dict[str, Any] = {"description": "fix it", "find_problem": lambda: "it has no end"}
    editor.prompts = [
        FilePrompt(name="fix", format_prompt=lambda words: f"Fix {words}!", **fields),
        FilePrompt(name="bare", format_prompt=lambda _: "", **fields),
    ]
    async with editor.use() as session:
        await editor.wait_until(lambda: editor.list_updates("available_commands_update"))
        await editor.ask(session, "/fix the door")
        await editor.ask(session, "/other the door")
        error = await editor.ask(session, "/bare")
    (update,) = editor.list_updates("available_commands_update")
    assert [each["name"] for each in update["availableCommands"]] == ["fix", "bare"]
    prompts = [str(request.messages[-1]) for request in editor.model.requests]
    assert "Fix the door!" in prompts[0]
    assert "/other the door" in prompts[1]
    assert "/bare has no prompt: it has no end" in error["message"]


def make_server(fault: str) -> Line:
    spec = make_quick(fault=fault)
    return {"name": "quick", "command": spec.command, "args": list(spec.args), "env": []}


async def test_prompts_of_servers_are_commands_as_soon_as_they_are_known(
    make_editor: MakeEditor,
) -> None:
    editor = make_editor(["One."])
    async with editor.serve():
        session = await editor.open(mcpServers=[make_server("offers")])
        await editor.wait_until(lambda: editor.list_updates("available_commands_update"))
        missing = await editor.ask(session, "/mcp__quick__summarize")
        unknown = await editor.ask(session, "/mcp__quick__summarise x")
        await editor.ask(session, "/mcp__quick__summarize parsers 'very short'")
    assert "Write: /mcp__quick__summarize TOPIC [TONE]" in missing["message"]
    assert "mcp__quick__summarize" in unknown["message"]
    (request,) = editor.model.requests
    text = str(request.messages[-1])
    assert "Summarize {'topic': 'parsers', 'tone': 'very short'} @agent-explore" in text
    first, *_, last = editor.list_updates("available_commands_update")
    assert first["availableCommands"] == []
    assert last["availableCommands"] == [
        {
            "name": "mcp__quick__summarize",
            "description": "Summarize a topic.",
            "input": {"hint": "TOPIC [TONE]"},
        },
        {"name": "mcp__quick__second", "description": "mcp__quick__second"},
    ]


async def test_a_cancel_ends_the_wait_for_the_prompt_of_a_server(make_editor: MakeEditor) -> None:
    editor = make_editor(["One."])
    async with editor.serve() as serving:
        session = await editor.open(mcpServers=[make_server("late")])
        number = editor.start_prompt(session, "/mcp__quick__summarize parsers")
        driver = serving._sessions[session]._driver
        await wait_until(lambda: driver.current and driver.current._preparing)
        editor.notify("session/cancel", sessionId=session)
        answer = await editor.finish(number)
        assert (await editor.ask(session, "Hello."))["stopReason"] == "end_turn"
    assert answer == {"stopReason": "cancelled"}


async def test_a_model_is_chosen_and_a_wrong_one_is_an_error(make_editor: MakeEditor) -> None:
    editor = make_editor(["One.", "Two."])
    async with editor.use() as session:
        await editor.ask(session, "First.")
        chosen, wrong, mode, unknown = [
            await editor.request(
                "session/set_config_option", sessionId=session, configId=name, value=value
            )
            for name, value in (
                ("model", "offline"),
                ("model", "nowhere:x"),
                ("mode", "plan"),
                ("taste", "x"),
            )
        ]
        bad_mode = await editor.request("session/set_mode", sessionId=session, modeId="wild")
    assert chosen["configOptions"][1]["currentValue"] == "offline"
    assert wrong["code"] == -32602
    assert mode["configOptions"][0]["currentValue"] == "plan"
    assert mode["configOptions"][1]["currentValue"] == "offline"
    assert "there is no option 'taste'" in unknown["message"]
    assert "unknown permission mode 'wild'" in bad_mode["message"]
    assert editor.list_updates("current_mode_update")[-1]["currentModeId"] == "plan"


async def test_ten_sessions_of_one_process_are_independent(make_editor: MakeEditor) -> None:
    async def answer(request: Request) -> Any:
        await asyncio.sleep(0)
        return f"Answer to {request.prompt}"

    editor = make_editor(answer)
    async with editor.serve():
        sessions = [await editor.open() for _ in range(10)]
        prompts = [editor.start_prompt(each, f"P{n}") for n, each in enumerate(sessions)]
        for prompt in prompts:
            await editor.finish(prompt)
        assert await editor.request("session/close", sessionId=sessions[0]) == {}
        error = await editor.ask(sessions[0], "More.")
        await editor.ask(sessions[1], "More.")
    for number, session in enumerate(sessions):
        assert editor.join_text(session).startswith(f"Answer to P{number}")
    assert error["code"] == -32002
