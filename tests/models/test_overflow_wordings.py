"""Refusals for length of each provider and server, with the sizes that they state, and others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mudroom._adapters.models._errors import ProviderHints, classify_status, extract_error_text
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models._wire import WireModel
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.model_facts import ModelFacts
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import ResponsesModel
from mudroom._adapters.models.refusals.overflow import find_stated_sizes, is_overflow
from mudroom._adapters.models.refusals.repairs import find_room, learn_facts
from mudroom._core.messages import user_message
from mudroom._core.ports import RequestConfig
from mudroom.errors import ContextOverflow
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer

REFUSALS: dict[str, tuple[int, str, int, int]] = {
    # name: (status, text, stated window, stated size of the request)
    "Anthropic": (400, "prompt is too long: 214468 tokens > 200000 maximum", 200_000, 214_468),
    "Anthropic, with the answer": (
        400,
        "input length and `max_tokens` exceed context limit: 199900 + 8192 > 200000, decrease "
        "input length or `max_tokens` and try again",
        200_000,
        0,
    ),
    "OpenAI": (
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in "
        "150001 tokens. Please reduce the length of the messages.",
        128_000,
        150_001,
    ),
    "OpenAI Responses": (
        400,
        "Your input exceeds the context window of this model. Please adjust your input and try "
        "again.",
        0,
        0,
    ),
    "OpenAI, one long text": (
        400,
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length "
        "10485760, but got a string with length 20000000 instead.",
        0,
        0,
    ),
    "Azure": (
        400,
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
        "509178 tokens. Please reduce the length of the messages.",
        272_000,
        509_178,
    ),
    "Gemini": (
        400,
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        1_048_575,
        1_196_265,
    ),
    "Gemini, later": (
        400,
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        1_048_576,
        0,
    ),
    "Vertex": (
        400,
        "Unable to submit request because the input token count is 2500000 but model only supports "
        "up to 1048576. Reduce the input token count and try again.",
        1_048_576,
        2_500_000,
    ),
    "Bedrock": (400, "Input is too long for requested model.", 0, 0),
    "Bedrock Titan": (
        400,
        "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token "
        "count: 11350",
        8_192,
        11_350,
    ),
    "Bedrock, by characters": (
        400,
        "Malformed input request: expected maxLength: 20000, actual: 25000, please reformat your "
        "input and try again.",
        0,
        0,
    ),
    "xAI": (
        400,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        131_072,
        537_812,
    ),
    "Groq": (400, "Please reduce the length of the messages or completion.", 0, 0),
    "Groq, by its rate": (
        413,
        "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 12000, "
        "please reduce your message size and try again.",
        0,
        0,
    ),
    "Together": (
        400,
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
        262_144,
        516_368,
    ),
    "TGI": (
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4050 "
        "`inputs` tokens and 2048 `max_new_tokens`",
        4_096,
        0,
    ),
    "TGI, prompt alone": (
        422,
        "Input validation error: `inputs` must have less than 3072 tokens. Given: 4000",
        3_072,
        4_000,
    ),
    "vLLM": (
        400,
        "The decoder prompt (length 163840) is longer than the maximum model length of 131072. "
        "Make sure that `max_model_len` is no smaller than the number of text tokens.",
        131_072,
        163_840,
    ),
    "vLLM, with the answer": (
        400,
        "You passed 40961 input tokens and requested 1 output tokens. However, the model's context "
        "length is only 40960 tokens, resulting in a maximum input length of 40959 tokens. Please "
        "reduce the length of the input prompt.",
        40_959,
        40_961,
    ),
    "vLLM, limit of the answer": (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context "
        "length is 32768 tokens and your request has 40000 input tokens (8192 > 32768 - 40000).",
        32_768,
        40_000,
    ),
    "SGLang": (
        400,
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens). Use a "
        "shorter input or enable --allow-auto-truncate.",
        59_862,
        160_062,
    ),
    "SGLang, with the answer": (
        400,
        "Requested token count exceeds the model's maximum context length of 40960 tokens. You "
        "requested a total of 45000 tokens: 40900 tokens from the input messages and 4100 tokens "
        "for the completion.",
        40_960,
        45_000,
    ),
    "llama.cpp": (
        400,
        "request (2033 tokens) exceeds the available context size (1024 tokens), try increasing it",
        1_024,
        2_033,
    ),
    "llama.cpp, during the answer": (500, "Context size has been exceeded.", 0, 0),
    "Ollama": (400, "prompt too long; exceeded max context length by 1234 tokens", 0, 0),
    "Ollama, other": (400, "the input length exceeds the context length", 0, 0),
    "LM Studio": (
        400,
        "The number of tokens to keep from the initial prompt is greater than the context length "
        "(n_keep: 10978 >= n_ctx: 8192). Try to load the model with a larger context length.",
        8_192,
        10_978,
    ),
    "Mistral": (
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        32_768,
        40_000,
    ),
    "DeepSeek": (
        400,
        "This model's maximum context length is 65536 tokens. However, you requested 90000 tokens "
        "(85000 in the messages, 5000 in the completion). Please reduce the length of the "
        "messages or completion.",
        65_536,
        90_000,
    ),
    "Moonshot": (
        400,
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
        131_072,
        140_000,
    ),
    "Moonshot, older": (400, "Invalid request: Input token length too long", 0, 0),
    "DashScope": (
        400,
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
        129_024,
        0,
    ),
    "DashScope, long files": (
        400,
        "Total message token length exceed model limit (10000000 tokens).",
        10_000_000,
        0,
    ),
    "Zhipu": (400, "Prompt exceeds max length", 0, 0),
    "Zhipu, Chinese": (400, "Prompt 超长", 0, 0),
    "Chinese": (400, "输入内容过长,请缩短后重试", 0, 0),
    "OpenRouter": (
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about "
        "140000 tokens (130000 of text input, 10000 in the output). Please reduce the length of "
        "either one.",
        131_072,
        140_000,
    ),
    "Cohere": (
        400,
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.",
        4_081,
        4_292,
    ),
    "GitHub Copilot": (
        400,
        "prompt token count of 130431 exceeds the limit of 128000",
        128_000,
        130_431,
    ),
    "GitHub Models": (
        413,
        "Request body too large for gpt-4o model. Max size: 8000 tokens.",
        8_000,
        0,
    ),
    "MiniMax": (400, "invalid params, context window exceeds limit (2013)", 0, 0),
    "Fireworks": (
        400,
        "The prompt is too long: 210000, model maximum context length: 131071",
        131_071,
        210_000,
    ),
    "Cerebras": (
        400,
        "Please reduce the length of the messages or completion. Current length is 20000 while "
        "limit is 8192",
        8_192,
        20_000,
    ),
    "watsonx": (
        400,
        "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
        8_192,
        9_000,
    ),
    "Volcengine": (400, "Total tokens of image and text exceed max message tokens", 0, 0),
    "DS4": (
        400,
        "Prompt has 32,769 tokens, but the configured context size is 32,768 tokens",
        32_768,
        32_769,
    ),
    "a gateway": (502, "upstream: prompt is too long: 214468 tokens > 200000 maximum", 200_000, 0),
}


def classify(status: int, body: object) -> Exception:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    text = extract_error_text(data)
    return classify_status(ProviderHints(), "https://x.example/v1", status, text, body=data).error


@pytest.mark.parametrize("name", REFUSALS)
def test_the_words_of_each_provider_are_known_with_their_numbers(name: str) -> None:
    status, text, window, size = REFUSALS[name]
    error = classify(status, {"error": {"message": text}})
    assert isinstance(error, ContextOverflow)
    stated = find_stated_sizes(error.message)
    assert stated.window == window
    assert stated.request == size or name == "a gateway"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Bad request", "code": "context_length_exceeded"}},
        {"error": {"message": "no", "type": "exceed_context_size_error", "n_ctx": 4096}},
        {"error": {"message": "no", "code": "model_max_prompt_tokens_exceeded"}},
        {"error": "Input validation error: `inputs` must have less than 3072 tokens. Given: 4000"},
        {"message": "Input is too long for requested model."},
        {"detail": [{"loc": ["body"], "msg": "prompt is too long"}]},
        [{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum"}}],
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": '{"error": {"message": "This model\'s maximum context length is 262144 '
                    'tokens. However, your messages resulted in 262897 tokens."}}',
                    "provider_name": "Some",
                },
            }
        },
        b"prompt is too long",
    ],
)
def test_the_form_of_the_error_does_not_matter(body: object) -> None:
    assert isinstance(classify(400, body), ContextOverflow)


def test_the_message_behind_a_gateway_is_shown_and_its_numbers_are_read() -> None:
    raw = '{"error": {"message": "maximum context length is 262144 tokens, not 262897"}}'
    body = {"error": {"message": "Provider returned error", "metadata": {"raw": raw}}}
    error = classify(400, body)
    assert "Provider returned error: maximum context length is 262144" in str(error)
    assert find_stated_sizes(str(error)).window == 262_144


OTHERS = [
    (429, "Rate limit reached on tokens per minute (TPM): Limit 30000, Used 29000, Requested 9000"),
    (429, "This request would exceed the rate limit of 30,000 input tokens per minute"),
    (429, "Too many tokens, please wait before trying again."),
    (400, "ThrottlingException: Too many tokens, please wait before trying again."),
    (400, "You exceeded your current quota for input tokens, check your plan and billing"),
    (400, "Your request of 50000 input tokens exceeds the limit of 40000 tokens per min"),
    (503, "The engine is overloaded; input tokens exceed the rate limit"),
    (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
    (400, "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens"),
    (400, "too many tokens: max tokens must be less than or equal to 4096, the maximum output"),
    (400, "Range of max_tokens should be [1, 8192]"),
    (400, "maxOutputTokens value of 100000 but the supported range is from 1 to 65537"),
    (400, "Invalid 'tool_calls[0].id': string too long. Expected a string with maximum length 40"),
    (400, "Unrecognized request argument supplied: context_length"),
    (400, "Unknown parameter: 'context_window'."),
    (400, "The file name is too long"),
    (400, "The image is too large"),
    (400, "Invalid max_tokens value"),
    (401, "the prompt is too long"),
    (404, "No model has a context window of this size"),
    (500, "internal error"),
    (400, "输入参数 temperature 超出范围"),
    (400, ""),
]


@pytest.mark.parametrize(("status", "text"), OTHERS)
def test_other_limits_are_no_overflow(status: int, text: str) -> None:
    assert not is_overflow(status, text, json.dumps({"error": {"message": text}}).encode())


def test_the_words_of_the_conversation_in_an_error_are_not_read() -> None:
    prompt = "explain: prompt is too long: 214468 tokens > 200000 maximum"
    body = {"detail": [{"msg": "field required", "input": {"messages": [{"content": prompt}]}}]}
    assert not isinstance(classify(422, body), ContextOverflow)


@pytest.mark.parametrize(
    ("name", "window", "room"),
    [
        ("Anthropic, with the answer", 0, 0),
        ("vLLM, with the answer", 0, 0),
        ("TGI", 0, 0),
        ("SGLang, with the answer", 0, 0),
    ],
)
def test_a_room_that_is_too_small_is_not_used(name: str, window: int, room: int) -> None:
    assert find_room(REFUSALS[name][1]) == (window, room)


@pytest.mark.parametrize(
    ("text", "window", "room"),
    [
        (
            "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens and "
            "2048 `max_new_tokens`",
            4_096,
            1_096,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 40960 tokens. You "
            "requested a total of 45000 tokens: 37000 tokens from the input messages and 8000 "
            "tokens for the completion.",
            40_960,
            3_960,
        ),
        (
            "You passed 30000 input tokens and requested 20000 output tokens. However, the model's "
            "context length is only 40960 tokens",
            40_960,
            10_960,
        ),
    ],
)
def test_a_shorter_answer_is_tried_where_it_fits(text: str, window: int, room: int) -> None:
    assert find_room(text) == (window, room)


@pytest.mark.parametrize(
    ("text", "cap"),
    [
        ("too many tokens: max tokens must be less than or equal to 4096, the maximum", 4_096),
        ("InvalidParameter: Range of max_tokens should be [1, 8192]", 8_192),
    ],
)
def test_an_output_limit_that_is_too_large_is_lowered(text: str, cap: int) -> None:
    learnt = learn_facts(ModelFacts(), text)
    assert learnt is not None and learnt[0].output_cap == cap


STREAM = "text/event-stream"


def encode_events(*events: dict[str, Any]) -> bytes:
    names = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    pairs = zip(names, events, strict=True)
    return "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in pairs).encode()


def make_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


MESSAGE: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "content": [],
    "model": "m",
}

STREAMS: dict[str, tuple[type[WireModel], str, bytes]] = {
    "error of llama.cpp": (
        OpenAIModel,
        "/v1",
        encode_events(
            make_chunk({"content": "a"}),
            {"error": {"code": 500, "message": "Context size has been exceeded."}},
        ),
    ),
    "error without a code": (
        OpenAIModel,
        "/v1",
        encode_events({"error": {"message": "prompt is too long: 5000 tokens > 4096 maximum"}}),
    ),
    "code alone": (
        OpenAIModel,
        "/v1",
        encode_events({"error": {"message": "sorry", "code": "context_length_exceeded"}}),
    ),
    "stop reason of Zhipu": (
        OpenAIModel,
        "/v1",
        encode_events(make_chunk({"content": "a"}, "model_context_window_exceeded")),
    ),
    "stop reason of Mistral": (
        OpenAIModel,
        "/v1",
        encode_events(make_chunk({"content": "a"}, "model_length")),
    ),
    "stop reason of Cohere": (
        OpenAIModel,
        "/v1",
        encode_events(make_chunk({"content": "a"}, "ERROR_LIMIT")),
    ),
    "Responses": (
        ResponsesModel,
        "/v1",
        encode_events(
            {
                "type": "response.failed",
                "response": {
                    "error": {
                        "code": "context_length_exceeded",
                        "message": "Your input exceeds the context window of this model.",
                    }
                },
            }
        ),
    ),
    "error of Anthropic": (
        AnthropicModel,
        "",
        encode_events(
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 1 > 0"},
            }
        ),
    ),
    "stop reason of Anthropic": (
        AnthropicModel,
        "",
        encode_events(
            {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 9}}},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "model_context_window_exceeded"},
                "usage": {"output_tokens": 3},
            },
            {"type": "message_stop"},
        ),
    ),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_an_overflow_inside_a_stream_is_one(name: str) -> None:
    kind, path, data = STREAMS[name]
    async with ModelServer(lambda _: Fault(body=data, content_type=STREAM)) as server:
        http = HttpClient(clock=FakeClock())
        model = kind("full", http=http, base_url=f"{server.url}{path}")
        conversation = model.start_conversation(RequestConfig(system=""))
        conversation.append(user_message("Hello"))
        with pytest.raises(ContextOverflow):
            async for _ in conversation.request_answer():
                pass
        await model.close()
    assert server.request_count == 1
