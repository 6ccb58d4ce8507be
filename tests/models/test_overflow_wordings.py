"""Refusals for length of each provider and server, with the sizes that they state, and others."""

from __future__ import annotations

import json
import re

import pytest

from mudroom._adapters.models._errors import ProviderHints, classify_status, extract_error_text
from mudroom._adapters.models.model_facts import ModelFacts
from mudroom._adapters.models.refusals.overflow import find_stated_sizes, is_overflow
from mudroom._adapters.models.refusals.repairs import find_room, learn_facts
from mudroom.errors import ContextOverflow
from mudroom.testing.model_server import Fault, ModelServer

from .wires import ANTHROPIC, OPENAI, RESPONSES, Json, Wire, ask

MARK = r"«([\d,]+) (window|request)»"

REFUSALS = {
    "Anthropic": "prompt is too long: «214468 request» tokens > «200000 window» maximum",
    "Anthropic, with the answer": (
        "input length and `max_tokens` exceed context limit: 199900 + 8192 > «200000 window», "
        "decrease input length or `max_tokens` and try again"
    ),
    "OpenAI": (
        "This model's maximum context length is «128000 window» tokens. However, your messages "
        "resulted in «150001 request» tokens. Please reduce the length of the messages."
    ),
    "OpenAI, one long text": (
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length "
        "10485760, but got a string with length 20000000 instead."
    ),
    "Gemini": (
        "The input token count («1196265 request») exceeds the maximum number of tokens allowed "
        "(«1048575 window»)."
    ),
    "Gemini, later": (
        "The input token count exceeds the maximum number of tokens allowed «1048576 window»."
    ),
    "Vertex": (
        "Unable to submit request because the input token count is «2500000 request» but model "
        "only supports up to «1048576 window». Reduce the input token count and try again."
    ),
    "Bedrock Titan": (
        "400 Bad Request: Too many input tokens. Max input tokens: «8192 window», request input "
        "token count: «11350 request»"
    ),
    "Bedrock, by characters": (
        "Malformed input request: expected maxLength: 20000, actual: 25000, please reformat your "
        "input and try again."
    ),
    "xAI": (
        "This model's maximum prompt length is «131072 window» but the request contains "
        "«537812 request» tokens."
    ),
    "TGI": (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= «4096 window». "
        "Given: 4050 `inputs` tokens and 2048 `max_new_tokens`"
    ),
    "TGI, prompt alone": (
        "Input validation error: `inputs` must have less than «3072 window» tokens. Given: "
        "«4000 request»"
    ),
    "vLLM": (
        "The decoder prompt (length «163840 request») is longer than the maximum model length of "
        "«131072 window». Make sure that `max_model_len` is no smaller than the number of text "
        "tokens."
    ),
    "vLLM, with the answer": (
        "You passed «40961 request» input tokens and requested 1 output tokens. However, the "
        "model's context length is only 40960 tokens, resulting in a maximum input length of "
        "«40959 window» tokens. Please reduce the length of the input prompt."
    ),
    "SGLang": (
        "Input length («160062 request» tokens) exceeds the maximum allowed length («59862 window» "
        "tokens). Use a shorter input or enable --allow-auto-truncate."
    ),
    "SGLang, with the answer": (
        "Requested token count exceeds the model's maximum context length of «40960 window» "
        "tokens. You requested a total of «45000 request» tokens: 40900 tokens from the input "
        "messages and 4100 tokens for the completion."
    ),
    "llama.cpp": (
        "request («2033 request» tokens) exceeds the available context size («1024 window» "
        "tokens), try increasing it"
    ),
    "llama.cpp, during the answer": "Context size has been exceeded.",
    "LM Studio": (
        "The number of tokens to keep from the initial prompt is greater than the context length "
        "(n_keep: «10978 request» >= n_ctx: «8192 window»). Try to load the model with a larger "
        "context length."
    ),
    "Mistral": (
        "Prompt contains «40000 request» tokens and 0 draft tokens, too large for model with "
        "«32768 window» maximum context length"
    ),
    "Moonshot": (
        "Invalid request: Your request exceeded model token limit: «131072 window» (requested: "
        "«140000 request»)"
    ),
    "Moonshot, older": "Invalid request: Input token length too long",
    "DashScope": (
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, "
        "«129024 window»]"
    ),
    "DashScope, long files": (
        "Total message token length exceed model limit («10000000 window» tokens)."
    ),
    "Zhipu": "Prompt exceeds max length",
    "Zhipu, Chinese": "Prompt 超长",
    "Chinese": "输入内容过长,请缩短后重试",
    "GitHub Copilot": "prompt token count of «130431 request» exceeds the limit of «128000 window»",
    "GitHub Models": "Request body too large for gpt-4o model. Max size: «8000 window» tokens.",
    "Cerebras": (
        "Please reduce the length of the messages or completion. Current length is «20000 request» "
        "while limit is «8192 window»"
    ),
    "watsonx": (
        "the number of input tokens «9000 request» cannot exceed the total tokens limit "
        "«8192 window» for this model"
    ),
    "DS4": (
        "Prompt has «32,769 request» tokens, but the configured context size is «32,768 window» "
        "tokens"
    ),
    "a gateway": "upstream: prompt is too long: «214468 request» tokens > «200000 window» maximum",
}
"""Texts, in which the stated sizes of the window and of the request are marked."""

STATUSES = {
    "TGI": 422,
    "TGI, prompt alone": 422,
    "llama.cpp, during the answer": 500,
    "GitHub Models": 413,
    "a gateway": 502,
}
"""Where it is not 400."""


def split_marks(marked: str) -> tuple[str, dict[str, int]]:
    """Return the text without its marks, and the sizes."""
    found = re.findall(MARK, marked)
    return re.sub(MARK, r"\1", marked), {what: int(size.replace(",", "")) for size, what in found}


def classify(status: int, body: object) -> Exception:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    text = extract_error_text(data)
    return classify_status(ProviderHints(), "https://x.example/v1", status, text, body=data).error


@pytest.mark.parametrize("name", REFUSALS)
def test_the_words_of_each_provider_are_known_with_their_numbers(name: str) -> None:
    text, sizes = split_marks(REFUSALS[name])
    error = classify(STATUSES.get(name, 400), {"error": {"message": text}})
    assert isinstance(error, ContextOverflow)
    stated = find_stated_sizes(error.message)
    assert (stated.window, stated.request) == (sizes.get("window", 0), sizes.get("request", 0))


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
    (400, "ThrottlingException: Too many tokens, please wait before trying again."),
    (400, "You exceeded your current quota for input tokens, check your plan and billing"),
    (400, "Your request of 50000 input tokens exceeds the limit of 40000 tokens per min"),
    (503, "The engine is overloaded; input tokens exceed the rate limit"),
    (400, "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens"),
    (400, "too many tokens: max tokens must be less than or equal to 4096, the maximum output"),
    (400, "Range of max_tokens should be [1, 8192]"),
    (400, "Invalid 'tool_calls[0].id': string too long. Expected a string with maximum length 40"),
    (400, "Unrecognized request argument supplied: context_length"),
    (400, "Unknown parameter: 'context_window'."),
    (400, "The file name is too long"),
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
    "name",
    ["Anthropic, with the answer", "vLLM, with the answer", "TGI", "SGLang, with the answer"],
)
def test_a_room_that_is_too_small_is_not_used(name: str) -> None:
    text, _ = split_marks(REFUSALS[name])
    assert find_room(text) == (0, 0)


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


def fail_responses(error: Json) -> Json:
    return {"type": "response.failed", "response": {"error": error}}


TOO_LONG = {"message": "prompt is too long: 5000 tokens > 4096 maximum"}
STREAMS: dict[str, tuple[Wire, list[Json]]] = {
    "words": (OPENAI, [{"error": TOO_LONG}]),
    "code": (OPENAI, [{"error": {"message": "sorry", "code": "context_length_exceeded"}}]),
    "stop reason of Zhipu": (OPENAI, OPENAI.end_with("model_context_window_exceeded")),
    "stop reason of Mistral": (OPENAI, OPENAI.end_with("model_length")),
    "stop reason of Cohere": (OPENAI, OPENAI.end_with("ERROR_LIMIT")),
    "Responses": (RESPONSES, [fail_responses(TOO_LONG)]),
    "Anthropic": (ANTHROPIC, [{"type": "error", "error": TOO_LONG}]),
    "stop reason of Anthropic": (ANTHROPIC, ANTHROPIC.end_with("model_context_window_exceeded")),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_an_overflow_inside_a_stream_is_one(name: str) -> None:
    wire, events = STREAMS[name]
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    fault = Fault(body=body, content_type="text/event-stream")
    async with ModelServer(lambda _: fault) as server:
        model = wire.make_model(base_url=server.url)
        with pytest.raises(ContextOverflow):
            await ask(model)
        await model.close()
    assert server.request_count == 1
