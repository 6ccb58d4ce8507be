"""Checks of what clients send, before a prompt waits for its turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._engine.structured_output import parse_output_type
from .._session.prompts import Prompt, parse_prompt


def check_prompt(prompt: Prompt) -> None:
    """Raise UsageError for a prompt that no run can take: empty, or with an image it cannot read.

    A server that queues prompts refuses it at once, instead of when its turn comes.

    Example:
        try:
            check_prompt([TextBlock("What is this?"), ImageBlock("", b"no image")])
        except UsageError as error:
            print(error.message)
    """
    parse_prompt(prompt)


def check_outputs(outputs: type[Any] | Mapping[str, Any]) -> None:
    """Raise UsageError for outputs that no run can emit, such as a schema that is none.

    Example:
        check_outputs({"author": "name of the author", "year": {"type": "integer"}})
    """
    parse_output_type(outputs)
