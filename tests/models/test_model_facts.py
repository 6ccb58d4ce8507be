"""Tests of the table of what models accept, and of what is learnt from refusals on record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models._wire import WireConversation, WireModel
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.model_facts import find_facts, remember_facts
from mudroom._adapters.models.ollama import OllamaModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import ResponsesModel
from mudroom._core.messages import AssistantMessage, user_message
from mudroom._core.ports import RequestConfig, RetryNotice
from mudroom.errors import ModelRefused
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import ModelServer, ServerAnswer

from .wires import make_tool, refuse

OPENAI = "https://api.openai.com/v1"
NO_MAX_TOKENS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead."
)
NO_EFFORT = (
    "Function tools with reasoning_effort are not supported for gpt-5.5 in /v1/chat/completions. "
    "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
)


CONFIG = RequestConfig(system="Be brief.", tools=(make_tool("look"),), temperature=0.5, top_p=0.9)


async def ask(
    conversation: WireConversation, *, tools: bool = True
) -> tuple[list[RetryNotice], AssistantMessage]:
    items = [item async for item in conversation.request_answer(tools=tools)]
    answer = items[-1]
    assert isinstance(answer, AssistantMessage)
    return [item for item in items if isinstance(item, RetryNotice)], answer


class Served:
    """A model of one wire at a server that sends these answers in order, then "Fine."."""

    def __init__(self, kind: type[WireModel], name: str, answers: Sequence[ServerAnswer]) -> None:
        self.server = ModelServer(lambda request: self._answers.pop(0) if self._answers else "Fine")
        self._answers = list(answers)
        self._kind = kind
        self._name = name

    async def __aenter__(self) -> Served:
        await self.server.__aenter__()
        http = HttpClient(clock=FakeClock())
        path = "" if self._kind is AnthropicModel else "/v1"
        self.model = self._kind(self._name, http=http, base_url=f"{self.server.url}{path}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.model.close()
        await self.server.__aexit__(*_)

    def start(self, config: RequestConfig = CONFIG) -> WireConversation:
        conversation = self.model.start_conversation(config)
        conversation.append(user_message("Hello"))
        return conversation

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self.server.requests]


CASES: dict[str, tuple[type[WireModel], str, str, dict[str, Any]]] = {
    "max_tokens": (OpenAIModel, NO_MAX_TOKENS, "max_tokens", {"max_completion_tokens": 8192}),
    "sampling": (
        OpenAIModel,
        "Unsupported value: 'temperature' does not support 0.5 with this model. "
        "Only the default (1) value is supported.",
        "temperature",
        {"top_p": 0.9},
    ),
    "one sampling parameter": (
        AnthropicModel,
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        "top_p",
        {"temperature": 0.5},
    ),
    "a field of an own protocol": (
        OpenAIModel,
        '{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]}',
        "stream_options",
        {"temperature": 0.5},
    ),
    "tools beside reasoning": (OpenAIModel, NO_EFFORT, "", {"reasoning_effort": "none"}),
    "an output cap of OpenAI": (
        OpenAIModel,
        "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, "
        "whereas you provided 8192.",
        "",
        {"max_tokens": 4096},
    ),
    "an output cap of Anthropic": (
        AnthropicModel,
        "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for m",
        "",
        {"max_tokens": 4096},
    ),
    "an output cap of Groq": (
        OpenAIModel,
        "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` "
        "is less than the `context_window` for this model",
        "",
        {"max_tokens": 4096},
    ),
    "the window of vLLM": (
        OpenAIModel,
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context "
        "length is 8192 tokens and your request has 700 input tokens (8192 > 8192 - 700).",
        "",
        {"max_tokens": 2048},
    ),
    "the window of an older vLLM": (
        OpenAIModel,
        "This model's maximum context length is 8192 tokens. However, you requested 8892 tokens "
        "(700 in the messages, 8192 in the completion). Please reduce the length.",
        "",
        {"max_tokens": 2048},
    ),
    "the window of Anthropic": (
        AnthropicModel,
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease "
        "input length or `max_tokens` and try again",
        "",
        {"max_tokens": 500},
    ),
    "the credit of OpenRouter": (
        OpenAIModel,
        "This request requires more credits, or fewer max_tokens. You requested up to 8192 "
        "tokens, but can only afford 3000.",
        "",
        {"max_tokens": 1500},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_refused_request_is_sent_again_as_the_refusal_demands(case: str) -> None:
    kind, refusal, absent, present = CASES[case]
    status = 402 if "credit" in case else 400
    async with Served(kind, f"case-{case}", [refuse(refusal, status)]) as served:
        notices, answer = await ask(served.start())
    first, second = served.bodies
    assert answer.text == "Fine"
    assert present == {name: second[name] for name in present}
    assert absent not in second
    assert first != second
    [notice] = notices
    assert (notice.delay, notice.status) == (0.0, status)
    assert notice.error.startswith("sent again: ")


async def test_a_lesson_holds_for_other_conversations_of_the_process() -> None:
    async with Served(OpenAIModel, "case-process", [refuse(NO_MAX_TOKENS)]) as served:
        under_way = served.start()
        await ask(served.start())
        notices, _ = await ask(served.start())
        later = OpenAIModel("case-process", http=served.model.http, base_url=served.model.base_url)
        assert not notices
        assert later.facts == served.model.facts
        assert (await ask(under_way))[0] == []
        # A conversation that began before the lesson has its bytes already; a refusal renews them.
    assert [("max_tokens" in body) for body in served.bodies] == [True, False, False, True]


@pytest.mark.parametrize("test", ["one test", "the next test"])
def test_a_test_does_not_know_what_another_one_learnt(test: str) -> None:
    url = "http://127.0.0.1:1"
    learnt = replace(find_facts("gpt-5", url), context_window=1_000)
    assert find_facts("gpt-5", url).context_window != 1_000
    remember_facts("gpt-5", url, learnt)
    assert find_facts("gpt-5", url) == learnt


async def test_a_conversation_of_earlier_facts_is_renewed_by_a_refusal() -> None:
    answers = [refuse(NO_MAX_TOKENS), "Fine", refuse(NO_MAX_TOKENS)]
    async with Served(OpenAIModel, "case-renewed", answers) as served:
        under_way = served.start()
        await ask(served.start())
        notices, _ = await ask(under_way)
    assert "earlier refusals" in notices[0].error
    assert "max_completion_tokens" in served.bodies[-1]


async def test_a_provider_that_refuses_everything_is_not_asked_without_end() -> None:
    refusals = [refuse(NO_MAX_TOKENS)] * 9
    async with Served(OpenAIModel, "case-everything", refusals) as served:
        with pytest.raises(ModelRefused, match="Unsupported parameter"):
            await ask(served.start())
    assert len(served.bodies) == 2


async def test_a_server_without_an_output_limit_gets_none() -> None:
    other = "Unrecognized request argument supplied: max_completion_tokens"
    answers = [refuse(NO_MAX_TOKENS), refuse(other)]
    async with Served(OpenAIModel, "case-none", answers) as served:
        await ask(served.start())
    assert not {"max_tokens", "max_completion_tokens"} & served.bodies[-1].keys()


async def test_a_refused_tool_choice_is_left_out() -> None:
    refusal = refuse("deepseek-reasoner does not support this tool_choice")
    async with Served(OpenAIModel, "case-choice", [refusal]) as served:
        await ask(served.start(), tools=False)
    assert [("tool_choice" in body) for body in served.bodies] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "no such model",
        "temperature: Input should be less than or equal to 1",
        "This model's maximum context length is 8192 tokens. However, you requested 16300 tokens "
        "(8108 in the messages, 8192 in the completion).",
    ],
)
async def test_other_refusals_are_final(text: str) -> None:
    async with Served(OpenAIModel, "case-final", [refuse(text)]) as served:
        with pytest.raises(ModelRefused):
            await ask(served.start())
    assert len(served.bodies) == 1


@pytest.mark.parametrize(
    ("model", "url", "effort"),
    [
        ("gpt-5.4-mini", OPENAI, None),
        ("gpt-5.5", OPENAI, "none"),
        ("gpt-6-sol", "https://eu.api.openai.com/v1", "none"),
        ("gpt-6.1-sol", OPENAI, None),
        ("openai/gpt-5.5", "https://openrouter.ai/api/v1", None),
    ],
)
def test_chat_completions_of_openai_gets_tools_without_reasoning(
    model: str, url: str, effort: str | None
) -> None:
    served = OpenAIModel(model, http=HttpClient(clock=FakeClock()), base_url=url)
    body = json.loads(served.start_conversation(CONFIG).build_body())
    assert body.get("reasoning_effort") == effort


@pytest.mark.parametrize("name", ["gpt-5", "openai/gpt-5-mini", "o4-mini", "ft:gpt-5:me"])
@pytest.mark.parametrize("url", [OPENAI, "https://ai-gateway.vercel.sh/v1", "https://x.example/v1"])
def test_reasoning_models_of_openai_are_the_same_behind_every_host(name: str, url: str) -> None:
    facts = find_facts(name, url)
    assert facts.limit_field == "max_completion_tokens"
    assert facts.refused == {"temperature", "top_p"}


@pytest.mark.parametrize(
    ("name", "unsent"),
    [("claude-opus-4-7", ["temperature", "top_p"]), ("claude-sonnet-4-5", ["top_p"])],
)
async def test_sampling_that_is_not_sent_is_logged_once(
    name: str, unsent: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with Served(AnthropicModel, name, []) as served:
        for system in ("a", "b"):
            served.start(RequestConfig(system=system, temperature=0.2, top_p=0.9))
        served.start(RequestConfig(system="c"))
    lines = [f"anthropic:{name}: {each} is not sent" for each in unsent]
    logged = [record.getMessage() for record in caplog.records]
    assert [line.partition(", because")[0] for line in logged] == lines


EFFORTS: dict[str, tuple[type[WireModel], str, Any]] = {
    "anthropic": (AnthropicModel, "claude-opus-5-5", {"output_config": {"effort": "max"}}),
    "chat": (OpenAIModel, "gpt-5.1", {"reasoning_effort": "max"}),
    "responses": (ResponsesModel, "gpt-6.1-sol", {"reasoning": {"effort": "max"}}),
}


@pytest.mark.parametrize(("kind", "name", "wanted"), EFFORTS.values(), ids=EFFORTS)
async def test_the_effort_of_an_agent_is_sent_where_the_model_takes_it(
    kind: type[WireModel], name: str, wanted: dict[str, Any]
) -> None:
    config = replace(CONFIG, tools=(), effort="max")
    async with Served(kind, name, []) as served:
        await ask(served.start(config))
        await ask(served.start(CONFIG))
    with_effort, without = served.bodies
    assert wanted.items() <= with_effort.items()
    assert not wanted.keys() & without.keys()


def test_the_levels_of_gemini_end_at_high() -> None:
    def encode(name: str, effort: str | None) -> Any:
        model = GoogleModel(name, http=HttpClient(clock=FakeClock()))
        conversation = model.start_conversation(replace(CONFIG, effort=effort))
        conversation.append(user_message("Hello"))
        return json.loads(conversation.build_body())["generationConfig"].get("thinkingConfig")

    assert encode("gemini-3-pro-preview", "max") == {"thinkingLevel": "high"}
    assert encode("gemini-3-pro-preview", "low") == {"thinkingLevel": "low"}
    assert encode("gemini-3-pro-preview", None) is None
    assert encode("gemini-2.5-pro", "low") is None


@pytest.mark.parametrize(
    ("name", "effort", "wanted"),
    [("gpt-oss:20b", "max", "high"), ("gpt-oss:20b", "low", "low"), ("qwen3:8b", "low", None)],
)
def test_ollama_gets_the_effort_of_models_with_levels(
    name: str, effort: str, wanted: str | None
) -> None:
    model = OllamaModel(name, http=HttpClient(clock=FakeClock()))
    conversation = model.start_conversation(replace(CONFIG, effort=effort))
    conversation.append(user_message("Hello"))
    assert json.loads(conversation.build_body()).get("think") == wanted


@pytest.mark.parametrize(
    "text",
    [
        "Unsupported value: 'reasoning.effort' does not support 'max' with this model.",
        "Unsupported parameter: 'reasoning_effort' is not supported with this model.",
        "output_config: Extra inputs are not permitted",
        "Thinking level is not supported for this model.",
    ],
)
@pytest.mark.parametrize(("kind", "name", "wanted"), EFFORTS.values(), ids=EFFORTS)
async def test_an_effort_that_is_refused_is_left_out(
    kind: type[WireModel], name: str, wanted: dict[str, Any], text: str
) -> None:
    config = replace(CONFIG, tools=(), effort="max")
    async with Served(kind, name, [refuse(text)]) as served:
        notices, _ = await ask(served.start(config))
    assert len(notices) == 1
    assert not wanted.keys() & served.bodies[-1].keys()


async def test_encrypted_reasoning_that_is_refused_is_not_asked_for() -> None:
    text = "Encrypted content is not supported with this model."
    async with Served(ResponsesModel, "gpt-5.1", [refuse(text)]) as served:
        await ask(served.start(replace(CONFIG, tools=())))
    assert ["include" in body for body in served.bodies] == [True, False]


async def test_a_cache_key_and_marks_that_are_refused_are_left_out() -> None:
    key = "Unrecognized request argument supplied: prompt_cache_key"
    mark = "Unknown parameter: 'input[1].content[0].prompt_cache_breakpoint'."
    config = replace(CONFIG, cache_key="s:main")
    async with Served(ResponsesModel, "gpt-6.1-sol", [refuse(mark), refuse(key)]) as served:
        facts = replace(served.model.facts, takes_cache_key=True, bills_cache_writes=True)
        served.model.change_facts(facts)
        await ask(served.start(config))
    assert [b"prompt_cache_breakpoint" in each.body for each in served.server.requests] == [
        True,
        False,
        False,
    ]
    assert "prompt_cache_key" not in served.bodies[-1]
    assert served.bodies[-1]["input"][0]["role"] == "developer"
