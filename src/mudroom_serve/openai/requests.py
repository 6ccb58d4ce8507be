"""Bodies of OpenAI's API: messages become a single prompt, answer formats become outputs."""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from mudroom.errors import quote_value

from ..request_bodies import (
    ImagePart,
    NewSession,
    PromptBody,
    Text,
    TextPart,
    check_message,
    parse_body,
)
from ..request_errors import make_wrong_request

_ROLES = ("system", "developer", "user", "assistant")
_TEXT_PARTS = ("text", "input_text", "output_text")
_IMAGE_PARTS = ("image_url", "input_image")
_REFUSED = {
    "tools": "The agent has its own tools.",
    "functions": "The agent has its own tools.",
    "audio": "Answers are texts.",
    "background": "Use /v1/sessions, which works in the background.",
    "conversation": "Use previous_response_id.",
    "prompt": "Give the text itself.",
}
"""Fields that would change the answer, and what to do; false and empty values are accepted."""


class StreamOptions(Struct, frozen=True):
    """Options of a stream. `include_usage`: send the tokens at the end."""

    include_usage: bool | None = None


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A request for /v1/chat/completions; the fields that are used."""

    model: Text
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None


class ResponseRequest(Struct, frozen=True, kw_only=True):
    """A request for /v1/responses; the fields that are used."""

    model: Text
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    text: dict[str, Any] | None = None


class Wanted(Struct, frozen=True, kw_only=True):
    """A request as the server runs it."""

    agent: str
    prompt: PromptBody
    outputs: dict[str, Any] | None  # JSON Schema of the answer, None for text
    unused: tuple[str, ...]  # names of fields without effect

    def make_session(self) -> NewSession:
        return NewSession(agent=self.agent, prompt=self.prompt, outputs=self.outputs)


def parse_chat(data: bytes) -> tuple[ChatRequest, Wanted]:
    request = parse_body(ChatRequest, data)
    unused = list_unused(data, ChatRequest)
    prompt = join_pieces(list_pieces(request.messages, "messages"))
    return request, make_wanted(request.model, prompt, request.response_format, unused)


def parse_response(data: bytes) -> tuple[ResponseRequest, Wanted]:
    request = parse_body(ResponseRequest, data)
    unused = list_unused(data, ResponseRequest)
    given = request.input
    is_text = isinstance(given, str)
    pieces: list[str | ImagePart] = [given] if is_text else list_pieces(given, "input")
    if request.instructions:
        pieces.insert(0, request.instructions)
    prompt = join_pieces(pieces)
    form = (request.text or {}).get("format")
    return request, make_wanted(request.model, prompt, form, unused)


def make_wanted(agent: str, prompt: PromptBody, form: object, unused: tuple[str, ...]) -> Wanted:
    outputs = find_schema(form)
    check_message(prompt, outputs)
    return Wanted(agent=agent, prompt=prompt, outputs=outputs, unused=unused)


def list_unused(data: bytes, kind: type[Struct]) -> tuple[str, ...]:
    """List the names of fields without effect. Raises RequestError for some."""
    fields: dict[str, Any] = msgspec.json.decode(data)
    for name, remedy in _REFUSED.items():
        if fields.get(name):
            raise make_wrong_request(f"{name} cannot be used. {remedy}", name)
    known = {*kind.__struct_fields__, *_REFUSED}
    return tuple(sorted(name for name in fields if name not in known and name.isprintable()))


def list_pieces(messages: list[dict[str, Any]], field: str) -> list[str | ImagePart]:
    """List the texts and images of messages as those of a single prompt.

    A lone message is the prompt itself. In a longer conversation, its role precedes each message.
    """
    parts = [(get_role(message, field), list_parts(message, field)) for message in messages]
    if not any(role == "user" for role, _ in parts):
        raise make_wrong_request("there is no message of the user", field)
    if not any(role == "assistant" for role, _ in parts):
        return [piece for _, pieces in parts for piece in pieces]
    shown = [piece for role, pieces in parts[:-1] for piece in add_role(role, pieces)]
    return ["The conversation so far:", *shown, "Now answer this:", *parts[-1][1]]


def add_role(role: str, pieces: list[str | ImagePart]) -> list[str | ImagePart]:
    first = pieces[0] if pieces else ""
    if isinstance(first, str):
        return [f"{role}: {first}", *pieces[1:]]
    return [f"{role}:", *pieces]


def join_pieces(pieces: list[str | ImagePart]) -> PromptBody:
    """Join pieces into one text or, with images, a list of parts."""
    joined: list[TextPart | ImagePart] = []
    for piece in pieces:
        if isinstance(piece, ImagePart):
            joined.append(piece)
        elif joined and isinstance(joined[-1], TextPart):
            joined[-1] = TextPart(f"{joined[-1].text}\n\n{piece}")
        else:
            joined.append(TextPart(piece))
    if len(joined) == 1 and isinstance(joined[0], TextPart):
        return joined[0].text
    return joined


def get_role(message: dict[str, Any], field: str) -> str:
    role = message.get("role")
    if role not in _ROLES or message.get("type", "message") != "message":
        shown = quote_value(message.get("type", role) if role in _ROLES else role)
        raise make_wrong_request(f"a message has the role or type {shown}", field)
    return role


def list_parts(message: dict[str, Any], field: str) -> list[str | ImagePart]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise make_wrong_request("a message has no content", field)
    pieces: list[str | ImagePart] = []
    for part in cast("list[Any]", content):
        fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        text = fields.get("text")
        if fields.get("type") in _IMAGE_PARTS:
            pieces.append(parse_image_part(fields, field))
        elif fields.get("type") in _TEXT_PARTS and isinstance(text, str):
            pieces.append(text)
        else:
            raise make_wrong_request("a message has a part that is no text and no image", field)
    return pieces


def parse_image_part(fields: dict[str, Any], field: str) -> ImagePart:
    source = fields.get("image_url")
    url = cast("dict[str, Any]", source).get("url") if isinstance(source, dict) else source
    start, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not (comma and start.startswith("data:") and start.endswith(";base64")):
        raise make_wrong_request(
            "an image is no data URL. Send it as data:image/png;base64,...: the server fetches no "
            "addresses",
            field,
        )
    try:
        return ImagePart(b64decode(data, validate=True))
    except ValueError:
        raise make_wrong_request("an image is not in base64", field) from None


def find_schema(form: object) -> dict[str, Any] | None:
    """Find a format's JSON Schema, None for text."""
    if form is None:
        return None
    fields = cast("dict[str, Any]", form) if isinstance(form, dict) else {}
    kind = fields.get("type")
    if kind == "text":
        return None
    inner = fields.get("json_schema", fields)
    schema = cast("dict[str, Any]", inner).get("schema") if isinstance(inner, dict) else None
    if kind != "json_schema" or not isinstance(schema, dict):
        shown = quote_value(kind)
        raise make_wrong_request(
            f"the format of the answer is {shown}; use json_schema with a schema", "response_format"
        )
    return cast("dict[str, Any]", schema)
