"""Refusals of real providers: what each means, how long it asks to wait, and what a run does.

Bodies and words are from the public documentation of the providers and from reports of their users.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from mudroom._adapters.models._errors import ProviderHints, classify_status, extract_error_text
from mudroom._adapters.models._http import HttpClient, make_stream_error
from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter
from mudroom._adapters.models._wire import WireModel
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.fallback import FallbackModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.ollama import OllamaModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import ResponsesModel
from mudroom._adapters.models.refusals.classifier import (
    Meaning,
    Refusal,
    parse_retry_after,
    read_refusal,
)
from mudroom._core.messages import AssistantMessage, user_message
from mudroom._core.ports import RequestConfig, RequestSlot, RetryNotice
from mudroom.errors import ModelError, ModelRefused
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer, ServerRequest

LOAD, FAULT, MONEY, QUOTA = Meaning.LOAD, Meaning.FAULT, Meaning.NO_MONEY, Meaning.NO_QUOTA
LONG, TOOLS, DENIED, REFUSED = (
    Meaning.TOO_LONG,
    Meaning.NO_TOOLS,
    Meaning.NOT_ALLOWED,
    Meaning.REFUSED,
)
NOW = 1_780_000_000.0


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def gemini(*details: dict[str, Any], message: str = "") -> dict[str, Any]:
    message = message or (
        "You exceeded your current quota, please check your plan and billing details."
    )
    inner = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}
    return {"error": inner | {"details": list(details)}}


def quota(quota_id: str, value: str = "20") -> dict[str, Any]:
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
        "quotaId": quota_id,
        "quotaValue": value,
    }
    kind = "type.googleapis.com/google.rpc.QuotaFailure"
    return {"@type": kind, "violations": [violation]}


def retry_info(delay: object) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


EXCEEDED = "You exceeded your current quota, please check your plan and billing details."
BILLING_LINK = (
    " Visit https://platform.openai.com/account/rate-limits to learn more. You can increase your "
    "rate limit by adding a payment method at https://platform.openai.com/account/billing."
)
DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"

Case = tuple[int, Any, Meaning, float]
CASES: dict[str, Case] = {
    # OpenAI
    "openai quota": (
        429,
        error(EXCEEDED, type="insufficient_quota", code="insufficient_quota"),
        MONEY,
        0,
    ),
    "openai quota by type": (429, error(EXCEEDED, type="insufficient_quota"), MONEY, 0),
    "openai hard limit": (
        400,
        error("Billing hard limit has been reached", code="billing_hard_limit_reached"),
        MONEY,
        0,
    ),
    "openai inactive": (
        429,
        error(
            "Your account is not active, please check your billing details on our website.",
            type="billing_not_active",
        ),
        MONEY,
        0,
    ),
    "openai rpm": (
        429,
        error(
            "Rate limit reached for gpt-4 in organization org-x on requests per min (RPM): "
            "Limit 3, Used 3, Requested 1. Please try again in 20s." + BILLING_LINK,
            type="requests",
            code="rate_limit_exceeded",
        ),
        LOAD,
        20,
    ),
    "openai tpm in ms": (
        429,
        error(
            "Rate limit reached on tokens per min (TPM). Please try again in 867ms.",
            code="rate_limit_exceeded",
        ),
        LOAD,
        0.867,
    ),
    "openai rpd": (
        429,
        error(
            "Rate limit reached on requests per day (RPD): Limit 200. Please try again in 7m12s.",
            code="rate_limit_exceeded",
        ),
        LOAD,
        432,
    ),
    "openai too large for a minute": (
        429,
        error(
            "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 41000. "
            "The input or output tokens must be reduced in order to run successfully.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
        LONG,
        0,
    ),
    "openai overloaded": (
        503,
        error("The engine is currently overloaded, please try again later"),
        FAULT,
        0,
    ),
    "openai key": (401, error("Incorrect API key provided", code="invalid_api_key"), DENIED, 0),
    "openai country": (
        403,
        error("Country, region, or territory not supported", type="request_forbidden"),
        DENIED,
        0,
    ),
    "openai window": (
        400,
        error("Your input exceeds the context window of this model", code="x"),
        LONG,
        0,
    ),
    "openai field": (
        400,
        error("Unsupported parameter: 'temperature' is not supported with this model."),
        REFUSED,
        0,
    ),
    # Azure OpenAI
    "azure tokens": (
        429,
        error(
            "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version "
            "2024-06-01 have exceeded token rate limit of your current OpenAI S0 pricing tier. "
            "Please retry after 7 seconds. Please go here: https://aka.ms/oai/quotaincrease if "
            "you would like to further increase the default rate limit.",
            code="429",
        ),
        LOAD,
        7,
    ),
    # Anthropic
    "anthropic credit": (
        400,
        error(
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & "
            "Billing to upgrade or purchase credits.",
            type="invalid_request_error",
        ),
        MONEY,
        0,
    ),
    "anthropic billing": (402, error("billing", type="billing_error"), MONEY, 0),
    "anthropic usage limit": (
        400,
        error(
            "You have reached your specified API usage limits. You will regain access on "
            "2026-12-01 at 00:00 UTC.",
            type="invalid_request_error",
        ),
        QUOTA,
        0,
    ),
    "anthropic rate": (
        429,
        error(
            "This request would exceed your organization's rate limit of 50,000 input tokens per "
            "minute.",
            type="rate_limit_error",
        ),
        LOAD,
        0,
    ),
    "anthropic long context": (
        429,
        error("Extra usage is required for long context requests.", type="rate_limit_error"),
        MONEY,
        0,
    ),
    "anthropic overloaded": (529, error("Overloaded", type="overloaded_error"), LOAD, 0),
    "anthropic permission": (403, error("no access", type="permission_error"), DENIED, 0),
    # Gemini
    "gemini minute": (429, gemini(quota(MINUTE), retry_info("6.400s")), LOAD, 6.4),
    "gemini day": (429, gemini(quota(DAY), retry_info("54s")), QUOTA, 54),
    "gemini day without details": (
        429,
        gemini(message="Quota exceeded for quota metric 'Requests' and limit 'Requests per day'."),
        QUOTA,
        0,
    ),
    "gemini day and minute": (429, gemini(quota(MINUTE), quota(DAY)), QUOTA, 0),
    "gemini no free tier": (429, gemini(quota(MINUTE, "0"), retry_info("20s")), QUOTA, 20),
    "gemini words only": (
        429,
        gemini(message=f"{EXCEEDED}\nPlease retry in 31.123456789s."),
        LOAD,
        31.123456789,
    ),
    "gemini in a list": (429, [gemini(quota(MINUTE), retry_info("3s"))], LOAD, 3),
    "gemini protobuf": (429, gemini(retry_info({"seconds": 2, "nanos": 5e8})), LOAD, 2.5),
    "gemini eleven hours": (429, gemini(retry_info("39600s")), LOAD, 39_600),
    "gemini overloaded": (
        503,
        {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}},
        FAULT,
        0,
    ),
    "gemini prepaid": (429, gemini(message="Your prepayment credits are depleted."), MONEY, 0),
    # DeepSeek
    "deepseek": (
        402,
        error("Insufficient Balance", type="unknown_error", code="invalid_request_error"),
        MONEY,
        0,
    ),
    # Moonshot
    "kimi suspended": (
        429,
        error(
            "Your account org-x is suspended, please check your plan and billing details",
            type="exceeded_current_quota_error",
        ),
        MONEY,
        0,
    ),
    "kimi concurrency": (
        429,
        error(
            "Your account org-x request reached max organization concurrency: 1, please try again "
            "after 1 seconds",
            type="rate_limit_reached_error",
        ),
        LOAD,
        1,
    ),
    "kimi overloaded": (
        429,
        error(
            "The engine is currently overloaded, please try again later",
            type="engine_overloaded_error",
        ),
        LOAD,
        0,
    ),
    # OpenRouter
    "openrouter credits": (
        402,
        error("Insufficient credits. Add more using https://openrouter.ai/credits", code=402),
        MONEY,
        0,
    ),
    "openrouter room": (
        402,
        error(
            "This request requires more credits, or fewer max_tokens. You requested up to 65536 "
            "tokens, but can only afford 1234.",
            code=402,
        ),
        REFUSED,
        0,
    ),
    "openrouter free day": (
        429,
        error(
            "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model "
            "requests per day",
            code=429,
        ),
        QUOTA,
        0,
    ),
    "openrouter free minute": (
        429,
        error(
            "Rate limit exceeded: free-models-per-min. ",
            code=429,
            metadata={"headers": {"X-RateLimit-Reset": str(int((NOW + 30) * 1000))}},
        ),
        LOAD,
        30,
    ),
    "openrouter upstream": (
        429,
        error(
            "Provider returned error",
            code=429,
            metadata={"raw": "deepseek/x is temporarily rate-limited upstream. Please retry."},
        ),
        LOAD,
        0,
    ),
    "openrouter provider's money": (
        429,
        error(
            "Provider returned error",
            code=429,
            metadata={"raw": json.dumps(error(EXCEEDED, code="insufficient_quota"))},
        ),
        MONEY,
        0,
    ),
    "openrouter key limit": (
        403,
        error("Key limit exceeded (total limit). Manage it using https://x", code=403),
        MONEY,
        0,
    ),
    "openrouter key limit of a day": (
        403,
        error("Key limit exceeded (daily limit). Manage it using https://x", code=403),
        QUOTA,
        0,
    ),
    "openrouter no tools": (
        404,
        error("No endpoints found that support tool use. To learn more, visit: x", code=404),
        TOOLS,
        0,
    ),
    # Others
    "a plan of openai": (
        429,
        error("The usage limit has been reached", type="usage_limit_reached", resets_in_seconds=90),
        LOAD,
        90,
    ),
    "a plan of openai with a date": (
        429,
        error("The limit has been reached", type="usage_limit_reached", resets_at=NOW + 60),
        LOAD,
        60,
    ),
    "two units": (429, error("Slow down. Try again in 2 minutes and 5 seconds."), LOAD, 125),
    "chinese": (429, error("请求过于频繁,请60秒后再试"), LOAD, 60),
    "litellm budget": (
        400,
        error(
            "Budget has been exceeded! Current cost: 10.1, Max budget: 10", type="budget_exceeded"
        ),
        MONEY,
        0,
    ),
    "watsonx month": (
        403,
        {
            "errors": [
                {"code": "token_quota_reached", "message": "token quota for this month reached"}
            ]
        },
        QUOTA,
        0,
    ),
    "hunyuan package": (
        400,
        error("资源包余量已用尽", code="FailedOperation.ResourcePackExhausted"),
        MONEY,
        0,
    ),
    "volcengine free trial": (
        429,
        error(
            "Your account 1 has exhausted its free trial quota for the m model.",
            code="QuotaExceeded",
        ),
        MONEY,
        0,
    ),
    # Models and servers without tools
    "ollama no tools": (400, {"error": "library/gemma2:latest does not support tools"}, TOOLS, 0),
    "vllm no tools": (
        400,
        {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'},
        TOOLS,
        0,
    ),
    "sglang no tools": (400, {"message": "Tools are set, but --tool-call-parser is not"}, TOOLS, 0),
    # The remedy is a flag of the server, so the status is no reason to try again.
    "llama.cpp no tools": (500, error("tools param requires --jinja flag", code=500), TOOLS, 0),
    "groq no tools": (
        400,
        error("`tool calling` is not supported with this model", type="invalid_request_error"),
        TOOLS,
        0,
    ),
    "mistral no tools": (
        400,
        {"message": "Function calling is not enabled for this model", "code": "3051"},
        TOOLS,
        0,
    ),
    "gemini no tools": (400, error("Function calling is not enabled for models/m"), TOOLS, 0),
    "together no tools": (
        400,
        error("m is not supported for JSON mode/function calling", param="tools"),
        TOOLS,
        0,
    ),
    "cerebras no tools": (400, {"message": "Tools are not supported for this model"}, TOOLS, 0),
    "bedrock no tools": (
        400,
        {"message": "This model doesn't support tool use in streaming mode."},
        TOOLS,
        0,
    ),
    "provider tools only": (
        400,
        error("Built-in tools are not supported for this model"),
        REFUSED,
        0,
    ),
    # xAI
    "xai credits": (
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Your team x has either used all available credits or reached its monthly "
            "spending limit. To continue making API requests, please purchase more credits or "
            "raise your spending limit.",
        },
        MONEY,
        0,
    ),
    "xai new team": (
        403,
        {"error": "Your newly created team doesn't have any credits or licenses yet."},
        MONEY,
        0,
    ),
    # Groq
    "groq tokens a day": (
        429,
        error(
            "Rate limit reached for model `m` on tokens per day (TPD): Limit 100000, Used 99900. "
            "Please try again in 1m6.4s. Need more tokens? Upgrade to Dev Tier today at "
            "https://console.groq.com/settings/billing",
            type="tokens",
            code="rate_limit_exceeded",
        ),
        LOAD,
        66.4,
    ),
    "groq flex": (498, error("Flex tier capacity exceeded"), LOAD, 0),
    "groq too large": (
        413,
        error(
            "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested "
            "7000, please reduce your message size and try again.",
            code="rate_limit_exceeded",
        ),
        LONG,
        0,
    ),
    # Mistral
    "mistral rate": (
        429,
        {
            "object": "error",
            "message": "Rate limit exceeded",
            "type": "rate_limited",
            "code": "1300",
        },
        LOAD,
        0,
    ),
    "mistral capacity": (
        429,
        {"message": "Service tier capacity exceeded", "type": "service_tier_capacity_exceeded"},
        LOAD,
        0,
    ),
    "mistral subscription": (
        401,
        {"detail": "Inactive subscription or usage limit reached"},
        MONEY,
        0,
    ),
    # GLM
    "glm balance": (429, error("您的账户已欠费,请充值后重试", code="1113"), MONEY, 0),
    "glm balance in english": (
        429,
        error("Insufficient balance or no resource package. Please recharge.", code="1113"),
        MONEY,
        0,
    ),
    "glm concurrency": (
        429,
        error("您当前使用该 API 的并发数过高,请降低并发", code="1302"),
        LOAD,
        0,
    ),
    "glm day": (429, error("该 API 已达今日调用次数限额", code="1304"), QUOTA, 0),
    "glm week": (
        429,
        error("Weekly/Monthly Limit Exhausted. Your limit will reset at 2026-12-01", code="1310"),
        QUOTA,
        0,
    ),
    # Alibaba
    "alibaba arrears": (
        400,
        {
            "code": "Arrearage",
            "message": "Access denied, please make sure your account is in good standing.",
        },
        MONEY,
        0,
    ),
    "alibaba free tier": (
        403,
        {
            "code": "AllocationQuota.FreeTierOnly",
            "message": "The free tier of the model has been exhausted.",
        },
        MONEY,
        0,
    ),
    "alibaba tokens a minute": (
        429,
        error(
            "Allocated quota exceeded, please increase your quota limit.",
            code="insufficient_quota",
        ),
        LOAD,
        0,
    ),
    "alibaba throttling": (
        429,
        {"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded."},
        LOAD,
        0,
    ),
    # Cerebras
    "cerebras day": (
        429,
        {
            "message": "Tokens per day limit exceeded - too many tokens processed.",
            "type": "too_many_tokens_error",
            "code": "token_quota_exceeded",
        },
        QUOTA,
        0,
    ),
    "cerebras minute": (
        429,
        {
            "message": "Tokens per minute limit exceeded - too many tokens processed.",
            "type": "too_many_tokens_error",
            "code": "token_quota_exceeded",
        },
        LOAD,
        0,
    ),
    "cerebras queue": (
        429,
        {"message": "We're experiencing high traffic right now!", "code": "queue_exceeded"},
        LOAD,
        0,
    ),
    # Others
    "cohere month": (
        429,
        {"message": "You are using a Trial key, which is limited to 1000 API calls / month."},
        QUOTA,
        0,
    ),
    "cohere minute": (
        429,
        {"message": "You are using a Trial key, which is limited to 20 API calls / minute."},
        LOAD,
        0,
    ),
    "together": (402, error("Credit limit exceeded", type="credit_limit"), MONEY, 0),
    "fireworks": (
        412,
        {
            "error": "Account x is suspended, possibly due to reaching the monthly spending limit "
            "or failure to pay past invoices."
        },
        MONEY,
        0,
    ),
    "hugging face": (
        402,
        {"error": "You have exceeded your monthly included credits for Inference Providers."},
        MONEY,
        0,
    ),
    "perplexity": (401, error(EXCEEDED, type="insufficient_quota", code=401), MONEY, 0),
    "volcengine": (
        403,
        error(
            "The request failed because your account has an overdue balance.",
            code="AccountOverdueError",
        ),
        MONEY,
        0,
    ),
    "siliconflow": (
        403,
        {"code": 30001, "message": "Sorry, your account balance is insufficient"},
        MONEY,
        0,
    ),
    "novita": (
        403,
        {"code": 403, "reason": "NOT_ENOUGH_BALANCE", "message": "not enough balance"},
        MONEY,
        0,
    ),
    "minimax": (
        500,
        error("insufficient balance (1008)", type="insufficient_balance_error"),
        MONEY,
        0,
    ),
    "github models": (
        429,
        error(
            "Rate limit of 150 per 86400s exceeded for UserByModelByDay. Please wait 23456 "
            "seconds before retrying.",
            code="RateLimitReached",
        ),
        LOAD,
        23_456,
    ),
    "cloudflare": (
        429,
        {
            "errors": [
                {
                    "message": "you have used up your daily free allocation of 10,000 neurons",
                    "code": 4006,
                }
            ]
        },
        QUOTA,
        0,
    ),
    "bedrock day": (
        429,
        {"message": "Too many tokens per day, please wait before trying again."},
        QUOTA,
        0,
    ),
    "bedrock": (
        400,
        {"__type": "ThrottlingException", "message": "Too many requests, please wait."},
        LOAD,
        0,
    ),
    "vercel gateway": (
        402,
        error("A positive credit balance is required", type="insufficient_funds"),
        MONEY,
        0,
    ),
    "chutes": (402, {"detail": "Quota exceeded and account balance is $0.0"}, MONEY, 0),
    "hermes gateway": (429, error("No credits", code="credit_balance_exhausted"), MONEY, 0),
    "copilot": (402, error("You have no quota", code="quota_exceeded"), MONEY, 0),
    # Own servers
    "ollama tools": (
        400,
        {"error": "registry.ollama.ai/library/gemma:latest does not support tools"},
        TOOLS,
        0,
    ),
    "ollama cloud": (
        429,
        {"error": "you've reached your weekly usage limit, please upgrade to continue"},
        QUOTA,
        0,
    ),
    "vllm tools": (
        400,
        error('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'),
        TOOLS,
        0,
    ),
    "llama.cpp loading": (
        503,
        error("Loading model", code=503, type="unavailable_error"),
        FAULT,
        0,
    ),
    "llama.cpp grammar": (400, error("failed to parse grammar", code=400), REFUSED, 0),
    "llama.cpp grammar, newer": (
        500,
        error("Failed to initialize samplers: failed to parse grammar", code=500),
        REFUSED,
        0,
    ),
    # Words that only look like money or quota
    "a tool named after money": (
        400,
        error("Invalid schema for function 'add_5_credits': 'x' is not valid"),
        REFUSED,
        0,
    ),
    "a daily tool": (400, error("Invalid value for 'tools[3].function.name': 'daily'"), REFUSED, 0),
    "a model of a day": (404, error("The model 'news-per-day' does not exist"), REFUSED, 0),
    "a fault that names money": (500, error("internal error in the billing service"), FAULT, 0),
    "nothing at all": (429, None, LOAD, 0),
}


def read(case: Case) -> Refusal:
    status, data, _, _ = case
    body = json.dumps(data).encode() if data else b""
    return read_refusal(status, extract_error_text(body) if body else "", body, now=NOW)


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_is_understood(name: str) -> None:
    *_, meaning, wait = CASES[name]
    refusal = read(CASES[name])
    assert refusal.meaning is meaning
    assert refusal.wait == pytest.approx(wait)
    assert refusal.may_retry == (meaning in (LOAD, FAULT))


def test_a_model_that_is_loading_is_waited_for() -> None:
    """Hugging Face tells the wait beside the error."""
    data = {"error": "Model m is currently loading", "estimated_time": 20.5}
    assert read((503, data, LOAD, 20.5)) == Refusal(LOAD, 20.5, may_retry=True)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1]])
def test_a_refusal_means_the_same_inside_a_stream(name: str) -> None:
    status, data, meaning, _ = CASES[name]
    body = cast("dict[str, Any]", data[0] if isinstance(data, list) else data)
    inner: Any = body.get("error", body)
    if not isinstance(inner, str):
        inner = {"status": status, **inner, "type": inner.get("type") or inner.get("__type")}
    stream_error = make_stream_error(inner)
    refusal = read_refusal(stream_error.status, stream_error.text, stream_error.body, now=NOW)
    is_known_by_words = meaning is MONEY or isinstance(inner, str)
    if stream_error.status == status or is_known_by_words:
        assert refusal.meaning is meaning


def test_the_table_has_at_least_twelve_providers() -> None:
    assert len({name.split()[0] for name in CASES}) >= 12


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "7s"}, 7),
        ({"retry-after": "1m30s"}, 90),
        ({"retry-after": "Thu, 28 May 2026 20:26:52 GMT"}, 12),
        ({"retry-after": "inf"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, 0),
        ({}, 0),
    ],
)
def test_each_form_of_the_header_is_read(headers: dict[str, str], wait: float) -> None:
    assert parse_retry_after(headers, NOW) == pytest.approx(wait)


def test_the_server_decides_whether_another_attempt_makes_sense() -> None:
    never = read_refusal(500, "broken", headers={"x-should-retry": "false"})
    again = read_refusal(400, "a lock is held", headers={"x-should-retry": "true"})
    money = read_refusal(402, "no", headers={"x-should-retry": "true"})
    assert (never.may_retry, again.may_retry, money.may_retry) == (False, True, False)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] is MONEY])
def test_an_empty_account_says_what_to_do_and_leaves_the_limiter_alone(name: str) -> None:
    status, data, *_ = CASES[name]
    failure = classify_status(
        ProviderHints("acme"), "https://x.example", status, "no", body=json.dumps(data).encode()
    )
    assert isinstance(failure.error, ModelRefused)
    assert "Add credit to the account of acme" in failure.error.remedy
    assert not failure.is_retryable
    assert not failure.is_load


WIRES: dict[str, type[WireModel]] = {
    "anthropic": AnthropicModel,
    "google": GoogleModel,
    "openai": OpenAIModel,
    "openai-responses": ResponsesModel,
    "ollama": OllamaModel,
}
STREAMS = {
    "anthropic": b"event: error\ndata: %b\n\n",
    "google": b"data: %b\n\n",
    "openai": b"data: %b\n\n",
    "openai-responses": b"data: %b\n\n",
    "ollama": b"%b\n",
}
EMPTY = error(EXCEEDED, type="insufficient_quota", code="insufficient_quota")


class CountingLimiter(AdaptiveRateLimiter):
    """A rate limiter that counts the refusals it is told of."""

    refusals = 0

    def record_refused(self, slot: RequestSlot, retry_after: float) -> None:
        self.refusals += 1
        super().record_refused(slot, retry_after)


@asynccontextmanager
async def serve(wire: str, fault: Fault) -> AsyncGenerator[tuple[WireModel, ModelServer], None]:
    async with ModelServer(lambda _: fault) as server:
        limiter = CountingLimiter(FakeClock())
        http = HttpClient(clock=FakeClock(), limiter=limiter)
        model = WIRES[wire]("m", http=http, base_url=server.url)
        try:
            yield model, server
        finally:
            await model.close()


async def ask(model: Any) -> list[Any]:
    conversation = model.start_conversation(RequestConfig(system=""))
    conversation.append(user_message("Hello"))
    return [part async for part in conversation.request_answer()]


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("wire", [name for name in WIRES if name != "ollama"])
async def test_an_empty_account_is_asked_once_on_every_wire(wire: str, in_stream: bool) -> None:
    body = json.dumps(EMPTY).encode()
    if in_stream:
        kind = {"type": "error"} if wire == "anthropic" else {}
        body = STREAMS[wire] % json.dumps(kind | EMPTY).encode()
        fault = Fault(body=body, content_type="text/event-stream")
    else:
        fault = Fault(status=429, body=body)
    async with serve(wire, fault) as (model, server):
        with pytest.raises(ModelRefused, match="exceeded your current quota") as caught:
            await ask(model)
        assert server.request_count == 1
        assert "Add credit" in caught.value.remedy
        assert getattr(model.http.limiter, "refusals", None) == 0


async def test_twenty_runs_learn_of_an_empty_account_with_one_request_each() -> None:
    fault = Fault(status=429, body=json.dumps(EMPTY).encode())
    async with serve("openai", fault) as (model, server):
        start = model.http.clock.monotonic()
        outcomes = await asyncio.gather(*(ask(model) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(outcome, ModelRefused) for outcome in outcomes)
        assert server.request_count == 20
        assert model.http.clock.monotonic() - start < 2


async def test_the_fallback_takes_over_from_an_empty_account_at_once() -> None:
    clock = FakeClock()
    fault = Fault(status=429, body=json.dumps(EMPTY).encode())

    def answer(request: ServerRequest) -> Fault | str:
        return fault if request.number == 1 else "Done."

    async with ModelServer(answer) as server:
        models = [
            OpenAIModel(name, http=HttpClient(clock=clock), base_url=server.url)
            for name in ("empty", "full")
        ]
        start = clock.monotonic()
        parts = await ask(FallbackModel(models, clock.monotonic))
        for model in models:
            await model.close()
    assert isinstance(parts[-1], AssistantMessage)
    assert parts[-1].text == "Done."
    assert [part.delay for part in parts if isinstance(part, RetryNotice)] == [0]
    assert clock.monotonic() - start < 1


async def test_the_wait_in_a_body_is_kept_and_shared() -> None:
    body = json.dumps(gemini(quota(MINUTE), retry_info("6.400s"))).encode()
    clock = FakeClock()
    answers: list[Fault | str] = ["Done.", Fault(status=429, body=body)]
    async with ModelServer(lambda _: answers.pop()) as server:
        http = HttpClient(clock=clock)
        model = GoogleModel("gemini-x", http=http, base_url=server.url)
        parts = await ask(model)
        await model.close()
    (notice,) = [part for part in parts if isinstance(part, RetryNotice)]
    assert notice.delay == pytest.approx(6.4)


async def test_a_wait_of_hours_in_a_body_ends_the_request_and_names_the_wait() -> None:
    body = json.dumps(gemini(retry_info("39600s"))).encode()
    async with serve("google", Fault(status=429, body=body)) as (model, server):
        with pytest.raises(ModelError, match="asks to wait 39600 s"):
            await ask(model)
        assert server.request_count == 1


def test_load_is_named_as_such_whatever_the_status() -> None:
    hints = ProviderHints("acme")
    failure = classify_status(hints, "https://x.example", 403, "rate limit exceeded")
    assert failure.error.message == "acme answered 403 too many requests: rate limit exceeded"
    assert failure.is_retryable
