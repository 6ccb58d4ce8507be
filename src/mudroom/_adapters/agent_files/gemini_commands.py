"""Command files of the Gemini CLI: TOML with a prompt, which may run commands and name files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ..._platform.patterns import compile_later
from .diagnostics import FileDiagnostics
from .prompt_pieces import ShellText
from .shell_arguments import fill_command
from .toml_document import parse_toml

MISSING_PROMPT = "the key prompt is missing"
_ARGUMENTS = "{{args}}"
_PLACE = re.compile(re.escape(_ARGUMENTS))
_SHELL_START = "!{"
_FILE = compile_later(r"@\{([^{}\n]+)\}")


def read_gemini_command(text: str, diagnostics: FileDiagnostics) -> tuple[str, str]:
    """Return a file's prompt and description; if invalid, an empty prompt and an error."""
    entries = parse_toml(text, diagnostics)
    if entries is None:
        return "", ""
    found = entries.get("prompt")
    prompt = found.value if found else ""
    if found is None:
        diagnostics.add_error(1, MISSING_PROMPT)
    elif not isinstance(prompt, str):
        diagnostics.add_error(found.line, "the value of prompt is no text")
    elif not prompt.strip():
        diagnostics.add_error(found.line, "the prompt is empty")
    description = entries["description"].value if "description" in entries else ""
    return (
        prompt if isinstance(prompt, str) else "",
        " ".join(description.split()) if isinstance(description, str) else "",
    )


def fill_gemini_command(prompt: str, arguments: str, path: str) -> list[str | ShellText]:
    """Return a prompt with its arguments filled in, split into texts and shell commands.

    In a shell command outside quotation marks, the arguments are one word. If there is no place for
    them, the line that the user typed is added at the end.

    Arguments:
        path: of the file.
    """
    pieces: list[str | ShellText] = []
    for text, is_command in _split(prompt):
        if is_command:
            source = f"{_SHELL_START}{text}}}"
            pieces.append(fill_command(text.strip(), source, _PLACE, lambda _: arguments))
        else:
            mentions = _FILE.sub(lambda match: f"@{match[1].strip()}", text)
            pieces.append(mentions.replace(_ARGUMENTS, arguments))
    if arguments and _ARGUMENTS not in prompt:
        name = os.path.basename(path).removesuffix(".toml")
        pieces.append(f"\n\n/{name} {arguments}")
    return pieces


def list_gemini_commands(prompt: str) -> list[str]:
    """Return a prompt's shell commands as written, without arguments."""
    return [text.strip() for text, is_command in _split(prompt) if is_command]


def _split(prompt: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a prompt, and whether each is a shell command.

    A command ends at the brace that closes its first one; if none does, the rest is text.
    """
    rest = prompt
    while (start := rest.find(_SHELL_START)) >= 0:
        begin = start + len(_SHELL_START)
        depth = 1
        end = begin
        while end < len(rest) and depth:
            depth += {"{": 1, "}": -1}.get(rest[end], 0)
            end += 1
        if depth:
            break
        yield rest[:start], False
        yield rest[begin : end - 1], True
        rest = rest[end:]
    yield rest, False
