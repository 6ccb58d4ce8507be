"""Checked request bodies, and the digests that identify repeated requests."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from mudroom import Budget, ImageBlock, TextBlock
from mudroom.driving import check_outputs, check_prompt, explain_mismatch
from mudroom.errors import UsageError

from .questions import QuestionAnswer
from .request_errors import make_wrong_request

_T = TypeVar("_T")
_MAX_INTEGER = 2**62
DEFAULT_AGENT = "mudroom"  # the default agent, for clients that must name one

Text = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Count = Annotated[int, Meta(ge=1, le=_MAX_INTEGER)]
Amount = Annotated[float, Meta(gt=0, le=1e12)]


class TextPart(Struct, frozen=True, forbid_unknown_fields=True, tag="text"):
    """A part of a prompt that is text."""

    text: str


class ImagePart(Struct, frozen=True, forbid_unknown_fields=True, tag="image"):
    """A part of a prompt that is a PNG, JPEG, GIF or WebP image. `data`: its file, in base64."""

    data: bytes


PromptBody = Text | Annotated[list[TextPart | ImagePart], Meta(min_length=1)]
"""A prompt as clients send it: text, or texts and images in order."""


class BudgetFields(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of each prompt; each can only lower a limit of the server."""

    turns: Count | None = None
    tokens: Count | None = None
    seconds: Amount | None = None
    usd: Amount | None = None
    children: Annotated[int, Meta(ge=0, le=_MAX_INTEGER)] | None = None
    depth: Annotated[int, Meta(ge=0, le=100)] | None = None


class NewSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to create.

    Arguments:
        agent: runs the prompts; the default agent without it.
        prompt: first prompt. outputs: as in `user.message`.
        workspace: name of a folder; the first one of the server without it.
        mode: permission mode; that of the server without it.
    """

    agent: Name | None = None
    prompt: PromptBody | None = None
    outputs: dict[str, Any] | None = None
    workspace: Name | None = None
    mode: Name | None = None
    budget: BudgetFields = BudgetFields()


class UserMessage(Struct, frozen=True, forbid_unknown_fields=True, tag="user.message"):
    """A prompt. It waits for those before it.

    Arguments:
        text: the prompt; with images, a list of its parts.
        outputs: JSON Schema, or names and descriptions, of values that the run must emit.
    """

    text: PromptBody
    outputs: dict[str, Any] | None = None


class UserInterrupt(Struct, frozen=True, forbid_unknown_fields=True, tag="user.interrupt"):
    """Stop the turn of the prompt that works. Its background work continues."""


class RunSteer(Struct, frozen=True, forbid_unknown_fields=True, tag="run.steer"):
    """Send a message to a run while it works; without `run`, to that of the prompt."""

    text: Text
    run: Name | None = None


class RunCancel(Struct, frozen=True, forbid_unknown_fields=True, tag="run.cancel"):
    """Stop a run and all below it; without `run`, all work and all prompts that wait."""

    run: Name | None = None


class RunWrapUp(Struct, frozen=True, forbid_unknown_fields=True, tag="run.wrap_up"):
    """Ask a run to stop and to summarise its work; without `run`, that of the prompt."""

    run: Name | None = None


ClientEvent = UserMessage | UserInterrupt | RunSteer | RunCancel | RunWrapUp | QuestionAnswer


@cache
def _make_decoder(kind: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401  (a type, or a union)
    return msgspec.json.Decoder(kind)


def parse_body(kind: type[_T], data: bytes) -> _T:
    try:
        return _make_decoder(kind).decode(data or b"{}")
    except msgspec.ValidationError as error:
        reason = explain_mismatch(error, what="body")
        raise make_wrong_request(f"the body is wrong: {reason}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise make_wrong_request(f"the body is no JSON: {error}") from error


def parse_event(data: bytes) -> ClientEvent:
    kind: Any = ClientEvent
    return parse_body(kind, data)


def get_type(event: ClientEvent) -> str:
    """Return an event's type, such as "user.message"."""
    return str(type(event).__struct_config__.tag)


def make_prompt(body: PromptBody) -> str | list[TextBlock | ImageBlock]:
    if isinstance(body, str):
        return body
    return [
        TextBlock(part.text) if isinstance(part, TextPart) else ImageBlock("", part.data)
        for part in body
    ]


def check_message(prompt: PromptBody, outputs: dict[str, Any] | None) -> None:
    """Raise RequestError for a prompt or outputs that no run can take."""
    try:
        check_prompt(make_prompt(prompt))
    except UsageError as error:
        raise make_wrong_request(error.message, "text") from error
    if outputs is None:
        return
    try:
        check_outputs(outputs)
    except UsageError as error:
        raise make_wrong_request(f"outputs cannot be used: {error}", "outputs") from error


def compute_digest(*values: object) -> bytes:
    """Compute a request's digest, which another body or path changes."""
    return blake2b(msgspec.json.encode(values), digest_size=16).digest()


def limit_budget(requested: BudgetFields, limits: Budget) -> Budget:
    """Limit a requested budget to the server's limits: the smaller of each applies."""
    wanted = Budget(
        turns=requested.turns,
        total_tokens=requested.tokens,
        seconds=requested.seconds,
        usd=requested.usd,
        children=requested.children,
        depth=requested.depth,
    )
    smaller: dict[str, Any] = {}
    for name in wanted.__struct_fields__:
        amounts = (getattr(wanted, name), getattr(limits, name))
        smaller[name] = min((each for each in amounts if each is not None), default=None)
    return Budget(**smaller)
