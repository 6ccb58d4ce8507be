"""S7: every recorded conversation is sent in a valid form; a valid one stays unchanged."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_form import count_examples

from mudroom import AssistantMessage, Session
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.messages import (
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig
from mudroom._engine.conversation import EMPTY_MESSAGE, NO_RESULT, normalize_conversation
from mudroom.testing.clock import FakeClock

words = st.text(st.sampled_from("ab \n\0\ud800é世😀"), max_size=4)
ids = st.sampled_from(["", "a", "b", "a.", "a_", "functions.read:0"])
texts, thoughts = (
    st.builds(TextBlock, words),
    st.builds(ThinkingBlock, words, st.sampled_from(["", "seal"])),
)
calls = st.builds(
    ToolCallBlock,
    ids,
    st.sampled_from(["read", "self.emitvalue"]),
    st.dictionaries(words, words, max_size=1),
)
results = st.builds(ToolResultBlock, ids, st.just("read"), words, st.booleans())
users = st.builds(UserMessage, st.lists(texts | results, max_size=4).map(tuple))
answers = st.builds(
    AssistantMessage,
    st.lists(texts | thoughts | calls, max_size=4).map(tuple),
    wire=st.sampled_from(["anthropic", "google", "elsewhere"]),
)
conversations = st.lists(users | answers, max_size=7)


@st.composite
def draw_conversation(draw: st.DrawFn) -> tuple[Message, ...]:
    """Draw a valid conversation: a prompt, answers, the results of their calls."""
    texts = st.text("ab世", min_size=1, max_size=3)
    messages: list[Message] = [user_message(draw(texts))]
    for turn in range(draw(st.integers(0, 4))):
        asked = tuple(
            ToolCallBlock(f"c{turn}.{n}", "read", {}) for n in range(draw(st.integers(0, 3)))
        )
        messages.append(AssistantMessage((TextBlock(draw(texts)), *asked)))
        answered = tuple(ToolResultBlock(each.id, "read", draw(words)) for each in asked)
        messages.append(
            UserMessage(
                (
                    *answered,
                    *(() if answered and draw(st.booleans()) else (TextBlock(draw(texts)),)),
                )
            )
        )
    return tuple(messages)


def encode_bodies(messages: tuple[Message, ...]) -> dict[str, list[dict[str, Any]]]:
    """Return the messages in the format of each wire."""
    http = HttpClient(clock=FakeClock())
    models = (
        AnthropicModel("claude-sonnet-4-6", http=http, key="k"),
        OpenAIModel("m", http=http),
        GoogleModel("gemini-2.5-flash", http=http),
    )
    written: dict[str, list[dict[str, Any]]] = {}
    for model in models:
        chat = model.start_conversation(RequestConfig(system="", max_tokens=10))
        for message in messages:
            chat.append(message)
        body = json.loads(chat.build_body().decode("utf-8"))
        written[type(model).__name__] = body.get("messages", body.get("contents"))
    return written


def check_anthropic(messages: list[dict[str, Any]]) -> None:
    assert not messages or messages[0]["role"] == "user"
    used: list[str] = []
    for message, after in zip(messages, [*messages[1:], None], strict=False):
        assert message["content"]
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
        asked = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        used += asked
        answered = (
            [block["tool_use_id"] for block in after["content"] if block["type"] == "tool_result"]
            if after
            else []
        )
        assert sorted(asked) == sorted(answered) or message["role"] == "user"
        if message["role"] == "user":
            assert not answered
    assert len(used) == len(set(used))


def check_openai(messages: list[dict[str, Any]]) -> None:
    owed: list[str] = []
    used: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            owed.remove(message["tool_call_id"])
            continue
        assert not owed, "every call is answered before the next message"
        owed = [each["id"] for each in message.get("tool_calls", [])]
        used += owed
        assert owed or message["content"]
    assert not owed and len(used) == len(set(used))


def check_google(contents: list[dict[str, Any]]) -> None:
    for content, after in zip(contents, [*contents[1:], None], strict=False):
        assert content["parts"]
        asked = [
            part["functionCall"].get("id") for part in content["parts"] if "functionCall" in part
        ]
        answered = (
            [
                part["functionResponse"].get("id")
                for part in after["parts"]
                if "functionResponse" in part
            ]
            if after
            else []
        )
        assert asked == answered


@given(conversations)
@settings(max_examples=count_examples(150, 400), deadline=None)
def test_s7_any_conversation_is_valid_for_every_wire(messages: list[Message]) -> None:
    mended = normalize_conversation(messages)
    written = encode_bodies(mended)
    assert b"\\u0000" not in json.dumps(written).encode() and "\ud800" not in str(written)
    check_anthropic(written["AnthropicModel"])
    check_openai(written["OpenAIModel"])
    check_google(written["GoogleModel"])


@given(conversations)
@settings(max_examples=count_examples(150, 400), deadline=None)
def test_s7_a_normalized_conversation_stays_unchanged(messages: list[Message]) -> None:
    mended = normalize_conversation(messages)
    assert normalize_conversation(mended) == mended
    assert all(
        isinstance(a, UserMessage) != isinstance(b, UserMessage) for a, b in pairwise(mended)
    )


@given(draw_conversation())
@settings(max_examples=count_examples(100, 300), deadline=None)
def test_s7_a_valid_conversation_stays_unchanged(messages: tuple[Message, ...]) -> None:
    assert normalize_conversation(messages) == messages


@pytest.mark.parametrize(
    ("messages", "mended"),
    [
        pytest.param(
            [user_message("q"), AssistantMessage((ToolCallBlock("a", "read", {}),))],
            (
                user_message("q"),
                AssistantMessage((ToolCallBlock("a", "read", {}),)),
                UserMessage((ToolResultBlock("a", "read", NO_RESULT, True),)),
            ),
            id="F1: a call without its result",
        ),
        pytest.param(
            [UserMessage((ToolResultBlock("x", "read", "late"), TextBlock("q")))],
            (user_message("q"),),
            id="F2: a result without its call",
        ),
        pytest.param(
            [
                user_message("q"),
                AssistantMessage((ToolCallBlock("a", "read", {}), ToolCallBlock("a", "grep", {}))),
                UserMessage((ToolResultBlock("a", "read", "1"), ToolResultBlock("a", "grep", "2"))),
            ],
            (
                user_message("q"),
                AssistantMessage((ToolCallBlock("a", "read", {}), ToolCallBlock("a_", "grep", {}))),
                UserMessage(
                    (ToolResultBlock("a", "read", "1"), ToolResultBlock("a_", "grep", "2"))
                ),
            ),
            id="F3: one id for two calls",
        ),
        pytest.param(
            [user_message("q"), AssistantMessage((TextBlock(""), TextBlock("x")))],
            (user_message("q"), AssistantMessage((TextBlock("x"),))),
            id="F5: an empty block",
        ),
        pytest.param(
            [user_message("q"), AssistantMessage(()), user_message("r")],
            (UserMessage((TextBlock("q"), TextBlock("r"))),),
            id="an empty answer",
        ),
        pytest.param(
            [AssistantMessage((TextBlock("x"),))],
            (EMPTY_MESSAGE, AssistantMessage((TextBlock("x"),))),
            id="no beginning",
        ),
    ],
)
def test_s7_known_faults_of_other_programs_are_repaired(
    messages: list[Message], mended: tuple[Message, ...]
) -> None:
    assert normalize_conversation(messages) == mended


async def test_s7_call_ids_are_unique_in_the_whole_conversation(tmp_path: Path) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        asked.append(request)
        return (
            [call("todo", todos=[])]
            if isinstance(request.messages[-1].content[-1], TextBlock)
            else "done"
        )

    async with Session(
        model=ScriptedModel(answer), cwd=str(tmp_path), journal="memory", home=str(tmp_path)
    ) as session:
        await session.run("first")
        await session.run("second")
    used = [
        each.id
        for message in asked[-1].messages
        if isinstance(message, AssistantMessage)
        for each in message.tool_calls
    ]
    assert len(used) == len(set(used)) == 2
