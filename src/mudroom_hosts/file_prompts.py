"""Prompts from files, called by a line with a slash and their name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from mudroom.errors import UsageError


class FilePrompt(Struct, frozen=True, kw_only=True):
    """A command or skill from a file. `name` has no slash; `hint` shows its arguments, if any."""

    name: str
    description: str
    hint: str = ""
    format_prompt: Callable[[str], str]  # takes the arguments; "" if the prompt is empty
    find_problem: Callable[[], str]  # why it is empty


def fill_file_prompt(line: str, prompts: Mapping[str, FilePrompt]) -> str:
    """Fill in the prompt that a line calls; return the line if it calls none."""
    prompt = find_file_prompt(line, prompts)
    if prompt is None:
        return line
    _, _, arguments = line.strip().partition(" ")
    text = prompt.format_prompt(arguments.strip())
    if not text:
        raise UsageError(f"/{prompt.name} has no prompt: {prompt.find_problem()}")
    return text


def find_file_prompt(line: str, prompts: Mapping[str, FilePrompt]) -> FilePrompt | None:
    name = line.strip().partition(" ")[0]
    return prompts.get(name.removeprefix("/")) if name.startswith("/") else None
