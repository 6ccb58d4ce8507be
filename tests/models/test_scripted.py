"""Tests of the scripted model."""

import pytest

from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from mudroom._core.ports import Model, ModelConversation, RequestConfig, StreamChunk


async def ask(conversation: ModelConversation) -> AssistantMessage:
    last = [part async for part in conversation.request_answer()][-1]
    assert isinstance(last, AssistantMessage)
    return last


def begin(model: Model, prompt: str = "Go.") -> ModelConversation:
    conversation = model.start_conversation(RequestConfig(system="Be brief."))
    conversation.append(user_message(prompt))
    return conversation


async def test_answers_come_in_order() -> None:
    conversation = begin(
        ScriptedModel(["First.", ["Second.", call("read", path="a.py")], call("grep", pattern="x")])
    )
    assert (await ask(conversation)).content == (TextBlock("First."),)
    second = await ask(conversation)
    assert (second.text, second.stop_reason) == ("Second.", StopReason.CALLS)
    assert [(made.name, made.arguments) for made in second.tool_calls] == [
        ("read", {"path": "a.py"})
    ]
    assert (await ask(conversation)).tool_calls[0].id not in ("", second.tool_calls[0].id)


async def test_a_request_after_the_last_answer_is_an_error() -> None:
    conversation = begin(ScriptedModel([]), "Do it.")
    with pytest.raises(AssertionError, match=r"0 answers.*request 1.*Do it\."):
        await ask(conversation)


async def test_a_script_function_receives_the_request() -> None:
    async def answer(request: Request) -> Answer:
        return (
            f"{request.number} {request.turn} {request.prompt} "
            f"{[result.text for result in request.results]}"
        )

    model = ScriptedModel(answer)
    conversation = begin(model)
    conversation.append(await ask(conversation))
    conversation.append(UserMessage((ToolResultBlock("c", "read", "content"),)))
    assert (await ask(conversation)).text == "2 1 Go. ['content']"
    assert [request.system for request in model.requests] == ["Be brief."] * 2


async def test_a_whole_message_is_returned_unchanged() -> None:
    call = ToolCallBlock("c", "read", {}, malformed="{")
    message = AssistantMessage((ThinkingBlock("Hm."), call), StopReason.CALLS)
    assert await ask(begin(ScriptedModel([message]))) is message


async def test_texts_arrive_in_chunks() -> None:
    parts = [part async for part in begin(ScriptedModel(["x" * 100])).request_answer()]
    assert "".join(part.text for part in parts if isinstance(part, StreamChunk)) == "x" * 100
    assert len(parts) > 2
