"""Learns from refusals about a request's fields and output limit."""

from __future__ import annotations

import re
from typing import Any, cast

from msgspec.structs import replace

from ...._platform.patterns import compile_later
from ..model_facts import MIN_OUTPUT, ModelFacts

_UNSUPPORTED = compile_later(
    r"(?i)unsupported|not supported|not support|unrecognized|unknown|not permitted|forbidden"
    r"|deprecated|cannot both|not allowed"
)
_NO_SEARCH = compile_later(
    r"(?i)(web|google)[ _]?search|search grounding|built-in tool|server.?side.?tool"
    r"|tool use with function calling"
)
_FIELD = compile_later(
    r"\b(max_completion_tokens|max_tokens|temperature|top_p|stream_options|tool_choice"
    r"|reasoning_effort|prompt_cache_key|prompt_cache_breakpoint|cache_control|effort"
    r"|output_config|[tT]hinking[_ ]?[lL]evel)\b"
)
_EFFORT_FIELDS = frozenset({"reasoning_effort", "output_config"})
_NO_SEALED_REASONING = compile_later(
    r"(?i)encrypted[ _]content\b.{0,40}\b(not|un)[ -]?(supported|available|permitted|allowed)"
)
_MISSING_REASONING = compile_later(
    r"(?i)reasoning_content\b.{0,60}"
    r"\b(passed back|missing|required|must be (set|provided|included))"
    r"|(missing|requires?|without)\b.{0,30}\breasoning_content"
)
_BLANK = " "
# Entry in a model's refused fields if its server cannot handle patterns in schemas.
PATTERNS = "pattern"
_REFUSED_PATTERN = compile_later(
    r"(?i)failed to (parse|compile) (the )?grammar|failed to initialize samplers"
    r"|look-?(ahead|behind|around)|(invalid|unsupported|unknown) (regex|regular expression|format)"
    r"|\bformat: only|\b(pattern|format|regex)\b.{0,60}"
    r"\b(not (valid|supported|permitted|allowed)|unsupported|invalid)"
)
# These only narrow strings, so leaving them out makes a schema looser but not wrong.
_ANNOTATIONS = frozenset({"pattern", "format"})
_NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_VALUES = frozenset({"enum", "const", "default", "examples"})
_ROLES = compile_later(
    r"(?i)unexpected role '?user'? after role '?tool|tool call id was .{0,80}must be a-z"
)
# Errors of chat templates run by llama.cpp, vLLM and others, some with HTTP 500.
_ALTERNATION = r"roles must alternate"
_NO_SYSTEM = r"system (role|message|prompt)s? (is |are )?not supported"
TEMPLATE_ERROR = compile_later(rf"(?i){_ALTERNATION}|{_NO_SYSTEM}")
_OUTPUT_CAPS = (
    compile_later(r"at most (\d+) completion tokens"),
    compile_later(r"> (\d+), which is the maximum allowed number of output tokens"),
    compile_later(r"max(?:_completion)?_tokens`? must be less than or equal to `?(\d+)"),
    compile_later(r"(?i)range of max_tokens (?:is|should be) \[1, (\d+)\]"),
    compile_later(r"max tokens must be less than or equal to (\d+)"),
    compile_later(r"supported range is from 1 \(inclusive\) to (\d+)"),
)
_PROMPT_AND_OUTPUT = (
    compile_later(
        r"context length is (?P<window>\d+) tokens.{0,40}requested (?:about )?(?P<total>\d+) tokens"
        r" \(.*?(?<!\d)(?P<output>\d++) in the (?:completion|output)\)"
    ),
    compile_later(
        r"context length is (?P<window>\d+) tokens.*?(?<!\d)(?P<prompt>\d++) input tokens"
    ),
    compile_later(r"exceed context limit: (?P<prompt>\d+) \+ \d+ > (?P<window>\d+)"),
    compile_later(r"must be <= (?P<window>\d+)\. Given: (?P<prompt>\d+) `inputs` tokens"),
    compile_later(
        r"context length of (?P<window>\d+) tokens.*?(?<!\d)(?P<prompt>\d++) tokens from the input"
    ),
    compile_later(
        r"You passed (?P<prompt>\d+) input tokens.*?context length is only (?P<window>\d+) tokens"
    ),
)


def learn_facts(facts: ModelFacts, refusal: str) -> tuple[ModelFacts, str] | None:
    """Correct the facts after a refusal, and say how; None if it names no known field."""
    for pattern in _OUTPUT_CAPS:
        if (match := pattern.search(refusal)) and int(match[1]) != facts.output_cap:
            cap = int(match[1])
            return replace(facts, output_cap=cap), f"answers have at most {cap:,} tokens"
    return _learn_shape(facts, refusal) or _learn_field(facts, refusal)


def _learn_shape(facts: ModelFacts, refusal: str) -> tuple[ModelFacts, str] | None:
    if _MISSING_REASONING.search(refusal) and facts.absent_reasoning != _BLANK:
        # Some servers count an empty field as missing.
        absent = "" if facts.absent_reasoning is None else _BLANK
        return replace(facts, absent_reasoning=absent), "each call has a reasoning_content"
    if _ROLES.search(refusal) and not (facts.needs_short_ids and facts.alternates):
        facts = replace(facts, needs_short_ids=True, alternates=True)
        return facts, "ids are short, and results hold the next text"
    if TEMPLATE_ERROR.search(refusal):
        return _learn_template(facts, refusal)
    if PATTERNS not in facts.refused and _REFUSED_PATTERN.search(refusal):
        facts = replace(facts, refused=facts.refused | {PATTERNS})
        return facts, "the schemas of the tools have no patterns and formats"
    if facts.encrypts_reasoning and _NO_SEALED_REASONING.search(refusal):
        return replace(facts, encrypts_reasoning=False), "encrypted reasoning is not asked for"
    if facts.provider_tools and _NO_SEARCH.search(refusal):
        return replace(facts, provider_tools=frozenset()), "the model does not search the web"
    return None


def _learn_template(facts: ModelFacts, refusal: str) -> tuple[ModelFacts, str] | None:
    if facts.takes_system and re.search(f"(?i){_NO_SYSTEM}", refusal):
        facts = replace(facts, takes_system=False, alternates=True)
        return facts, "the system prompt is part of the first message"
    if not facts.alternates:
        return replace(facts, alternates=True), "neighbouring messages of the user are one"
    return None


def _learn_field(facts: ModelFacts, refusal: str) -> tuple[ModelFacts, str] | None:
    match = _FIELD.search(refusal)
    if match is None or not _UNSUPPORTED.search(refusal):
        return None
    field = match[1]
    if field == "reasoning_effort" and "tools" in refusal and not facts.tool_effort:
        return replace(facts, tool_effort="none"), "the model does not reason beside tools"
    if field in _EFFORT_FIELDS or field.lower().startswith("thinking"):
        field = "effort"
        if not facts.takes_effort:
            return None
    if "cannot both" in refusal and not facts.takes_one_sampling:
        return replace(facts, takes_one_sampling=True), f"only {field} is sent"
    if field in facts.refused:
        return None
    facts = replace(facts, refused=facts.refused | {field})
    if field != facts.limit_field:
        return facts, f"{field} is not sent"
    others = {"max_tokens", "max_completion_tokens"} - facts.refused
    other = next(iter(others), "")
    return replace(facts, limit_field=other), f"{other or 'no output limit'} is sent, not {field}"


def find_room(refusal: str) -> tuple[int, int]:
    """Read from a refusal the window, and the room a prompt leaves in it.

    Zeros if it states neither, or if the room is too small for an answer. Without a window, the
    room is what the account's credit covers.
    """
    if match := re.search(r"fewer max_tokens.*can only afford (\d+)", refusal):
        return 0, _check_room(int(match[1]))
    for pattern in _PROMPT_AND_OUTPUT:
        if match := pattern.search(refusal):
            parts = {name: int(value) for name, value in match.groupdict().items()}
            prompt = parts["prompt"] if "prompt" in parts else parts["total"] - parts["output"]
            room = _check_room(parts["window"] - prompt)
            return (parts["window"], room) if room else (0, 0)
    return 0, 0


def _check_room(tokens: int) -> int:
    return tokens if tokens >= MIN_OUTPUT else 0


def remove_patterns(schema: Any) -> Any:  # noqa: ANN401
    # Properties of that name, and keys inside values such as `default`, stay.
    if isinstance(schema, list):
        return [remove_patterns(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", schema).items():
        if name in _NAMED_SCHEMAS and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            result[name] = {key: remove_patterns(each) for key, each in named.items()}
        elif name in _VALUES:
            result[name] = value
        elif name not in _ANNOTATIONS:
            result[name] = remove_patterns(value)
    return result
