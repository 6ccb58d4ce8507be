"""Facts about models and hosts: the fields, limits and messages they accept."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

_SAMPLING = frozenset({"temperature", "top_p"})
MIN_OUTPUT = 256  # tokens; a shorter answer would be useless
# Gemini 3 refuses a call that another model made without a signature, but accepts this value in
# its place.
NO_SIGNATURE = "skip_thought_signature_validator"


class ModelFacts(Struct, frozen=True, kw_only=True):
    """Facts about a model at a host.

    Arguments:
        limit_field: name of the output limit in Chat Completions; "" sends none.
        refused: fields that must not be sent.
        takes_one_sampling: `temperature` and `top_p` must not be sent together.
        tool_effort: `reasoning_effort` that Chat Completions needs with tools; "" sends none.
        encrypts_reasoning: the Responses API returns encrypted reasoning on request.
        takes_unsigned_calls: Gemini accepts calls without a thought signature.
        max_call_id: longest call id in Chat Completions; 0 if unknown.
        needs_short_ids: call ids must have nine letters or digits.
        alternates: no user message may follow a tool message or another user message.
        takes_system: the first message may be a system prompt; otherwise it is a user message.
        absent_reasoning: `reasoning_content` for answers with calls that have none of their own,
            such as another model's; None sends no such field.
        tells_price: the host states the price of an answer on request.
        marks_cache: the host caches a prompt of Chat Completions only up to parts marked with
            `cache_control`.
        keeps_cache_hour: the host keeps cache entries for an hour on request.
        takes_cache_key: the host takes a key that sends requests with the same start to one cache.
        bills_cache_writes: writing to the cache costs more than input, and entries end only where
            a message is marked.
        context_window: tokens of prompt and answer together, as stated by the server or a refusal;
            0 if neither stated them.
        usual_window: the same for models of this name that the price table lacks; 0 if unknown.
        max_output: default output limit in tokens; below the model's own where the prompt must also
            fit.
        output_cap: largest output limit the model accepts; 0 if unknown.
    """

    serves_responses: bool = False
    limit_field: str = "max_tokens"
    refused: frozenset[str] = frozenset()
    takes_one_sampling: bool = False
    takes_chat_tools: bool = True
    tool_effort: str = ""
    takes_effort: bool = False
    encrypts_reasoning: bool = False
    takes_unsigned_calls: bool = False
    max_call_id: int = 0
    needs_short_ids: bool = False
    alternates: bool = False
    takes_system: bool = True
    absent_reasoning: str | None = None
    tells_price: bool = False
    takes_images: bool = False
    provider_tools: frozenset[str] = frozenset()
    marks_cache: bool = False
    keeps_cache_hour: bool = False
    takes_cache_key: bool = False
    bills_cache_writes: bool = False
    context_window: int = 0
    usual_window: int = 0
    max_output: int = 8_192
    output_cap: int = 0

    def choose_max_tokens(self, requested: int | None) -> int:
        """Choose the output limit: as requested, else at most a quarter of the window."""
        limit = requested or self.max_output
        if not requested and (window := self.context_window or self.usual_window):
            limit = max(MIN_OUTPUT, min(limit, window // 4))
        return min(limit, self.output_cap or limit)


class _Row(Struct, frozen=True):
    """Facts about the models and hosts that match the regular expressions."""

    name_part: str  # text the model's name must contain: a quick test before `pattern`
    pattern: str
    host: str  # searched in the address without its scheme
    facts: dict[str, Any]


def _make_row(name_part: str = "", pattern: str = "", *, host: str = "", **facts: object) -> _Row:
    return _Row(name_part, pattern, host, facts)


# Start of a model's name, which gateways may prefix with "openai/", "ft:" or "us.anthropic.".
_START = r"(^|[/.:@])"
_OPENAI = (
    r"^([^/:]+\.)?api\.openai\.com(:\d+)?(/|$)|^[^/:]+\.openai\.azure\.com(:\d+)?(/|$)"
    r"|^gateway\.ai\.cloudflare\.com/.+/openai$"
)
_REASONING = _START + r"(o\d|gpt-([5-9]|\d\d))"
_NO_SAMPLING: dict[str, Any] = {"refused": _SAMPLING}
_MISTRAL: dict[str, Any] = {"needs_short_ids": True, "alternates": True}
_SEARCH: dict[str, Any] = {"provider_tools": frozenset({"web_search"})}

# A later row overrides the facts of earlier ones; refused fields add up.
_ROWS = (
    _make_row("gpt-oss", usual_window=131_072, max_output=32_000, takes_effort=True),
    _make_row("deepseek-reasoner", max_output=32_000),
    # Local servers check the ids as well: https://github.com/ml-explore/mlx-lm/issues/1375.
    _make_row("tral", r"(?i)(mis|minis|mix|codes|devs|magis|pix)tral", **_MISTRAL),
    _make_row(pattern="kimi-|glm-", max_output=16_384),
    # A local server decides the window of an open model.
    _make_row(host=r"^(127\.|localhost|\[::1\])", usual_window=0),
    _make_row("gpt-", _START + r"(chat)?gpt-(?!oss)", max_output=16_384),
    _make_row(pattern=_START + r"((chat)?gpt-(?!oss)|o\d)", max_call_id=40),
    _make_row("gpt-3.5", usual_window=16_385, max_output=4_096),
    _make_row("gpt-4", r"gpt-4($|-\d{4})", usual_window=8_192),
    _make_row("gpt-4-turbo", max_output=4_096),
    _make_row(
        pattern=_REASONING,
        limit_field="max_completion_tokens",
        takes_effort=True,
        encrypts_reasoning=True,
        max_output=32_000,
        **_NO_SAMPLING,
    ),
    # https://github.com/BerriAI/litellm/issues/34569; the last two do not accept "none" either, so
    # they have no tools there.
    _make_row("gpt-", r"gpt-(5\.[5-9]|[6-9]|\d\d)", host=_OPENAI, tool_effort="none"),
    _make_row("gpt-6", r"gpt-6(-astra|\.1-sol)", host=_OPENAI, takes_chat_tools=False),
    _make_row("claude-", usual_window=200_000),
    _make_row("claude-3", r"claude-3(?![-.][5-9])", max_output=4_096),
    _make_row("claude-", r"claude-([a-z]+-)?4", takes_one_sampling=True, max_output=16_000),
    _make_row("claude-", r"claude-([a-z]+-)?4[-.]5(?!\d)", max_output=32_000),
    _make_row(
        "claude-", r"claude-([a-z]+-)?4[-.]6(?!\d)", usual_window=1_000_000, max_output=64_000
    ),
    _make_row(
        "claude-",
        r"claude-([a-z]+-)?(4[-.]([7-9]|[1-9]\d)|[5-9]|\d\d)(?!\d)",
        usual_window=1_000_000,
        max_output=64_000,
        **_NO_SAMPLING,
    ),
    _make_row(
        "claude-",
        r"claude-(opus-4[-.]5|[a-z]+-(4[-.]([6-9]|[1-9]\d)|[5-9]|\d\d))(?!\d)",
        takes_effort=True,
    ),
    _make_row("gemini-", max_output=32_768),
    _make_row("gemini-", r"gemini-([3-9]|\d\d)", takes_effort=True),
    _make_row(
        "gemini-",
        r"gemini-([3-9]|\d\d)(?!.*(image|tts|live|embed|audio))",
        usual_window=1_000_000,
    ),
    _make_row(pattern=r"gemini-(1|2\.0)|gemma|learnlm", max_output=8_192),
    _make_row(pattern=r"gemini-[12]|gemma|learnlm", takes_unsigned_calls=True),
    _make_row("grok-", r"grok-([4-9]|\d\d)", max_output=32_000),
    _make_row(
        pattern=_START + r"(claude-(?!2|instant)|gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-([5-9]|\d\d)"
        r"|chatgpt-|o1(?!-mini)|o3(?!-mini)|o4|gemini-|grok-[4-9]|pixtral-"
        r"|mistral-(small|medium|large)-(latest|[3-9])|kimi-(latest|k2\.[5-9]|k[3-9])|llama-4"
        r"|qwen[\w.]*-vl)",
        takes_images=True,
    ),
    # Other servers that speak the protocol refuse the tool, so the host must match as well.
    _make_row(
        "claude-",
        r"claude-(?!2|instant|3-(opus|sonnet|haiku))",
        host=r"^api\.anthropic\.com(/|$)",
        **_SEARCH,
    ),
    _make_row(
        pattern=_START + r"(gpt-4o|gpt-4\.1(?!-nano)|gpt-([5-9]|\d\d)|o3|o4)",
        host=r"^([^/:]+\.)?api\.openai\.com(:\d+)?(/|$)",
        **_SEARCH,
    ),
    # Gemini 2 has no search beside functions.
    _make_row(
        "gemini-",
        r"gemini-([3-9]|\d\d|(flash|flash-lite|pro)-latest)(?!.*(image|tts|live|audio|embed))",
        host=r"^generativelanguage\.googleapis\.com(/|$)",
        **_SEARCH,
    ),
    _make_row("claude-", host=r"^api\.anthropic\.com(/|$)", keeps_cache_hour=True),
    _make_row(
        host=_OPENAI,
        serves_responses=True,
        takes_cache_key=True,
        limit_field="max_completion_tokens",
    ),
    _make_row("gpt-", r"gpt-(5\.[6-9]|[6-9]|\d\d)", host=_OPENAI, bills_cache_writes=True),
    _make_row(host=r"^api\.mistral\.ai", refused=frozenset({"stream_options"}), **_MISTRAL),
    # They refuse other models' calls, which lack a field their own calls have.
    _make_row(
        "deepseek-",
        r"deepseek-(v[4-9]|reasoner|flash|pro)",
        host=r"^api\.deepseek\.com(/|$)",
        absent_reasoning="",
    ),
    _make_row(
        "kimi-",
        r"kimi-(k2-thinking|k2\.[5-9]|k[3-9])",
        host=r"^api\.moonshot\.(ai|cn)(/|$)",
        absent_reasoning="",
    ),
    _make_row(host=r"^openrouter\.ai/", tells_price=True),
    # https://openrouter.ai/docs/guides/best-practices/prompt-caching
    _make_row(
        "claude-",
        r"^~?anthropic/",
        host=r"^openrouter\.ai/",
        marks_cache=True,
        keeps_cache_hour=True,
    ),
    # https://www.alibabacloud.com/help/en/model-studio/context-cache
    _make_row(
        "qwen",
        r"^(qwen/)?qwen(4|[\w.]*-(\w+-)?(max|plus|flash))",
        host=r"^openrouter\.ai/|^(dashscope[\w-]*|[\w.-]+\.maas)\.aliyuncs\.com/compatible-mode",
        marks_cache=True,
    ),
    # The default port of vLLM, which refuses a limit that does not fit beside the prompt.
    _make_row(host=r"^(127\.0\.0\.1|localhost):8000/", max_output=4_096),
)


def find_facts(model: str, base_url: str = "") -> ModelFacts:
    """Look up what a model accepts below a base URL; "" means an unknown host."""
    host = _strip_scheme(base_url)
    if learnt := _learnt.get((model, host)):
        return learnt
    facts: dict[str, Any] = {}
    for row in _ROWS:
        if (
            row.name_part in model
            and (not row.pattern or re.search(row.pattern, model))
            and (not row.host or re.search(row.host, host))
        ):
            refused = facts.get("refused", frozenset()) | row.facts.get("refused", frozenset())
            facts |= row.facts | {"refused": refused}
    return ModelFacts(**facts)


# Corrections learnt from refusals, by model and host, for the life of the process.
_learnt: dict[tuple[str, str], ModelFacts] = {}


def remember_facts(model: str, base_url: str, facts: ModelFacts) -> None:
    _learnt[model, _strip_scheme(base_url)] = facts


def forget_learnt_facts() -> None:
    _learnt.clear()


def _strip_scheme(base_url: str) -> str:
    return base_url.partition("://")[2].rpartition("@")[2].rstrip("/")
