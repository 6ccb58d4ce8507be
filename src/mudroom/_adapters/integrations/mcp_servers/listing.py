"""The tools of a server as it lists them, as values that can be stored."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ListedTool(Struct, frozen=True):
    """One tool of a server.

    Arguments:
        parameters: JSON Schema of the arguments, as the server sent it.
        is_read_only, is_idempotent: annotations of the server; they count only if it is trusted.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    is_read_only: bool = False
    is_idempotent: bool = False


class ListedPrompt(Struct, frozen=True):
    """One prompt of a server. `required`: those of its arguments that it needs."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class ListedResource(Struct, frozen=True):
    """One resource of a server, or a template of the addresses of several."""

    uri: str
    title: str = ""
    is_template: bool = False


class Listing(Struct, frozen=True):
    """The tools of a server, its instructions, and what users may use of it.

    Arguments:
        server: name and version of the program, "" if it does not say.
        protocol: revision of the protocol that the connection uses.
        fault: why tools are left out, or "".
        fresh_seconds: time for which the list of tools is valid; None if the server says none.
    """

    tools: tuple[ListedTool, ...] = ()
    instructions: str = ""
    server: str = ""
    protocol: str = ""
    fault: str = ""
    prompts: tuple[ListedPrompt, ...] = ()
    resources: tuple[ListedResource, ...] = ()
    fresh_seconds: float | None = None


class Content(Struct, frozen=True):
    """One part of the result of a call.

    Arguments:
        text: text for the model, "" for bytes.
        data: bytes of an image, of audio, or of an embedded file.
    """

    text: str = ""
    media_type: str = ""
    data: bytes = b""


class ServerResult(Struct, frozen=True):
    """Result of a call as the server sent it."""

    content: tuple[Content, ...] = ()
    structured: Any = None
    is_error: bool = False
