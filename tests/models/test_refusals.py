"""Refusals of real providers: what each means, how long it asks to wait, and what a run does.

Bodies and words are from the public documentation of the providers, from reports of their users,
and from recordings in the public test suites of crmne/ruby_llm, Arize-ai/openinference and
traceloop/openllmetry, without keys and ids.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from mudroom._adapters.models._errors import ProviderHints, classify_status, extract_error_text
from mudroom._adapters.models._http import HttpClient, make_stream_error
from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter
from mudroom._adapters.models._wire import WireModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.refusals.classifier import (
    Meaning,
    Refusal,
    parse_retry_after,
    read_refusal,
)
from mudroom._core.ports import RequestSlot, RetryNotice
from mudroom.errors import ModelError, ModelRefused
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer

from .wires import ANTHROPIC, GOOGLE, OPENAI, RESPONSES, Wire, ask, get_name

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


class Case(NamedTuple):
    """An answer of a provider, and the seconds that it asks to wait."""

    status: int
    body: Any
    wait: float = 0


def said(status: int, message: str, wait: float = 0, **fields: Any) -> Case:
    return Case(status, error(message, **fields), wait)


def bare(status: int, **body: Any) -> Case:
    """Make a case whose body has its fields at the top, not below "error"."""
    return Case(status, body)


def gemini(*details: dict[str, Any], message: str = "") -> dict[str, Any]:
    inner = {"code": 429, "message": message or EXCEEDED, "status": "RESOURCE_EXHAUSTED"}
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

CASES_OF: dict[Meaning, dict[str, Case]] = {
    MONEY: {
        "openai quota": said(429, EXCEEDED, type="insufficient_quota", code="insufficient_quota"),
        "anthropic credit": said(
            400,
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & "
            "Billing to upgrade or purchase credits.",
            type="invalid_request_error",
        ),
        "anthropic long context": said(
            429, "Extra usage is required for long context requests.", type="rate_limit_error"
        ),
        "gemini prepaid": Case(429, gemini(message="Your prepayment credits are depleted.")),
        "deepseek": said(
            402, "Insufficient Balance", type="unknown_error", code="invalid_request_error"
        ),
        "openrouter provider's money": said(
            429,
            "Provider returned error",
            code=429,
            metadata={"raw": json.dumps(error(EXCEEDED, code="insufficient_quota"))},
        ),
        "openrouter key limit": said(
            403, "Key limit exceeded (total limit). Manage it using https://x", code=403
        ),
        "hunyuan package": said(
            400, "资源包余量已用尽", code="FailedOperation.ResourcePackExhausted"
        ),
        "volcengine free trial": said(
            429,
            "Your account 1 has exhausted its free trial quota for the m model.",
            code="QuotaExceeded",
        ),
        "xai new team": bare(
            403, error="Your newly created team doesn't have any credits or licenses yet."
        ),
        "mistral subscription": bare(401, detail="Inactive subscription or usage limit reached"),
        "fireworks": bare(
            412,
            error="Account x is suspended, possibly due to reaching the monthly spending limit "
            "or failure to pay past invoices.",
        ),
        "siliconflow": bare(403, code=30001, message="Sorry, your account balance is insufficient"),
        "kimi suspended": said(
            429,
            "Your account org-x is suspended, please check your plan and billing details",
            type="exceeded_current_quota_error",
        ),
        "glm balance": said(429, "您的账户已欠费,请充值后重试", code="1113"),
        "glm balance in english": said(
            429, "Insufficient balance or no resource package. Please recharge.", code="1113"
        ),
        "alibaba arrears": bare(
            400,
            code="Arrearage",
            message="Access denied, please make sure your account is in good standing.",
        ),
        "novita": bare(403, code=403, reason="NOT_ENOUGH_BALANCE", message="not enough balance"),
        "minimax": said(500, "insufficient balance (1008)", type="insufficient_balance_error"),
        "copilot": said(402, "You have no quota", code="quota_exceeded"),
    },
    LOAD: {
        "openai rpm": said(
            429,
            "Rate limit reached for gpt-4 in organization org-x on requests per min (RPM): "
            "Limit 3, Used 3, Requested 1. Please try again in 20s." + BILLING_LINK,
            20,
            type="requests",
            code="rate_limit_exceeded",
        ),
        "gemini minute": Case(429, gemini(quota(MINUTE), retry_info("6.400s")), 6.4),
        "gemini in a list": Case(429, [gemini(quota(MINUTE), retry_info("3s"))], 3),
        "gemini protobuf": Case(429, gemini(retry_info({"seconds": 2, "nanos": 5e8})), 2.5),
        "kimi concurrency": said(
            429,
            "Your account org-x request reached max organization concurrency: 1, please try again "
            "after 1 seconds",
            1,
            type="rate_limit_reached_error",
        ),
        "kimi overloaded": said(
            429,
            "The engine is currently overloaded, please try again later",
            type="engine_overloaded_error",
        ),
        "openrouter free minute": said(
            429,
            "Rate limit exceeded: free-models-per-min. ",
            30,
            code=429,
            metadata={"headers": {"X-RateLimit-Reset": str(int((NOW + 30) * 1000))}},
        ),
        "openrouter upstream": said(
            429,
            "Provider returned error",
            code=429,
            metadata={"raw": "deepseek/x is temporarily rate-limited upstream. Please retry."},
        ),
        "a plan of openai": said(
            429,
            "The usage limit has been reached",
            90,
            type="usage_limit_reached",
            resets_in_seconds=90,
        ),
        "a plan of openai with a date": said(
            429, "The limit has been reached", 60, type="usage_limit_reached", resets_at=NOW + 60
        ),
        "two units": said(429, "Slow down. Try again in 2 minutes and 5 seconds.", 125),
        "chinese": said(429, "请求过于频繁,请60秒后再试", 60),
        "groq flex": said(498, "Flex tier capacity exceeded"),
        "alibaba tokens a minute": said(
            429,
            "Allocated quota exceeded, please increase your quota limit.",
            code="insufficient_quota",
        ),
        "github models": said(
            429,
            "Rate limit of 150 per 86400s exceeded for UserByModelByDay. Please wait 23456 "
            "seconds before retrying.",
            23_456,
            code="RateLimitReached",
        ),
        "mistral capacity": bare(
            429, message="Service tier capacity exceeded", type="service_tier_capacity_exceeded"
        ),
        "cerebras queue": bare(
            429, message="We're experiencing high traffic right now!", code="queue_exceeded"
        ),
        "bedrock": bare(
            400, __type="ThrottlingException", message="Too many requests, please wait."
        ),
        "nothing at all": Case(429, None),
    },
    LONG: {
        "openai too large for a minute": said(
            429,
            "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 41000. "
            "The input or output tokens must be reduced in order to run successfully.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
        "openai window": said(400, "Your input exceeds the context window of this model", code="x"),
        "groq too large": said(
            413,
            "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested "
            "7000, please reduce your message size and try again.",
            code="rate_limit_exceeded",
        ),
    },
    FAULT: {
        "openai overloaded": said(
            503, "The engine is currently overloaded, please try again later"
        ),
        "a fault that names money": said(500, "internal error in the billing service"),
    },
    DENIED: {
        "openai key": said(401, "Incorrect API key provided", code="invalid_api_key"),
    },
    REFUSED: {
        "openai field": said(
            400, "Unsupported parameter: 'temperature' is not supported with this model."
        ),
        "openrouter room": said(
            402,
            "This request requires more credits, or fewer max_tokens. You requested up to 65536 "
            "tokens, but can only afford 1234.",
            code=402,
        ),
        "provider tools only": said(400, "Built-in tools are not supported for this model"),
        "llama.cpp grammar": said(400, "failed to parse grammar", code=400),
        "a tool named after money": said(
            400, "Invalid schema for function 'add_5_credits': 'x' is not valid"
        ),
        "a daily tool": said(400, "Invalid value for 'tools[3].function.name': 'daily'"),
        "a model of a day": said(404, "The model 'news-per-day' does not exist"),
    },
    QUOTA: {
        "anthropic usage limit": said(
            400,
            "You have reached your specified API usage limits. You will regain access on "
            "2026-12-01 at 00:00 UTC.",
            type="invalid_request_error",
        ),
        "gemini day": Case(429, gemini(quota(DAY), retry_info("54s")), 54),
        "gemini day without details": Case(
            429,
            gemini(
                message="Quota exceeded for quota metric 'Requests' and limit 'Requests per day'."
            ),
        ),
        "gemini day and minute": Case(429, gemini(quota(MINUTE), quota(DAY))),
        "gemini no free tier": Case(429, gemini(quota(MINUTE, "0"), retry_info("20s")), 20),
        "openrouter key limit of a day": said(
            403, "Key limit exceeded (daily limit). Manage it using https://x", code=403
        ),
        "glm week": said(
            429, "Weekly/Monthly Limit Exhausted. Your limit will reset at 2026-12-01", code="1310"
        ),
        "watsonx month": bare(
            403,
            errors=[
                {"code": "token_quota_reached", "message": "token quota for this month reached"}
            ],
        ),
        "cohere month": bare(
            429, message="You are using a Trial key, which is limited to 1000 API calls / month."
        ),
    },
    TOOLS: {
        "openrouter no tools": said(
            404, "No endpoints found that support tool use. To learn more, visit: x", code=404
        ),
        "llama.cpp no tools": said(500, "tools param requires --jinja flag", code=500),
        "groq no tools": said(
            400, "`tool calling` is not supported with this model", type="invalid_request_error"
        ),
        "mistral no tools": bare(
            400, message="Function calling is not enabled for this model", code="3051"
        ),
        "together no tools": said(
            400, "m is not supported for JSON mode/function calling", param="tools"
        ),
        "cerebras no tools": bare(400, message="Tools are not supported for this model"),
        "bedrock no tools": bare(
            400, message="This model doesn't support tool use in streaming mode."
        ),
        "ollama tools": bare(
            400, error="registry.ollama.ai/library/gemma:latest does not support tools"
        ),
        "vllm tools": said(
            400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'
        ),
    },
}
CASES = {name: case for cases in CASES_OF.values() for name, case in cases.items()}
MEANINGS = {name: meaning for meaning, cases in CASES_OF.items() for name in cases}


def read(case: Case) -> Refusal:
    body = json.dumps(case.body).encode() if case.body else b""
    text = extract_error_text(body) if body else ""
    return read_refusal(case.status, text, body, now=NOW)


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_is_understood(name: str) -> None:
    refusal, meaning = read(CASES[name]), MEANINGS[name]
    assert refusal.meaning is meaning
    assert refusal.wait == pytest.approx(CASES[name].wait)
    assert refusal.may_retry == (meaning in (LOAD, FAULT))


def test_a_model_that_is_loading_is_waited_for() -> None:
    """Hugging Face tells the wait beside the error."""
    case = bare(503, error="Model m is currently loading", estimated_time=20.5)
    assert read(case) == Refusal(LOAD, 20.5, may_retry=True)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.body])
def test_a_refusal_means_the_same_inside_a_stream(name: str) -> None:
    status, data, _ = CASES[name]
    body = cast("dict[str, Any]", data[0] if isinstance(data, list) else data)
    inner: Any = body.get("error", body)
    if not isinstance(inner, str):
        inner = {"status": status, **inner, "type": inner.get("type") or inner.get("__type")}
    stream_error = make_stream_error(inner)
    refusal = read_refusal(stream_error.status, stream_error.text, stream_error.body, now=NOW)
    is_known_by_words = MEANINGS[name] is MONEY or isinstance(inner, str)
    if stream_error.status == status or is_known_by_words:
        assert refusal.meaning is MEANINGS[name]


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


@pytest.mark.parametrize("name", CASES_OF[MONEY])
def test_an_empty_account_says_what_to_do_and_leaves_the_limiter_alone(name: str) -> None:
    status, data, *_ = CASES[name]
    failure = classify_status(
        ProviderHints("acme"), "https://x.example", status, "no", body=json.dumps(data).encode()
    )
    assert isinstance(failure.error, ModelRefused)
    assert "Add credit to the account of acme" in failure.error.remedy
    assert not failure.is_retryable
    assert not failure.is_load


EMPTY = error(EXCEEDED, type="insufficient_quota", code="insufficient_quota")


class CountingLimiter(AdaptiveRateLimiter):
    """A rate limiter that counts the refusals it is told of."""

    refusals = 0

    def record_refused(self, slot: RequestSlot, retry_after: float) -> None:
        self.refusals += 1
        super().record_refused(slot, retry_after)


@asynccontextmanager
async def serve(wire: Wire, fault: Fault) -> AsyncGenerator[tuple[WireModel, ModelServer]]:
    async with ModelServer(lambda _: fault) as server:
        limiter = CountingLimiter(FakeClock())
        http = HttpClient(clock=FakeClock(), limiter=limiter)
        model = wire.kind("m", http=http, base_url=server.url)
        try:
            yield model, server
        finally:
            await model.close()


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("wire", [ANTHROPIC, GOOGLE, OPENAI, RESPONSES], ids=get_name)
async def test_an_empty_account_is_asked_once_on_every_wire(wire: Wire, in_stream: bool) -> None:
    body = json.dumps(EMPTY).encode()
    if in_stream:
        kind = {"type": "error"} if wire is ANTHROPIC else {}
        body = b"data: %b\n\n" % json.dumps(kind | EMPTY).encode()
        fault = Fault(body=body, content_type="text/event-stream")
    else:
        fault = Fault(status=429, body=body)
    async with serve(wire, fault) as (model, server):
        with pytest.raises(ModelRefused, match="exceeded your current quota") as caught:
            await ask(model)
        assert server.request_count == 1
        assert "Add credit" in caught.value.remedy
        assert getattr(model.http.limiter, "refusals", None) == 0


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
    async with serve(GOOGLE, Fault(status=429, body=body)) as (model, server):
        with pytest.raises(ModelError, match="asks to wait 39600 s"):
            await ask(model)
        assert server.request_count == 1


def test_load_is_named_as_such_whatever_the_status() -> None:
    hints = ProviderHints("acme")
    failure = classify_status(hints, "https://x.example", 403, "rate limit exceeded")
    assert failure.error.message == "acme answered 403 too many requests: rate limit exceeded"
    assert failure.is_retryable


PATH = Path(__file__).with_name("recorded_refusals.jsonl")
RECORDED: list[dict[str, Any]] = [json.loads(line) for line in PATH.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    "each", RECORDED, ids=[f"{each['provider']}-{each['status']}" for each in RECORDED]
)
def test_a_recorded_refusal_means_what_it_says(each: dict[str, Any]) -> None:
    body = json.dumps(each["body"]).encode()
    text = extract_error_text(body)
    refusal = read_refusal(each["status"], text, body, each["headers"])
    assert refusal.meaning is Meaning(each["meaning"])
    assert refusal.wait == each["wait"]
    assert refusal.may_retry is (refusal.meaning is Meaning.LOAD)
