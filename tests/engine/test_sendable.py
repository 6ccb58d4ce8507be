"""S7: whatever was recorded, what is sent is legal for every wire; what was legal stays as it was."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom import Assistant, Session
from mudroom._core.messages import Call, Message, Result, Text, Thinking, User, user
from mudroom._core.ports import Setup
from mudroom._engine.normalize import GAP, NO_RESULT, sendable
from mudroom.models._http import Http
from mudroom.models.anthropic import AnthropicModel
from mudroom.models.google import GoogleModel
from mudroom.models.openai import OpenAIModel
from mudroom.models.scripted import Request, ScriptedModel, call
from mudroom.testing.clock import FakeClock

words = st.text(st.sampled_from("ab \n\0\ud800é世😀"), max_size=4)
ids = st.sampled_from(["", "a", "b", "a.", "a_", "functions.read:0"])
texts, thoughts = st.builds(Text, words), st.builds(Thinking, words, st.sampled_from(["", "seal"]))
calls = st.builds(
    Call,
    ids,
    st.sampled_from(["read", "self.emitvalue"]),
    st.dictionaries(words, words, max_size=1),
)
results = st.builds(Result, ids, st.just("read"), words, st.booleans())
users = st.builds(User, st.lists(texts | results, max_size=4).map(tuple))
answers = st.builds(
    Assistant,
    st.lists(texts | thoughts | calls, max_size=4).map(tuple),
    wire=st.sampled_from(["anthropic", "google", "elsewhere"]),
)
conversations = st.lists(users | answers, max_size=7)


@st.composite
def legal(draw: st.DrawFn) -> tuple[Message, ...]:
    """A conversation as the engine makes it: a prompt, answers, the results of their calls."""
    said = st.text("ab世", min_size=1, max_size=3)
    messages: list[Message] = [user(draw(said))]
    for turn in range(draw(st.integers(0, 4))):
        asked = tuple(Call(f"c{turn}.{n}", "read", {}) for n in range(draw(st.integers(0, 3))))
        messages.append(Assistant((Text(draw(said)), *asked)))
        answered = tuple(Result(each.id, "read", draw(words)) for each in asked)
        messages.append(
            User((*answered, *(() if answered and draw(st.booleans()) else (Text(draw(said)),))))
        )
    return tuple(messages)


def bodies(messages: tuple[Message, ...]) -> dict[str, list[dict[str, Any]]]:
    """The messages as each wire writes them."""
    http = Http(clock=FakeClock())
    models = (
        AnthropicModel("claude-sonnet-4-6", http=http, key="k"),
        OpenAIModel("m", http=http),
        GoogleModel("gemini-2.5-flash", http=http),
    )
    written: dict[str, list[dict[str, Any]]] = {}
    for model in models:
        chat = model.chat(Setup(system="", max_tokens=10))
        for message in messages:
            chat.add(message)
        body = json.loads(chat.body().decode("utf-8"))
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
        assert not owed, "every call is answered before anything else is said"
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
@settings(max_examples=400, deadline=None)
def test_s7_any_conversation_is_legal_for_every_wire(messages: list[Message]) -> None:
    mended = sendable(messages)
    written = bodies(mended)
    assert b"\\u0000" not in json.dumps(written).encode() and "\ud800" not in str(written)
    check_anthropic(written["AnthropicModel"])
    check_openai(written["OpenAIModel"])
    check_google(written["GoogleModel"])


@given(conversations)
@settings(max_examples=400, deadline=None)
def test_s7_what_is_mended_needs_no_mending(messages: list[Message]) -> None:
    mended = sendable(messages)
    assert sendable(mended) == mended
    assert all(isinstance(a, User) != isinstance(b, User) for a, b in pairwise(mended))


@given(legal())
@settings(max_examples=300, deadline=None)
def test_s7_what_is_legal_stays_as_it_was(messages: tuple[Message, ...]) -> None:
    assert sendable(messages) == messages


@pytest.mark.parametrize(
    ("messages", "mended"),
    [
        pytest.param(
            [user("q"), Assistant((Call("a", "read", {}),))],
            (
                user("q"),
                Assistant((Call("a", "read", {}),)),
                User((Result("a", "read", NO_RESULT, True),)),
            ),
            id="F1: a call without its result",
        ),
        pytest.param(
            [User((Result("x", "read", "late"), Text("q")))],
            (user("q"),),
            id="F2: a result without its call",
        ),
        pytest.param(
            [
                user("q"),
                Assistant((Call("a", "read", {}), Call("a", "grep", {}))),
                User((Result("a", "read", "1"), Result("a", "grep", "2"))),
            ],
            (
                user("q"),
                Assistant((Call("a", "read", {}), Call("a_", "grep", {}))),
                User((Result("a", "read", "1"), Result("a_", "grep", "2"))),
            ),
            id="F3: one id for two calls",
        ),
        pytest.param(
            [user("q"), Assistant((Text(""), Text("x")))],
            (user("q"), Assistant((Text("x"),))),
            id="F5: an empty block",
        ),
        pytest.param(
            [user("q"), Assistant(()), user("r")],
            (User((Text("q"), Text("r"))),),
            id="an empty answer",
        ),
        pytest.param([Assistant((Text("x"),))], (GAP, Assistant((Text("x"),))), id="no beginning"),
    ],
)
def test_s7_faults_that_were_seen_elsewhere(
    messages: list[Message], mended: tuple[Message, ...]
) -> None:
    assert sendable(messages) == mended


async def test_s7_ids_are_new_in_the_whole_conversation(tmp_path: Any) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Any:
        asked.append(request)
        return (
            [call("todo", todos=[])]
            if isinstance(request.messages[-1].content[-1], Text)
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
        if isinstance(message, Assistant)
        for each in message.calls
    ]
    assert len(used) == len(set(used)) == 2
