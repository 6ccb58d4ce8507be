"""Decides about a failed request: whether to retry it, how long to wait, what to tell the user.

Also the error for a model string without a known provider.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..._platform.http1.parser import (
    CannotConnect,
    InvalidRequest,
    MalformedResponse,
    SilentServer,
    TooManyOpenFiles,
    UntrustedServer,
)
from ...errors import (
    ContextOverflow,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
    UnknownName,
    suggest_names,
)
from ._rate_limit import MAX_WAIT

if TYPE_CHECKING:
    from .refusals.classifier import Meaning

_MAX_ERROR_TEXT = 600
# Any other request header's value is taken for a secret and redacted.
_PUBLIC_HEADERS = frozenset(
    {"accept", "anthropic-beta", "anthropic-version", "content-type", "user-agent"}
)
_OVERFLOW_REMEDY = (
    "The conversation is too large: let the model read less, split the work into more tasks, "
    "remove the last prompts with /rewind, shorten it with /compact, or use a model with a larger "
    "context."
)
NO_TOOLS_REMEDY = (
    "mudroom works through tools. Use a model that takes them; start vLLM with "
    "--enable-auto-tool-choice and --tool-call-parser, llama.cpp with --jinja."
)
_STATUS_TEXTS = {
    408: "timeout",
    409: "conflict",
    429: "too many requests",
    500: "internal error",
    502: "bad gateway",
    503: "unavailable",
    504: "gateway timeout",
    529: "overloaded",
}
_TRY_LATER = "Try again later."
# Seconds; the longest delay after the first failed attempt. It doubles with each further one.
_FIRST_DELAY = 0.5
_MAX_DELAY = 30.0


class ProviderHints(Struct, frozen=True):
    """How error messages refer to a provider and to its environment variables."""

    provider: str = "the provider"
    key_env: str = ""
    url_env: str = ""


class RequestFailure(Exception):
    """A failed attempt to send a request.

    Arguments:
        status: HTTP status, 0 if no response arrived.
        error: the error to raise if the request is not retried.
        is_repairable: a request without the refused part may succeed.
        is_load: the provider has too many requests, so other runs should also wait.
        retry_after: seconds the provider asked to wait, 0 if it did not ask.
        allows_few_tries: another attempt seldom helps, so only a few follow.
    """

    def __init__(
        self,
        status: int,
        error: ModelError,
        *,
        is_retryable: bool = False,
        is_repairable: bool = False,
        is_load: bool = False,
        retry_after: float = 0.0,
        allows_few_tries: bool = False,
        body: bytes = b"",
    ) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error
        self.is_retryable = is_retryable
        self.is_repairable = is_repairable
        self.is_load = is_load
        self.retry_after = retry_after
        self.allows_few_tries = allows_few_tries
        self.body = body


def classify_status(
    hints: ProviderHints,
    url: str,
    status: int,
    text: str,
    *,
    headers: Mapping[str, str] = MappingProxyType({}),
    body: bytes = b"",
    now: float = 0.0,
) -> RequestFailure:
    """Classify an error response, or an error inside a stream.

    Arguments:
        status: the HTTP status, or the one an error inside a stream would have.
        text: the provider's error text, already redacted.
        headers: by lower-case name.
        now: seconds since 1970, for waits given as a date.
    """
    from .refusals.classifier import Meaning, read_refusal  # only a failure needs it

    refusal = read_refusal(status, text, body, headers, now)
    where = strip_url(url)
    detail = f": {text}" if text else ""
    message = f"{hints.provider} refused the request (HTTP {status}){detail}"
    match refusal.meaning:
        case Meaning.LOAD | Meaning.FAULT:
            is_load = refusal.meaning is Meaning.LOAD
            other = _STATUS_TEXTS[429] if is_load else "server error"
            meaning = _STATUS_TEXTS.get(status, other)
            message = f"{hints.provider} answered {status} {meaning}{detail}"
            error = ModelUnavailable(message, where=where, remedy=_TRY_LATER)
        case Meaning.TOO_LONG:
            error = ContextOverflow(message, where=where, remedy=_OVERFLOW_REMEDY)
        case _ if 300 <= status < 400:
            message = f"{hints.provider} redirects to another address (HTTP {status}){detail}"
            error = ModelRefused(message, where=where, remedy=_make_url_remedy(hints))
        case meaning:
            remedy = _choose_remedy(hints, meaning, status, text)
            error = ModelRefused(message, where=where, remedy=remedy)
    return RequestFailure(
        status,
        error,
        is_retryable=refusal.may_retry,
        is_repairable=refusal.meaning in (Meaning.REFUSED, Meaning.TOO_LONG),
        is_load=refusal.meaning is Meaning.LOAD,
        retry_after=refusal.wait,
        body=body,
    )


def classify_exception(
    hints: ProviderHints, url: str, error: Exception, read_timeout: float
) -> RequestFailure:
    where = strip_url(url)
    remedy = _TRY_LATER
    match error:
        case InvalidRequest():
            message = f"cannot send the request to {where!r}: {error}"
            return RequestFailure(0, ModelRefused(message, remedy=_make_url_remedy(hints)))
        case MalformedResponse():
            return build_protocol_failure(hints, url, str(error), is_unreadable=True)
        case UntrustedServer():
            message = f"no trusted connection to {hints.provider}: {error}"
            remedy = "If the certificate is your own, set SSL_CERT_FILE to its path."
        case SilentServer():
            message = f"{hints.provider} sent no data for {read_timeout:g} s"
        case TooManyOpenFiles():
            message = f"cannot open a connection to {hints.provider}: {error}"
            remedy = "Raise the limit with `ulimit -n`, or run fewer children at once."
        case CannotConnect():
            message = f"cannot reach {hints.provider}: {error}"
            remedy = f"Check that the server runs and the network is up. {_make_url_remedy(hints)}"
        case _:
            message = f"the connection to {hints.provider} was lost: {error}"
    return RequestFailure(
        0,
        ModelUnavailable(message, where=where, remedy=remedy),
        is_retryable=not isinstance(error, UntrustedServer),
        allows_few_tries=isinstance(error, SilentServer | TooManyOpenFiles | CannotConnect),
    )


def build_final_error(failure: RequestFailure, attempts: int) -> ModelError:
    error = failure.error
    suffix = f", tried {attempts} times" if attempts > 1 else ""
    # Some ask for a short wait although a day's quota is used up and waiting does not help.
    if failure.retry_after and (failure.is_retryable or failure.retry_after > MAX_WAIT):
        suffix += f"; the provider asks to wait {failure.retry_after:.0f} s"
    return type(error)(error.message + suffix, where=error.where, remedy=error.remedy)


def build_protocol_failure(
    hints: ProviderHints, url: str, reason: str, *, is_unreadable: bool = False
) -> RequestFailure:
    """Build the failure of an endpoint that answers in an unexpected protocol."""
    message = f"the endpoint does not speak the protocol of {hints.provider}: {reason}"
    error = ModelGarbled(message, where=strip_url(url), remedy=_make_url_remedy(hints))
    return RequestFailure(0, error, is_retryable=is_unreadable, allows_few_tries=True)


def choose_delay(attempt: int, jitter: float) -> float:
    """Choose the seconds to wait after `attempt` attempts; `jitter` is a number from 0 to 1."""
    longest = min(_MAX_DELAY, _FIRST_DELAY * 2 ** (attempt - 1))
    # A random third keeps many runs' retries apart. It is no more than a third, so that each delay
    # is still longer than the one before.
    return longest * (2 + jitter) / 3


def extract_error_text(body: bytes, secrets: tuple[str, ...] = ()) -> str:
    """Extract an error body's message as one redacted line, cut at 600 characters."""
    text = body.decode("utf-8", "replace")
    try:
        value = msgspec.json.decode(body)
        text = find_error_message(value) or (text if value else "")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = _summarize_html(text)
    text = " ".join(text.split())
    if len(text) > _MAX_ERROR_TEXT:
        text = f"{text[:_MAX_ERROR_TEXT]}…"
    return redact(text, secrets)


def find_secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    values = (
        value.split()[-1]
        for name, value in headers.items()
        if name.lower() not in _PUBLIC_HEADERS and value.strip()
    )
    # A shorter value is not a key, and redacting it would make the text unreadable.
    return tuple(value for value in values if len(value) >= 4)


def redact(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return text


def strip_url(url: str) -> str:
    parsed = urlsplit(url)
    return f"{parsed.scheme}://{parsed.netloc.rpartition('@')[2]}{parsed.path}"


# Characters to search for a page's title: an error body may have megabytes.
_MAX_TITLE_PLACE = 10_000


def _summarize_html(text: str) -> str:
    start = text[:1000].lower()
    if "<html" not in start and "<!doctype" not in start:
        return text
    title = re.search(
        r"<(?:title|h1)[^<>]*>(.*?)</", text[:_MAX_TITLE_PLACE], re.IGNORECASE | re.DOTALL
    )
    return f"an HTML page titled {title[1].strip()!r}" if title else "an HTML page"


def find_error_message(body: object) -> str:
    if isinstance(body, str):
        return body
    if isinstance(body, list) and body:
        return find_error_message(cast("list[Any]", body)[0])
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        for key in ("error", "message", "detail", "msg"):
            if message := find_error_message(fields.get(key)):
                return _add_inner_message(message, fields.get("metadata"))
    return ""


def _add_inner_message(message: str, metadata: object) -> str:
    # Gateways such as OpenRouter report the inner provider's message there.
    raw = cast("dict[str, Any]", metadata).get("raw") if isinstance(metadata, dict) else None
    if not isinstance(raw, str) or not raw:
        return message
    try:
        raw = find_error_message(msgspec.json.decode(raw)) or raw
    except (msgspec.DecodeError, RecursionError):
        pass
    return f"{message}: {raw}"


def _make_url_remedy(hints: ProviderHints) -> str:
    if hints.url_env:
        return f"Check the base URL in {hints.url_env}."
    return "Check the base URL."


def _choose_remedy(hints: ProviderHints, meaning: Meaning, status: int, text: str) -> str:
    match meaning.name:
        case "NO_MONEY":
            return (
                f"Add credit to the account of {hints.provider} or raise its spending limit, "
                "or use another model (--model, --fallback-model)."
            )
        case "NO_QUOTA":
            return (
                "Wait until the quota is renewed, ask the provider for a larger one, "
                "or use another model (--model, --fallback-model)."
            )
        case "NO_TOOLS":
            return NO_TOOLS_REMEDY
        case "NOT_ALLOWED":
            return f"Check the key in {hints.key_env}." if hints.key_env else "Check the key."
        case _ if status == 404:
            return f"Check the model's name. {_make_url_remedy(hints)}"
        case _ if "/v1/responses" in text:
            return "Name the model as openai-responses:MODEL."
        case _:
            return ""


def _list_models(prefixes: Mapping[str, Sequence[str]]) -> list[str]:
    """List the models in the price table that can be named without a provider."""
    try:
        from genai_prices.data_snapshot import get_snapshot  # slow to import
    except ImportError:
        return []
    owners = {provider.replace("-", ""): tuple(owned) for provider, owned in prefixes.items()}
    return sorted(
        model.id
        for provider in get_snapshot().providers
        for model in provider.models
        if model.id.startswith(owners.get(provider.id.replace("-", ""), ()))
    )


def make_name_error(
    name: str,
    rest: str,
    providers: Collection[str],
    names: Iterable[str],
    prefixes: Mapping[str, Sequence[str]],
) -> UnknownName:
    """Build the error for a model string without a known provider.

    Arguments:
        name, rest: the string before and from its first separator; `rest` is "" without one.
        names: strings that select a model by themselves, such as "sonnet" and "anthropic".
        prefixes: provider -> prefixes of its models that need no provider, such as "gpt-".
    """
    list_providers = "mudroom models lists the providers."
    if rest:
        remedy = suggest_names(name, providers, otherwise=list_providers)
        return UnknownName("model provider", name, providers, remedy=remedy)
    known = [*names, *_list_models(prefixes)]
    otherwise = f"Write PROVIDER:MODEL. {list_providers}"
    remedy = suggest_names(name, known, otherwise=otherwise)
    return UnknownName("model", name, known, remedy=remedy)
