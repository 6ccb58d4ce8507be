"""What providers' caches serve of the requests that mudroom sends, by the simulator's rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import Usage
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models._wire import WireConversation, WireModel
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.model_facts import find_facts, forget_learnt_facts, remember_facts
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import ResponsesModel
from mudroom._core.messages import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig
from mudroom.testing import Fault, ModelServer, PromptCache
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import ServerAnswer

from .wires import make_tool

MINUTE = 60.0
Change = Callable[[list[Any]], object]


TOOL = replace(make_tool("look"), description="Look. " * 400)
CONFIG = RequestConfig(system="Be thorough. " * 200, tools=(TOOL,), cache_key="s1:main")


class Conversation:
    """A conversation of one wire beside the cache of its provider."""

    def __init__(
        self, kind: type[WireModel], name: str, config: RequestConfig = CONFIG, host: str = ""
    ) -> None:
        self.clock = FakeClock()
        self.model = kind(name, http=HttpClient(clock=self.clock), base_url=host)
        writes_cost = self.model.facts.bills_cache_writes
        self.cache = PromptCache(self.model.WIRE, writes_cost=writes_cost)
        self.calls = 0
        self.wire: WireConversation = self.model.start_conversation(config)
        self.wire.append(user_message("Begin."))

    def ask(self, **options: Any) -> Usage:
        body = self.wire.build_body(**options)
        return self.cache.send(body, self.clock.monotonic(), self.model.model)

    def answer(self, width: int, size: int = 400) -> None:
        """Append an answer with this many calls and their results."""
        ids = [f"call{self.calls + n}" for n in range(width)]
        self.calls += width
        calls = tuple(ToolCallBlock(each, "look", {"at": each}) for each in ids)
        self.wire.append(AssistantMessage((TextBlock("I look."), *calls), model=self.model.model))
        results = (ToolResultBlock(each, "look", "seen " * (size // 5)) for each in ids)
        self.wire.append(UserMessage(tuple(results)))


OPENROUTER = "https://openrouter.ai/api/v1"
ALIBABA = "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"
KINDS: list[tuple[type[WireModel], str, str]] = [
    (AnthropicModel, "claude-sonnet-5-5", ""),
    (AnthropicModel, "claude-opus-4-5", ""),
    (AnthropicModel, "claude-fable-5-2", ""),
    (ResponsesModel, "gpt-6.1-sol", ""),
    (ResponsesModel, "gpt-5.1", ""),
    (OpenAIModel, "gpt-5.1", ""),
    (GoogleModel, "gemini-3-pro-preview", ""),
    (OpenAIModel, "anthropic/claude-sonnet-5.5", OPENROUTER),
    (OpenAIModel, "qwen/qwen3-coder-plus", OPENROUTER),
    (OpenAIModel, "qwen3.7-max", ALIBABA),
]


@pytest.mark.parametrize("width", [1, 9, 10, 25, 120])
@pytest.mark.parametrize(("kind", "name", "host"), KINDS)
def test_each_request_reads_all_of_the_one_before_whatever_its_width(
    kind: type[WireModel], name: str, host: str, width: int
) -> None:
    conversation = Conversation(kind, name, host=host)
    conversation.answer(4, size=8_000)
    before = conversation.ask()
    for calls in (width, 1, width, 2):
        conversation.answer(calls)
        usage = conversation.ask()
        assert usage.cache_read_tokens > before.input_tokens - 128
        before = usage


def test_claude_at_openrouter_has_marks_in_content_parts_of_three_messages() -> None:
    """On record in pydantic-ai: the mark of a tool message was written, after 2,569 tokens read."""
    conversation = Conversation(OpenAIModel, "anthropic/claude-sonnet-5.5", host=OPENROUTER)
    conversation.answer(3)
    conversation.answer(2)
    messages = json.loads(conversation.wire.build_body())["messages"]
    marked = [place for place, each in enumerate(messages) if "cache_control" in str(each)]
    roles = [each["role"] for each in messages]
    assert marked == [0, roles.index("assistant") + 3, len(messages) - 1]
    assert [roles[place] for place in marked] == ["system", "tool", "tool"]
    assert all("cache_control" in messages[place]["content"][-1] for place in marked)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("deepseek/deepseek-v4-pro", OPENROUTER),
        ("qwen/qwen3-235b-a22b", OPENROUTER),
        ("deepseek-v4-pro", ALIBABA),
        ("anthropic/claude-sonnet-5.5", "https://gateway.example/v1"),
    ],
)
def test_models_that_cache_on_their_own_have_no_marks(name: str, host: str) -> None:
    conversation = Conversation(OpenAIModel, name, host=host)
    conversation.answer(3)
    assert b"cache_control" not in conversation.wire.build_body()


async def test_a_host_that_refuses_marks_gets_none_again() -> None:
    refusal = {"error": {"message": "messages.0.content: unknown field `cache_control`"}}
    answers: list[ServerAnswer] = [
        "Again.",
        "Done.",
        Fault(status=400, body=json.dumps(refusal).encode()),
    ]
    async with ModelServer(lambda _: answers.pop()) as server:
        name = "anthropic/claude-sonnet-5.5"
        facts = find_facts(name, OPENROUTER)
        remember_facts(name, server.url, facts)
        conversation = Conversation(OpenAIModel, name, host=server.url)
        for _ in range(2):
            async for _ in conversation.wire.request_answer():
                pass
            conversation.answer(2)
        await conversation.model.close()
    forget_learnt_facts()
    assert [b"cache_control" in each.body for each in server.requests] == [True, False, False]


@pytest.mark.parametrize("name", ["cache_write_tokens", "cache_creation_input_tokens"])
def test_writes_to_the_cache_are_counted_by_the_names_of_each_host(name: str) -> None:
    details = {"cached_tokens": 20, name: 30}
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": details}
    chunk = {"id": "x", "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}
    model = Conversation(OpenAIModel, "qwen3.7-max", host=ALIBABA).model
    reader = model.make_reader(ToolNames(()))
    reader.feed(json.dumps(chunk | {"usage": usage}).encode())
    assert reader.finish().usage == Usage(100, 5, 20, 30)


@pytest.mark.parametrize(
    ("kind", "name", "host"),
    [
        (AnthropicModel, "claude-sonnet-5-5", ""),
        (OpenAIModel, "anthropic/claude-sonnet-5.5", OPENROUTER),
    ],
)
def test_a_wait_that_lost_the_cache_makes_later_entries_live_an_hour(
    kind: type[WireModel], name: str, host: str
) -> None:
    conversation = Conversation(kind, name, host=host)
    conversation.answer(4, size=8_000)
    first = conversation.ask()
    assert first.cache_hour_tokens == 0
    conversation.clock.advance(6 * MINUTE)
    conversation.answer(1)
    lost = conversation.ask()
    assert lost.cache_read_tokens == 0
    assert lost.cache_hour_tokens == lost.cache_write_tokens == lost.input_tokens
    conversation.clock.advance(50 * MINUTE)
    conversation.answer(1)
    kept = conversation.ask()
    assert kept.cache_read_tokens == lost.input_tokens


def test_a_conversation_that_has_outgrown_its_loss_pays_for_five_minutes_again() -> None:
    conversation = Conversation(AnthropicModel, "claude-sonnet-5-5")
    conversation.ask()
    conversation.clock.advance(6 * MINUTE)
    conversation.answer(1)
    assert conversation.ask().cache_hour_tokens > 0
    conversation.answer(9, size=8_000)
    grown = conversation.ask()
    assert grown.cache_hour_tokens == 0
    assert grown.cache_write_tokens > 0


@pytest.mark.parametrize("wait", [4 * MINUTE, 70 * MINUTE])
def test_a_wait_that_an_hour_would_not_help_changes_nothing(wait: float) -> None:
    conversation = Conversation(AnthropicModel, "claude-sonnet-5-5")
    conversation.ask()
    conversation.clock.advance(wait)
    conversation.answer(1)
    assert conversation.ask().cache_hour_tokens == 0


def test_servers_like_anthropics_are_never_asked_for_an_hour() -> None:
    clock = FakeClock()
    http = HttpClient(clock=clock)
    model = AnthropicModel("claude-sonnet-5-5", http=http, base_url="https://gateway.example")
    conversation = model.start_conversation(CONFIG)
    conversation.append(user_message("Begin."))
    conversation.build_body()
    clock.advance(6 * MINUTE)
    assert b'"ttl"' not in conversation.build_body()


@pytest.mark.parametrize(
    ("kind", "name", "host"), [each for each in KINDS if "opus" not in each[1]]
)
def test_siblings_of_one_agent_read_the_start_that_they_share(
    kind: type[WireModel], name: str, host: str
) -> None:
    first = Conversation(kind, name, host=host)
    second = Conversation(kind, name, host=host)
    second.cache = first.cache
    first.wire.append(user_message("Part 1."))
    second.wire.append(user_message("Part 2."))
    first.ask()
    assert second.ask().cache_read_tokens > 1_000


def test_the_cache_key_is_one_for_each_agent_and_session() -> None:
    def read_key(cache_key: str, kind: type[WireModel] = ResponsesModel) -> str:
        config = replace(CONFIG, cache_key=cache_key)
        conversation = Conversation(kind, "gpt-6.1-sol", config)
        return json.loads(conversation.wire.build_body())["prompt_cache_key"]

    keys = [read_key("s1:main"), read_key("s1:explore"), read_key("s2:main")]
    assert len(set(keys)) == 3
    assert read_key("s1:main") == keys[0] == read_key("s1:main", OpenAIModel)
    assert all(len(key) <= 64 for key in keys)


def test_other_hosts_get_neither_key_nor_breakpoints() -> None:
    http = HttpClient(clock=FakeClock())
    for kind in (ResponsesModel, OpenAIModel):
        model = kind("gpt-6.1-sol", http=http, base_url="https://gateway.example/v1")
        conversation = model.start_conversation(CONFIG)
        conversation.append(user_message("Begin."))
        assert b"prompt_cache" not in conversation.build_body()


CHANGES: list[tuple[Change, str]] = [
    (lambda messages: messages[0]["content"][0].pop("cache_control"), ""),
    (
        lambda messages: messages[1]["content"][0].update(cache_control={"type": "ephemeral"}),
        "5 cache marks",
    ),
    (
        lambda messages: messages[2]["content"][-1]["cache_control"].update(ttl="1h"),
        "a mark for an hour comes after",
    ),
]


@pytest.mark.parametrize(("change", "problem"), CHANGES)
def test_the_simulator_refuses_what_anthropic_refuses(change: Change, problem: str) -> None:
    conversation = Conversation(AnthropicModel, "claude-sonnet-5-5")
    conversation.answer(3)
    body = json.loads(conversation.wire.build_body())
    change(body["messages"])
    encoded = json.dumps(body).encode()
    if not problem:
        assert conversation.cache.send(encoded, 0.0).cache_write_tokens > 0
        return
    with pytest.raises(ValueError, match=problem):
        conversation.cache.send(encoded, 0.0)


def test_the_simulator_looks_no_further_back_than_twenty_blocks() -> None:
    def make_body(blocks: int) -> bytes:
        content: list[dict[str, Any]] = [{"type": "text", "text": "x" * 800} for _ in range(blocks)]
        content[-1]["cache_control"] = {"type": "ephemeral"}
        message = {"role": "user", "content": content}
        return json.dumps({"model": "claude-sonnet-5-5", "messages": [message]}).encode()

    for more, is_found in ((19, True), (20, False)):
        cache = PromptCache("anthropic")
        first = cache.send(make_body(10), 0.0)
        usage = cache.send(make_body(10 + more), 1.0)
        assert usage.cache_read_tokens == (first.input_tokens if is_found else 0)
