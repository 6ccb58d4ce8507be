"""What went wrong with one request: whether to make it again, when, and what to tell the person if not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..errors import ModelError, ModelGarbled, ModelRefused, ModelUnavailable

_MAX_ERROR_TEXT = 600
_PUBLIC_HEADERS = frozenset(
    {"accept", "anthropic-beta", "anthropic-version", "content-type", "user-agent"}
)


class ProviderHints(Struct, frozen=True):
    """Whom a request goes to, in words for a person.

    Arguments:
        provider: its name. key_env, url_env: the environment variables of its key and of its base URL, "" if there are none.
    """

    provider: str = "the provider"
    key_env: str = ""
    url_env: str = ""


class RequestFailure(Exception):
    """One try that failed.

    Arguments:
        status: HTTP status, 0 for none. error: what to raise when it is not tried again. again: whether it may be.
        wait: seconds the provider asked for. down: nobody is there, so patience is short.
    """

    def __init__(
        self,
        status: int,
        error: ModelError,
        *,
        retryable: bool = False,
        retry_after: float = 0.0,
        unreachable: bool = False,
    ) -> None:
        super().__init__(error.message)
        self.status, self.error, self.again, self.wait, self.down = (
            status,
            error,
            retryable,
            retry_after,
            unreachable,
        )

    @property
    def is_rate_limit(self) -> bool:
        """Whether the provider has too much to do, so that others had better wait too."""
        return self.status in (429, 529) or (self.status == 503 and self.wait > 0)


def classify_status(
    hints: ProviderHints, url: str, status: int, text: str, *, retry_after: float = 0.0
) -> RequestFailure:
    """What an HTTP status means; `text` is what the provider said, already redacted, `wait` the seconds it asked for."""
    where, said = strip_url(url), f": {text}" if text else ""
    if status in (408, 409, 429) or status >= 500:
        message = (
            f"{hints.provider} answered {status} {_STATUS_TEXTS.get(status, 'server error')}{said}"
        )
        return RequestFailure(
            status,
            ModelUnavailable(message, where=where, remedy="Try again later."),
            retryable=True,
            retry_after=retry_after,
        )
    if 300 <= status < 400:
        message, remedy = (
            f"{hints.provider} redirects elsewhere (HTTP {status}){said}",
            _url_remedy(hints),
        )
    else:
        message = f"{hints.provider} refused the request (HTTP {status}){said}"
        remedy = _status_remedy(hints, status)
    return RequestFailure(status, ModelRefused(message, where=where, remedy=remedy))


def classify_exception(
    hints: ProviderHints, url: str, error: Exception, read_timeout: float
) -> RequestFailure:
    """What a broken connection means; `silence` is how many seconds nothing may come."""
    import aiohttp

    where = strip_url(url)
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return RequestFailure(0, ModelRefused(f"{where!r} is not a URL", remedy=_url_remedy(hints)))
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        remedy = "If the certificate is your own, point SSL_CERT_FILE at it."
        return RequestFailure(
            0,
            ModelUnavailable(
                f"no trusted connection to {hints.provider}: {error}", where=where, remedy=remedy
            ),
        )
    if isinstance(error, aiohttp.SocketTimeoutError):
        message = f"{hints.provider} said nothing for {read_timeout:g} s"
        return RequestFailure(
            0, ModelUnavailable(message, where=where, remedy="Try again later."), retryable=True
        )
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        reason = getattr(error, "os_error", None) or error
        remedy = f"Is it running, and the network up? {_url_remedy(hints)}"
        return RequestFailure(
            0,
            ModelUnavailable(
                f"cannot reach {hints.provider}: {reason}", where=where, remedy=remedy
            ),
            retryable=True,
            unreachable=True,
        )
    how = (
        " before the answer had ended"
        if isinstance(error, aiohttp.ClientPayloadError)
        else f": {str(error) or type(error).__name__}"
    )
    message = f"the connection to {hints.provider} was lost{how}"
    return RequestFailure(
        0, ModelUnavailable(message, where=where, remedy="Try again later."), retryable=True
    )


def build_final_error(failure: RequestFailure, tries: int) -> ModelError:
    """What to raise for a failure that is not tried again, after so many tries."""
    error, how = failure.error, f", tried {tries} times" if tries > 1 else ""
    if failure.again and failure.wait:
        how += f"; it asks to wait {failure.wait:.0f} s"
    return type(error)(error.message + how, where=error.where, remedy=error.remedy)


def build_protocol_failure(hints: ProviderHints, url: str, what: str) -> RequestFailure:
    """The endpoint answers, but not in the dialect it was said to speak."""
    message = f"the endpoint does not speak the protocol of {hints.provider}: {what}"
    return RequestFailure(0, ModelGarbled(message, where=strip_url(url), remedy=_url_remedy(hints)))


def extract_error_text(body: bytes, secrets: tuple[str, ...] = ()) -> str:
    """What the provider said in the body of an error: one line, without the key, of 600 characters at most."""
    text = body.decode("utf-8", "replace")
    try:
        value = msgspec.json.decode(body)
        text = _find_message(value) or (text if value else "")
    except (msgspec.DecodeError, UnicodeDecodeError):
        if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower():
            title = re.search(r"<(?:title|h1)[^>]*>(.*?)</", text, re.IGNORECASE | re.DOTALL)
            text = f"an HTML page{f' titled {title[1].strip()!r}' if title else ''}"
    text = " ".join(text.split())
    return redact(text if len(text) <= _MAX_ERROR_TEXT else f"{text[:_MAX_ERROR_TEXT]}…", secrets)


def find_secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The parts of request headers that nobody may see."""
    values = (
        value.split()[-1]
        for name, value in headers.items()
        if name.lower() not in _PUBLIC_HEADERS and value.strip()
    )
    return tuple(value for value in values if len(value) >= 4)


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """The text with each secret replaced."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return text


def parse_retry_after(headers: Mapping[str, str], now: float) -> float:
    """Seconds the answer asks to wait: `Retry-After-Ms`, or `Retry-After` in seconds or as a date; 0 for none.

    Arguments:
        now: seconds since 1970, for the date.
    """
    try:
        if milliseconds := headers.get("Retry-After-Ms"):
            return max(0.0, float(milliseconds) / 1000)
        return max(0.0, float(headers.get("Retry-After") or 0))
    except ValueError:
        from email.utils import parsedate_to_datetime

        try:
            return max(0.0, parsedate_to_datetime(headers["Retry-After"]).timestamp() - now)
        except (ValueError, TypeError, KeyError):
            return 0.0


def strip_url(url: str) -> str:
    """The URL without query, name and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _find_message(body: Any) -> str:
    if isinstance(body, list) and body:
        return _find_message(cast("list[Any]", body)[0])
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        return next(
            (
                found
                for key in ("error", "message", "detail")
                if (found := _find_message(fields.get(key)))
            ),
            "",
        )
    return body if isinstance(body, str) else ""


def _url_remedy(origin: ProviderHints) -> str:
    return f"Check the base URL{f' in {origin.url_env}' if origin.url_env else ''}."


def _status_remedy(origin: ProviderHints, status: int) -> str:
    if status in (401, 403):
        return f"Check the key in {origin.key_env}." if origin.key_env else "Check the key."
    if status == 404:
        return f"Check the model's name. {_url_remedy(origin)}"
    if status == 413:
        return "The conversation is too large: give the model less to read, or cut the work into more tasks."
    return ""


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
