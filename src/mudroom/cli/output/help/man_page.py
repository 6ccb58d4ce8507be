"""The manual page mudroom(1), made from the same texts as --help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click

from ...._version import __version__

_SYNOPSIS = """\
.SH NAME
mudroom \\- split a large task into small ones, each with a clean context of its own
.SH SYNOPSIS
.B mudroom
[\\fIOPTIONS\\fR] [\\fIPROMPT\\fR]
.br
.B mudroom
\\fICOMMAND\\fR ...
.SH DESCRIPTION"""

_TAIL = """\
.SH EXIT STATUS
0 done, 1 failed, 2 wrong usage, 75 try again later, 130 and 143 stopped by a signal.
.SH FILES
.TP
\\fI~/.config/mudroom/config.toml\\fR
Your settings; \\fBmudroom config\\fR shows them.
.TP
\\fI.mudroom.toml\\fR
Limits of a project; they can only be lower than yours."""


def render_man_page(root_command: click.Command, commands: Mapping[str, click.Command]) -> str:
    """Return the page as roff."""
    lines = [
        f'.TH MUDROOM 1 "" "mudroom {__version__}"',
        _SYNOPSIS,
        *_format_paragraphs(root_command.help or ""),
        ".SH OPTIONS",
        *_format_options(root_command),
        ".SH COMMANDS",
        *_format_commands(commands),
        _TAIL,
    ]
    return "\n".join(lines) + "\n"


def _format_options(command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name="mudroom")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record:
            names, help_text = record
            yield ".TP"
            yield f"\\fB{_escape(names)}\\fR"
            yield from _format_paragraphs(help_text)


def _format_commands(commands: Mapping[str, click.Command], prefix: str = "") -> Iterator[str]:
    for name, command in commands.items():
        context = click.Context(command, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context))
        yield ".TP"
        yield f"\\fB{_escape(prefix + name)}\\fR {_escape(usage)}"
        yield from _format_paragraphs(command.help or "")
        if isinstance(command, click.Group):
            yield from _format_commands(command.commands, f"{prefix}{name} ")


def _format_paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; a \\b before one keeps its line breaks."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text.strip()) if part.strip()]
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        lines = [line.strip() for line in paragraph.replace("\b", "").strip().splitlines()]
        if paragraph.lstrip().startswith("\b"):
            yield ".nf"
            yield from map(_escape, lines)
            yield ".fi"
        else:
            yield _escape(" ".join(lines))


def _escape(text: str) -> str:
    """Return the text so that roff prints it unchanged."""
    for character, replacement in (
        ("\\", "\\e"),
        ("-", "\\-"),
        ("\u2026", "..."),
        ("\u00d7", "x"),
    ):
        text = text.replace(character, replacement)
    return f"\\&{text}" if text.startswith((".", "'")) else text
