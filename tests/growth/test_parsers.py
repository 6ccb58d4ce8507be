"""Hand-written parsers read hostile text in time that grows with its length."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from mudroom import AssistantMessage, TextBlock
from mudroom._adapters.agent_files.frontmatter import parse_document
from mudroom._adapters.agent_files.safe_read import FileDiagnostics
from mudroom._adapters.models._written_calls import find_written_call
from mudroom._adapters.output_filters import Redactor, mark_injection, mark_page
from mudroom._adapters.tools._glob_patterns import compile_glob, list_names, unescape
from mudroom._adapters.tools._terminal_text import TerminalText
from mudroom._adapters.tools.text.edits import find_replacements, fold_look_alikes, read_numbers
from mudroom._adapters.tools.text.file_text import decode_file
from mudroom._adapters.workspaces._listing import compile_pattern
from mudroom._cli.actions.prompts import (
    find_mentions,
    list_image_paths,
    remove_attachments,
)
from mudroom._cli.output.markdown import render_markdown
from mudroom._cli.output.text import wrap, wrap_indented
from mudroom._core.schemas import find_json, read_leniently
from mudroom._platform.paths import read_path_argument
from mudroom._projections.engine_text import quote, unquote
from mudroom._projections.safe_text import escape_hidden, sanitize, sanitize_line
from mudroom.permissions.program_wrappers import extract_texts
from mudroom.permissions.rules import matches_pattern
from mudroom.permissions.shell_parser import MAX_PARSED, parse_command
from mudroom.permissions.shell_words import has_expansion, parse_word

from ..long_form import count_examples
from .hostile_text import UNITS, find_quadratic_growth, repeat

pytestmark = pytest.mark.timeout(count_examples(120, 1_800))

LONGEST = count_examples(4_096, 1_048_576)


def show_in_terminal(text: str) -> None:
    terminal = TerminalText()
    terminal.feed(text.encode("utf-8", "surrogatepass"))
    terminal.flush()


def edit(text: str) -> None:
    try:
        file = decode_file(text.encode())
        find_replacements(file, f"{text[: len(text) // 2]}y", "z", replace_all=False)
    except ValueError:
        return


def read_front_matter(text: str) -> None:
    with suppress(ValueError):
        parse_document(f"---\n{text}\n---\n", FileDiagnostics("a.md"))


def read_path(text: str) -> None:
    try:
        read_path_argument(text, lambda path: False)
    except ValueError:
        return


PARSERS: dict[str, Callable[[str], object]] = {
    "argument path": read_path,
    "calls as text": lambda text: find_written_call(
        AssistantMessage((TextBlock(text),)), {"read", "bash"}
    ),
    "edit": edit,
    "forms of the engine": lambda text: unquote(quote(text)),
    "front matter": read_front_matter,
    "glob": lambda text: (list_names(text), unescape(text), compile_glob(text)("a/b.txt")),
    "ignore pattern": compile_pattern,
    "image paths": lambda text: (list(list_image_paths(text)), remove_attachments(text)),
    "injection": lambda text: (mark_injection(text), mark_page(text)),
    "JSON in text": find_json,
    "line numbers": read_numbers,
    "look-alikes": fold_look_alikes,
    "markdown": lambda text: render_markdown(text, columns=80, color=True),
    "mentions": find_mentions,
    "number as text": lambda text: read_leniently({"type": "number"}, text),
    "rule for commands": lambda text: [
        matches_pattern(pattern, text)
        for pattern in ("*a*b*c", f"*{text[:3]}*{text[:3]}*~", "x:*x:*x *", f"{text[:2]}:* *~")
    ],
    "safe text": lambda text: (sanitize(text), sanitize_line(text), escape_hidden(text)),
    "secrets": Redactor({"API_KEY": "sk-0123456789abcdef"}),
    "terminal": show_in_terminal,
    "wrapped text": lambda text: [
        (list(wrap_indented(line, 80)), list(wrap(line, 80, keeps_words=True)))
        for line in (*text.split("\n"), f"  1. {text}".replace("\n", ""))
    ],
    "word of a command": lambda text: (has_expansion(text), parse_word(text, "word")),
}


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.filterwarnings("ignore")
def test_every_parser_takes_linear_time(name: str) -> None:
    def read(text: Any) -> None:
        try:
            PARSERS[name](text)
        except (ValueError, RecursionError):
            return

    problems = [
        f"{unit!r}: {problem}"
        for unit in UNITS
        if (problem := find_quadratic_growth(read, lambda n, unit=unit: repeat(unit, n), LONGEST))
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("length", sorted({4_096, MAX_PARSED, LONGEST}))
def test_every_command_is_parsed_in_bounded_time(length: int) -> None:
    """The grammar is quadratic for some commands, such as many "<"; a limit bounds its time."""
    slow: dict[str, float] = {}
    for unit in UNITS:
        start = time.thread_time()
        script = parse_command.__wrapped__(f"env {repeat(unit, length)}")
        for command in script.commands:
            list(extract_texts(command))
        slow[unit] = time.thread_time() - start
    assert max(slow.values()) < 5, slow
