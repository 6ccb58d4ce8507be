"""Calls that arrive as text: told to the model once, then an error; never the result of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import Reason, Report, Session
from mudroom._adapters.models._written_calls import find_written_call
from mudroom._core.messages import AssistantMessage, TextBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer

HERMES = '<tool_call>\n{"name": "read", "arguments": {"file_path": "a"}}\n</tool_call>'
MARKUPS = {
    "hermes": HERMES,
    "hermes after prose": f"I read it now.\n\n{HERMES}",
    "two calls": f"{HERMES}\n{HERMES}",
    "qwen3 coder": "<tool_call>\n<function=read>\n<parameter=file_path>\na\n</parameter>\n"
    "</function>\n</tool_call>",
    "glm": "<tool_call>read\n<arg_key>file_path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
    "llama": '<function=read>{"file_path": "a"}</function>',
    "llama, python tag": '<|python_tag|>{"name": "read", "parameters": {"file_path": "a"}}',
    "llama, bare": '{"name": "read", "parameters": {"file_path": "a"}}',
    "llama, bare with a type": '{"type": "function", "name": "read", "arguments": {}}',
    "mistral": '[TOOL_CALLS][{"name": "read", "arguments": {"file_path": "a"}}]',
    "mistral, newer": '[TOOL_CALLS]read{"file_path": "a"}',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n"
    '```json\n{"file_path": "a"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0"
    '<|tool_call_argument_begin|>{"file_path": "a"}<|tool_call_end|>'
    "<|tool_calls_section_end|>",
    "minimax": '<minimax:tool_call>\n<invoke name="read">\n<parameter name="file_path">a'
    "</parameter>\n</invoke>\n</minimax:tool_call>",
    "anthropic": '<function_calls>\n<invoke name="read"></invoke>\n</function_calls>',
    "gpt-oss": '<|channel|>commentary to=functions.read<|message|>{"file_path": "a"}',
    "llama, as a block": '```json\n{"name": "read", "parameters": {"file_path": "a"}}\n```',
    "llama, several": '[{"name": "read", "arguments": {}}, {"name": "write", "arguments": {}}]',
    "llama, in Python": '[read(file_path="a"), write(file_path="b", content="c")]',
    "a message of OpenAI": '{"tool_calls": [{"id": "1", "type": "function", '
    '"function": {"name": "read", "arguments": "{}"}}]}',
    "deepseek, newer": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n'
    '<｜DSML｜parameter name="file_path" string="true">a</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "gemma": '```tool_code\nprint(default_api.read(file_path="a"))\n```',
    "gemma, functions": "<start_function_call>call:read{file_path:<escape>a<escape>}"
    "<end_function_call>",
    "gemma 4": '<|tool_call>call:read{file_path:<|"|>a<|"|>}<tool_call|>',
    "react": 'Thought: I read it.\nAction: read\nAction Input: {"file_path": "a"}',
    "tool use": '<tool_use>\n<name>read</name>\n<arguments>{"file_path": "a"}</arguments>\n'
    "</tool_use>",
    "cohere": '<|START_ACTION|>[{"tool_name": "read", "parameters": {}}]<|END_ACTION|>',
}
PROSE = {
    "in a code block": f"Qwen writes calls like this:\n\n```xml\n{HERMES}\n```",
    "with prose after it": f"{HERMES}\n\nThis is how Hermes writes a call.",
    "within a sentence": 'Write `<tool_call>` and {"name": "read"}',
    "another tool": HERMES.replace("read", "launch"),
    "a JSON answer": '{"name": "read", "arguments": {}, "score": 3}',
    "a JSON answer of another kind": '{"name": "read", "arguments": 3}',
    "broken JSON": '{"name": "read", }',
    "a list": "[1, 2]",
    "a list of calls and more": '[{"name": "read", "arguments": {}}, 5]',
    "an empty list": "[]",
    "a block with prose before it": 'A call:\n```json\n{"name": "read", "arguments": {}}\n```',
    "Python of another tool": "[launch(now=True)]",
    "a citation": "[read](https://example.org)",
    "steps": "Action: read the file\n\nThen [write]",
    "HTML": "<p>read</p>",
}


def make_answer(text: str) -> AssistantMessage:
    return AssistantMessage((TextBlock(text),))


@pytest.mark.parametrize("name", MARKUPS)
def test_each_markup_of_a_call_is_known(name: str) -> None:
    assert find_written_call(make_answer(MARKUPS[name]), {"read", "write"}) == "read"


@pytest.mark.parametrize("name", PROSE)
def test_an_answer_about_calls_is_an_answer(name: str) -> None:
    assert not find_written_call(make_answer(PROSE[name]), {"read", "write"})


async def run(folder: Path, *answers: ServerAnswer) -> tuple[Report, ModelServer]:
    """Run a prompt against a server that gives these answers and repeats the last one."""
    async with ModelServer(lambda r: answers[min(r.number, len(answers)) - 1]) as server:
        environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1"}
        async with Session(
            model="openai:m", cwd=str(folder), journal="memory", environ=environ
        ) as session:
            return await session.run("Read it."), server


async def test_the_model_is_told_once_that_text_is_no_call(tmp_path: Path) -> None:
    report, server = await run(tmp_path, HERMES, "Done.")
    assert (report.reason, report.text) == (Reason.GOAL, "Done.")
    assert "tool call as text" in str(server.requests[-1].messages[-1])


async def test_a_server_that_parses_no_calls_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    report, server = await run(tmp_path, HERMES)
    assert (report.reason, server.request_count) == (Reason.ERROR, 2)
    assert "the server does not parse tool calls" in report.error
    assert "Start the server with a tool parser" in report.error
