"""What went wrong with one request: whether to make it again, when, and what to tell the person if not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..errors import ModelError, ModelGarbled, ModelRefused, ModelUnavailable

_SHOWN = 600
_PLAIN_HEADERS = frozenset(
    {"accept", "anthropic-beta", "anthropic-version", "content-type", "user-agent"}
)


class Origin(Struct, frozen=True):
    """Whom a request goes to, in words for a person.

    Arguments:
        provider: its name. key_env, url_env: the environment variables of its key and of its base URL, "" if there are none.
    """

    provider: str = "the provider"
    key_env: str = ""
    url_env: str = ""


class Failure(Exception):
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
        again: bool = False,
        wait: float = 0.0,
        down: bool = False,
    ) -> None:
        super().__init__(error.message)
        self.status, self.error, self.again, self.wait, self.down = status, error, again, wait, down

    @property
    def limit(self) -> bool:
        """Whether the provider has too much to do, so that others had better wait too."""
        return self.status in (429, 529) or (self.status == 503 and self.wait > 0)


def from_answer(origin: Origin, url: str, status: int, text: str, *, wait: float = 0.0) -> Failure:
    """What an HTTP status means; `text` is what the provider said, already redacted, `wait` the seconds it asked for."""
    where, said = place(url), f": {text}" if text else ""
    if status in (408, 409, 429) or status >= 500:
        message = (
            f"{origin.provider} answered {status} {_MEANING.get(status, 'server error')}{said}"
        )
        return Failure(
            status,
            ModelUnavailable(message, where=where, remedy="Try again later."),
            again=True,
            wait=wait,
        )
    if 300 <= status < 400:
        message, remedy = (
            f"{origin.provider} redirects elsewhere (HTTP {status}){said}",
            _check_url(origin),
        )
    else:
        message = f"{origin.provider} refused the request (HTTP {status}){said}"
        remedy = _remedy(origin, status)
    return Failure(status, ModelRefused(message, where=where, remedy=remedy))


def from_exception(origin: Origin, url: str, error: Exception, silence: float) -> Failure:
    """What a broken connection means; `silence` is how many seconds nothing may come."""
    import aiohttp

    where = place(url)
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return Failure(0, ModelRefused(f"{where!r} is not a URL", remedy=_check_url(origin)))
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        remedy = "If the certificate is your own, point SSL_CERT_FILE at it."
        return Failure(
            0,
            ModelUnavailable(
                f"no trusted connection to {origin.provider}: {error}", where=where, remedy=remedy
            ),
        )
    if isinstance(error, aiohttp.SocketTimeoutError):
        message = f"{origin.provider} said nothing for {silence:g} s"
        return Failure(
            0, ModelUnavailable(message, where=where, remedy="Try again later."), again=True
        )
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        reason = getattr(error, "os_error", None) or error
        remedy = f"Is it running, and the network up? {_check_url(origin)}"
        return Failure(
            0,
            ModelUnavailable(
                f"cannot reach {origin.provider}: {reason}", where=where, remedy=remedy
            ),
            again=True,
            down=True,
        )
    how = (
        " before the answer had ended"
        if isinstance(error, aiohttp.ClientPayloadError)
        else f": {str(error) or type(error).__name__}"
    )
    message = f"the connection to {origin.provider} was lost{how}"
    return Failure(0, ModelUnavailable(message, where=where, remedy="Try again later."), again=True)


def given_up(failure: Failure, tries: int) -> ModelError:
    """What to raise for a failure that is not tried again, after so many tries."""
    error, how = failure.error, f", tried {tries} times" if tries > 1 else ""
    if failure.again and failure.wait:
        how += f"; it asks to wait {failure.wait:.0f} s"
    return type(error)(error.message + how, where=error.where, remedy=error.remedy)


def garbled(origin: Origin, url: str, what: str) -> Failure:
    """The endpoint answers, but not in the dialect it was said to speak."""
    message = f"the endpoint does not speak the protocol of {origin.provider}: {what}"
    return Failure(0, ModelGarbled(message, where=place(url), remedy=_check_url(origin)))


def said(body: bytes, secrets: tuple[str, ...] = ()) -> str:
    """What the provider said in the body of an error: one line, without the key, of 600 characters at most."""
    text = body.decode("utf-8", "replace")
    try:
        value = msgspec.json.decode(body)
        text = _message(value) or (text if value else "")
    except (msgspec.DecodeError, UnicodeDecodeError):
        if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower():
            title = re.search(r"<(?:title|h1)[^>]*>(.*?)</", text, re.IGNORECASE | re.DOTALL)
            text = f"an HTML page{f' titled {title[1].strip()!r}' if title else ''}"
    text = " ".join(text.split())
    return redacted(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…", secrets)


def secrets_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The parts of request headers that nobody may see."""
    values = (
        value.split()[-1]
        for name, value in headers.items()
        if name.lower() not in _PLAIN_HEADERS and value.strip()
    )
    return tuple(value for value in values if len(value) >= 4)


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    """The text with each secret replaced."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return text


def delay_asked(headers: Mapping[str, str], now: float) -> float:
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


def place(url: str) -> str:
    """The URL without query, name and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _message(body: Any) -> str:
    if isinstance(body, list) and body:
        return _message(cast("list[Any]", body)[0])
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        return next(
            (
                found
                for key in ("error", "message", "detail")
                if (found := _message(fields.get(key)))
            ),
            "",
        )
    return body if isinstance(body, str) else ""


def _check_url(origin: Origin) -> str:
    return f"Check the base URL{f' in {origin.url_env}' if origin.url_env else ''}."


def _remedy(origin: Origin, status: int) -> str:
    if status in (401, 403):
        return f"Check the key in {origin.key_env}." if origin.key_env else "Check the key."
    if status == 404:
        return f"Check the model's name. {_check_url(origin)}"
    if status == 413:
        return "The conversation is too large: give the model less to read, or cut the work into more tasks."
    return ""


_MEANING = {
    408: "timeout",
    409: "conflict",
    429: "too many requests",
    500: "internal error",
    502: "bad gateway",
    503: "unavailable",
    504: "gateway timeout",
    529: "overloaded",
}
