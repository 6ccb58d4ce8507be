"""Bodies of OpenAI's API: messages become one prompt, formats of answers become outputs."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from ....errors import quote_value
from ..bodies import NewSession, Text, check_prompt, parse_body
from ..errors import make_wrong_request

_ROLES = ("system", "developer", "user", "assistant")
_TEXT_PARTS = ("text", "input_text", "output_text")
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
    """A request, as the server runs it.

    Arguments:
        outputs: JSON Schema of the answer, None for a text.
        unused: names of fields that have no effect.
    """

    agent: str
    prompt: str
    outputs: dict[str, Any] | None
    unused: tuple[str, ...]

    def make_session(self) -> NewSession:
        """Return the session whose first prompt it is."""
        return NewSession(agent=self.agent, prompt=self.prompt, outputs=self.outputs)


def parse_chat(data: bytes) -> tuple[ChatRequest, Wanted]:
    """Return a request for /v1/chat/completions. Raises RequestError."""
    request = parse_body(ChatRequest, data)
    unused = list_unused(data, ChatRequest)
    prompt = join_messages(request.messages, "messages")
    return request, make_wanted(request.model, prompt, request.response_format, unused)


def parse_response(data: bytes) -> tuple[ResponseRequest, Wanted]:
    """Return a request for /v1/responses. Raises RequestError."""
    request = parse_body(ResponseRequest, data)
    unused = list_unused(data, ResponseRequest)
    text = request.input
    prompt = text if isinstance(text, str) else join_messages(text, "input")
    if request.instructions:
        prompt = f"{request.instructions}\n\n{prompt}"
    form = (request.text or {}).get("format")
    return request, make_wanted(request.model, prompt, form, unused)


def make_wanted(agent: str, prompt: str, form: object, unused: tuple[str, ...]) -> Wanted:
    """Return a request, checked. Raises RequestError."""
    outputs = find_schema(form)
    check_prompt(prompt, outputs)
    return Wanted(agent=agent, prompt=prompt, outputs=outputs, unused=unused)


def list_unused(data: bytes, kind: type[Struct]) -> tuple[str, ...]:
    """Return the names of fields that have no effect. Raises RequestError for some."""
    fields: dict[str, Any] = msgspec.json.decode(data)
    for name, remedy in _REFUSED.items():
        if fields.get(name):
            raise make_wrong_request(f"{name} cannot be used. {remedy}", name)
    known = {*kind.__struct_fields__, *_REFUSED}
    return tuple(sorted(name for name in fields if name not in known and name.isprintable()))


def join_messages(messages: list[dict[str, Any]], field: str) -> str:
    """Return messages as one prompt. Raises RequestError.

    A single message is the prompt itself. In a longer conversation, each has its role before it.
    """
    texts = [(get_role(message, field), join_parts(message, field)) for message in messages]
    if not any(role == "user" for role, _ in texts):
        raise make_wrong_request("there is no message of the user", field)
    if not any(role == "assistant" for role, _ in texts):
        return "\n\n".join(text for _, text in texts)
    shown = [f"{role}: {text}" for role, text in texts[:-1]]
    return "\n\n".join(["The conversation so far:", *shown, "Now answer this:", texts[-1][1]])


def get_role(message: dict[str, Any], field: str) -> str:
    """Return the role of a message. Raises RequestError."""
    role = message.get("role")
    if role not in _ROLES or message.get("type", "message") != "message":
        shown = quote_value(message.get("type", role) if role in _ROLES else role)
        raise make_wrong_request(f"a message has the role or type {shown}", field)
    return role


def join_parts(message: dict[str, Any], field: str) -> str:
    """Return the text of a message. Raises RequestError."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise make_wrong_request("a message has no content", field)
    texts: list[str] = []
    for part in cast("list[Any]", content):
        fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        text = fields.get("text")
        if fields.get("type") not in _TEXT_PARTS or not isinstance(text, str):
            raise make_wrong_request("a message has a part that is no text", field)
        texts.append(text)
    return "\n\n".join(texts)


def find_schema(form: object) -> dict[str, Any] | None:
    """Return the JSON Schema of a format, None for a text. Raises RequestError."""
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
