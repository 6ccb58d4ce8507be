"""A server's tools as it lists them, as values that can be stored."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ListedTool(Struct, frozen=True):
    """A tool of a server.

    Arguments:
        parameters: JSON Schema of the arguments, as sent by the server.
        is_read_only, is_idempotent: the server's own claims, which count only if it is trusted.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    is_read_only: bool = False
    is_idempotent: bool = False


class ListedPrompt(Struct, frozen=True):
    """A prompt of a server. `required` lists the arguments that must be given."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class ListedResource(Struct, frozen=True):
    """A resource of a server, or a template for the addresses of several."""

    uri: str
    title: str = ""
    is_template: bool = False


class Listing(Struct, frozen=True):
    """Everything a server offers: tools, instructions, prompts and resources.

    Arguments:
        server: name and version of the program, "" if it does not say.
        protocol: revision of the protocol in use.
        fault: why tools are left out, or "".
        fresh_seconds: how long the list of tools is valid; None if the server does not say.
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
    """One part of a call's result.

    Arguments:
        text: text for the model, "" for bytes.
        data: bytes of an image, audio, or embedded file.
    """

    text: str = ""
    media_type: str = ""
    data: bytes = b""


class ServerResult(Struct, frozen=True):
    """The result of a call as the server sent it."""

    content: tuple[Content, ...] = ()
    structured: Any = None
    is_error: bool = False
