"""Tests of the pydantic-ai adapter against pydantic-ai's own test models."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from mudroom._adapters.models.providers import PROVIDERS, Provider
from mudroom._adapters.models.pydantic_ai import PydanticAIModel
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
from mudroom._core.ports import RequestConfig, RetryNotice, StreamChunk
from mudroom._session.model_registry import ModelRegistry
from mudroom.errors import (
    ContextOverflow,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
    UsageError,
)
from mudroom.testing import load_replay_model
from mudroom.testing.clock import FakeClock

from .wires import make_tool

Stream = AsyncIterator[str | dict[int, Any]]


CONFIG = RequestConfig(
    system="Be brief.", tools=(make_tool("read"), make_tool("self.emitvalue")), temperature=0.5
)


class ScriptedProvider:
    """A pydantic-ai model with scripted answers: items to stream, or an error to raise."""

    def __init__(self, *script: list[Any] | Exception, **profile: Any) -> None:
        self.script = list(script)
        self.seen: list[tuple[list[ModelMessage], AgentInfo]] = []
        self.clock = FakeClock()
        self.model = PydanticAIModel(
            FunctionModel(
                stream_function=self.stream, model_name="f", profile=cast("Any", profile)
            ),
            clock=self.clock,
            jitter=lambda: 0.5,
        )

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> Stream:
        self.seen.append((list(messages), info))
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        for item in step:
            if isinstance(item, Exception):
                raise item
            yield item

    async def ask(
        self,
        *messages: UserMessage | AssistantMessage,
        config: RequestConfig = CONFIG,
        tools: bool = True,
    ) -> list[StreamChunk | RetryNotice | AssistantMessage]:
        conversation = self.model.start_conversation(config)
        for message in messages:
            conversation.append(message)
        return [item async for item in conversation.request_answer(tools=tools)]


async def test_texts_are_streamed_and_the_whole_answer_comes_last() -> None:
    provider = ScriptedProvider(["Hel", "lo"])
    *chunks, answer = await provider.ask(user_message("Hi"))
    assert chunks == [StreamChunk("text", "Hel"), StreamChunk("text", "lo")]
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.stop_reason, answer.model, answer.wire) == (
        "Hello",
        StopReason.END,
        "f",
        "library:function",
    )
    assert answer.usage.output_tokens > 0
    assert provider.model.name == "function:f"


async def test_the_request_config_reaches_the_provider() -> None:
    provider = ScriptedProvider(["a"], ["b"])
    await provider.ask(user_message("Hi"))
    await provider.ask(user_message("Hi"), tools=False)
    (_, first), (_, second) = provider.seen
    assert first.instructions == "Be brief."
    assert [declared.name for declared in first.function_tools] == ["read", "self_emitvalue"]
    settings: Any = first.model_settings
    assert (settings["temperature"], settings["max_tokens"], settings["max_retries"]) == (
        0.5,
        8_192,
        0,
    )
    last: Any = second.model_settings
    assert last["tool_choice"] == "none"
    assert [declared.name for declared in second.function_tools] == ["read", "self_emitvalue"]


async def test_prompts_are_marked_where_the_provider_caches_only_up_to_marks() -> None:
    for marks in (True, False):
        provider = ScriptedProvider(["a"], supports_cache=marks)
        await provider.ask(user_message("Hi"))
        ((_, info),) = provider.seen
        assert info.model_request_parameters.cache is (True if marks else None)


async def test_calls_have_our_tool_names_and_malformed_arguments_are_kept() -> None:
    calls = {
        0: DeltaToolCall("read", '{"p":1}', tool_call_id="a"),
        1: DeltaToolCall("self_emitvalue", '{"p"', tool_call_id="b"),
        2: DeltaToolCall("read", "", tool_call_id="c"),
    }
    *chunks, answer = await ScriptedProvider([calls]).ask(user_message("Hi"))
    assert isinstance(answer, AssistantMessage)
    assert answer.tool_calls == (
        ToolCallBlock("a", "read", {"p": 1}),
        ToolCallBlock("b", "self.emitvalue", {}, malformed='{"p"'),
        ToolCallBlock("c", "read", {}),
    )
    assert answer.stop_reason is StopReason.CALLS
    assert chunks == [StreamChunk("call", '{"p":1}'), StreamChunk("call", '{"p"')]


async def test_results_and_texts_are_sent_in_one_request() -> None:
    provider = ScriptedProvider(["ok"], ["ok"])
    called = AssistantMessage(
        (
            TextBlock("Look."),
            ToolCallBlock("a", "self.emitvalue", {"p": "x\0"}),
            ToolCallBlock("b", "read", {}, malformed="{"),
        )
    )
    results = UserMessage(
        (
            TextBlock("Go on\0."),
            TextBlock(""),
            ToolResultBlock("a", "self.emitvalue", "one"),
            ToolResultBlock("b", "read", "bad", error=True),
        )
    )
    await provider.ask(user_message("Hi"), called, results)
    _, response, request = provider.seen[0][0]
    assert isinstance(response, ModelResponse)
    assert [(part.tool_name, part.args_as_dict()) for part in response.tool_calls] == [
        ("self_emitvalue", {"p": "x"}),
        ("read", {"INVALID_JSON": "{"}),
    ]
    assert isinstance(request, ModelRequest)
    returns = [part for part in request.parts if isinstance(part, ToolReturnPart)]
    assert [
        (part.tool_name, part.content, part.tool_call_id, part.outcome) for part in returns
    ] == [
        ("self_emitvalue", "one", "a", "success"),
        ("read", "bad", "b", "failed"),
    ]
    assert isinstance(request.parts[-1], UserPromptPart)
    assert request.parts[-1].content == "Go on."
    await provider.ask(user_message("Hi"), called, UserMessage(results.content[2:]))
    *_, request = provider.seen[1][0]
    assert [part.part_kind for part in request.parts] == ["tool-return"] * 2


async def test_thinking_and_its_signature_are_sent_to_the_provider_that_wrote_them() -> None:
    provider = ScriptedProvider(
        [{0: DeltaThinkingPart(content="hm")}, {0: DeltaThinkingPart(signature="s1")}],
        ["ok"],
        ["ok"],
    )
    first, answer = await provider.ask(user_message("Hi"))
    assert first == StreamChunk("thinking", "hm")
    assert isinstance(answer, AssistantMessage)
    (thought,) = answer.content
    assert isinstance(thought, ThinkingBlock)
    assert thought.text == "hm"
    await provider.ask(user_message("Hi"), answer)
    response = provider.seen[1][0][1]
    assert isinstance(response, ModelResponse)
    (part,) = response.parts
    assert (part.part_kind, getattr(part, "signature", ""), response.provider_name) == (
        "thinking",
        "s1",
        "function",
    )
    foreign = AssistantMessage((*answer.content, TextBlock("yes")), wire="anthropic")
    await provider.ask(user_message("Hi"), foreign)
    response = provider.seen[2][0][1]
    assert isinstance(response, ModelResponse)
    assert [part.part_kind for part in response.parts] == ["text"]


@pytest.mark.parametrize("status", [409, 429, 500])
async def test_temporary_errors_are_retried(status: int) -> None:
    failure = ModelHTTPError(
        status, "f", {"error": {"message": "slow down"}}, headers={"Retry-After": "7"}
    )
    provider = ScriptedProvider(failure, ["ok"])
    retry, *_, answer = await provider.ask(user_message("Hi"))
    assert isinstance(retry, RetryNotice)
    assert (retry.attempt, retry.delay, retry.status) == (1, 7.0, status)
    assert "slow down" in retry.error
    assert isinstance(answer, AssistantMessage)


async def test_a_wait_of_an_hour_ends_the_request_and_later_ones_are_not_sent() -> None:
    failure = ModelHTTPError(
        429, "f", {"error": {"message": "slow down"}}, headers={"Retry-After": "3600"}
    )
    provider = ScriptedProvider(failure, ["ok"])
    with pytest.raises(ModelUnavailable, match="slow down; the provider asks to wait 3600 s"):
        await provider.ask(user_message("Hi"))
    with pytest.raises(ModelUnavailable, match=r"429.*the provider asks to wait 3600 s"):
        await provider.ask(user_message("Hi"))
    assert not provider.clock.sleeps
    assert len(provider.seen) == 1


async def test_an_incomplete_answer_is_requested_again() -> None:
    provider = ScriptedProvider(["Hel", ModelAPIError("f", "connection lost")], ["Hello"])
    items = await provider.ask(user_message("Hi"))
    assert [type(item) for item in items] == [
        StreamChunk,
        RetryNotice,
        StreamChunk,
        AssistantMessage,
    ]
    assert isinstance(items[-1], AssistantMessage)
    assert items[-1].text == "Hello"


@pytest.mark.parametrize(
    ("error", "outcome", "tries"),
    [
        (ModelHTTPError(401, "f", {"error": {"message": "bad key"}}), ModelRefused, 1),
        (ModelHTTPError(404, "f", "no such model"), ModelRefused, 1),
        (ModelHTTPError(503, "f"), ModelUnavailable, 6),
        (ModelAPIError("f", "no route"), ModelUnavailable, 6),
        (ConnectionResetError("reset"), ModelUnavailable, 6),
        (UnexpectedModelBehavior("what is this"), ModelGarbled, 6),
        (ZeroDivisionError("a bug of theirs"), ModelGarbled, 1),
    ],
)
async def test_each_error_becomes_the_right_model_error(
    error: Exception, outcome: type[ModelError], tries: int
) -> None:
    provider = ScriptedProvider(*[error] * 9)
    with pytest.raises(outcome):
        await provider.ask(user_message("Hi"))
    assert len(provider.seen) == tries


@pytest.mark.parametrize("name", ["nosuch:model", "bare"])
def test_a_model_name_unknown_to_pydantic_ai_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        PydanticAIModel(name, clock=FakeClock()).start_conversation(CONFIG)


@pytest.mark.parametrize(
    ("name", "text", "has_remedy"),
    [
        ("bedrock:x", "You must provide a `region_name` or a boto3 client.", True),
        ("bedrock:x", "Install boto3.", False),
        ("azure:x", "No region.", False),
    ],
)
def test_bedrock_without_a_region_names_the_variable(
    name: str, text: str, has_remedy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: str) -> None:
        raise UserError(text)

    monkeypatch.setattr("pydantic_ai.models.infer_model", fail)  # boto3 need not be installed
    with pytest.raises(UsageError, match=re.escape(text)) as raised:
        PydanticAIModel(name, clock=FakeClock()).start_conversation(CONFIG)
    assert ("AWS_DEFAULT_REGION" in str(raised.value)) is has_remedy


def test_without_pydantic_ai_the_error_says_how_to_install_it() -> None:
    script = """
import sys
sys.modules["pydantic_ai"] = None
from mudroom._core.ports import RequestConfig
from mudroom.errors import UsageError
from mudroom._adapters.models.pydantic_ai import PydanticAIModel
from mudroom.testing import load_replay_model
from mudroom.testing.clock import FakeClock
try:
    PydanticAIModel("bedrock:x", clock=FakeClock()).start_conversation(RequestConfig(system=""))
except UsageError as error:
    print(error)
"""
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert "pip install 'mudroom[providers]'" in output


def test_without_the_package_of_a_provider_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    for module in ("pydantic_ai.models.bedrock", "pydantic_ai.providers.bedrock"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(UsageError) as raised:
        PydanticAIModel("bedrock:x", clock=FakeClock()).start_conversation(CONFIG)
    assert "needs a package, boto3, that is not installed" in str(raised.value)
    assert "pip install 'mudroom[providers]'" in str(raised.value)


async def test_only_connections_opened_by_pydantic_ai_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    provider = OpenAIProvider(base_url="http://127.0.0.1:1/v1", api_key="k")
    outcomes: list[bool] = []
    for backend in ("openai-chat:m", OpenAIChatModel("m", provider=provider)):
        ours = PydanticAIModel(backend, clock=FakeClock())
        theirs: Any = ours.start_conversation(RequestConfig(system=""))._backend
        await ours.close()
        outcomes.append(theirs.client.is_closed())
    assert outcomes == [True, False]


LIBRARY = [provider for provider in PROVIDERS.values() if provider.wire == "library"]
MORE_VARIABLES = {
    "azure": {
        "AZURE_OPENAI_ENDPOINT": "https://me.example",
        "OPENAI_API_VERSION": "2025-01-01",
    },
    "bedrock": {"AWS_DEFAULT_REGION": "us-east-1"},
    "snowflake": {"SNOWFLAKE_ACCOUNT": "me"},
}


@pytest.mark.parametrize("provider", LIBRARY, ids=lambda provider: provider.name)
def test_a_listed_provider_starts_or_names_the_missing_package(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = MORE_VARIABLES.get(provider.name, {})
    for name, value in {**dict.fromkeys(provider.key_vars, "k"), **more}.items():
        monkeypatch.setenv(name, value)
    model = PydanticAIModel(f"{provider.name}:m", clock=FakeClock())
    try:
        model.start_conversation(CONFIG)
    except UsageError as error:
        reason = r"needs a package, [\w-]+, that is|GOOGLE_APPLICATION_CREDENTIALS"
        assert re.search(reason, error.message) or provider.name == "google-cloud"
        assert "Unknown model" not in error.message


@pytest.mark.parametrize("provider", LIBRARY, ids=lambda provider: provider.name)
def test_a_listed_provider_without_a_key_names_its_variable(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*provider.key_vars, *MORE_VARIABLES.get(provider.name, {})):
        monkeypatch.delenv(name, raising=False)
    try:
        PydanticAIModel(f"{provider.name}:m", clock=FakeClock()).start_conversation(CONFIG)
    except UsageError as error:
        variables = (*provider.key_vars, *MORE_VARIABLES.get(provider.name, {}))
        is_named = any(name in error.message for name in variables)
        assert is_named or re.search("not installed|credentials", error.message)


async def test_a_bad_key_of_a_library_provider_is_named() -> None:
    provider = ScriptedProvider(ModelHTTPError(401, "m", {"message": "Unauthorized"}))
    registry = ModelRegistry({"ALIBABA_API_KEY": "k"}, FakeClock(), load_replay_model)
    named = registry.get_model("alibaba:m")
    assert isinstance(named, PydanticAIModel)
    provider.model.hints = named.hints
    with pytest.raises(ModelRefused, match=r"Check the key in ALIBABA_API_KEY\."):
        await provider.ask(user_message("x"))


async def test_a_full_window_is_an_error_of_its_own() -> None:
    refusal = {"message": "prompt is too long: 9 tokens > 8 maximum"}
    with pytest.raises(ContextOverflow):
        await ScriptedProvider(ModelHTTPError(400, "m", refusal)).ask(user_message("x"))


async def test_sampling_that_is_not_sent_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    backend = FunctionModel(stream_function=ScriptedProvider().stream, model_name="gpt-5.5")
    model = PydanticAIModel(backend, clock=FakeClock())
    for system in ("a", "b"):
        model.start_conversation(RequestConfig(system=system, temperature=0.2))
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["function:gpt-5.5: temperature is not sent, because the model refuses it."]
