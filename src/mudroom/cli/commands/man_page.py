"""The manual page, from the same words as --help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click

from ..._version import __version__


def render_man_page(front: click.Command, commands: Mapping[str, click.Command]) -> str:
    """mudroom(1) as roff."""
    return (
        "\n".join([*_head(front), *_options(front), ".SH COMMANDS", *_commands(commands), *_tail()])
        + "\n"
    )


def _head(front: click.Command) -> Iterator[str]:
    yield f'.TH MUDROOM 1 "" "mudroom {__version__}"'
    yield from (
        ".SH NAME",
        "mudroom \\- cut a big task into small ones, each in a clean context of its own",
    )
    yield from (
        ".SH SYNOPSIS",
        ".B mudroom",
        "[\\fIOPTIONS\\fR] [\\fIPROMPT\\fR]",
        ".br",
        ".B mudroom",
        "\\fICOMMAND\\fR ...",
    )
    yield from (".SH DESCRIPTION", *_text(front.help or ""))
    yield ".SH OPTIONS"


def _options(command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name="mudroom")
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
            names, about = record
            yield from (".TP", f"\\fB{_safe(names)}\\fR", *_text(about))


def _commands(commands: Mapping[str, click.Command], above: str = "") -> Iterator[str]:
    for name, command in commands.items():
        words = " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
        yield from (
            ".TP",
            f"\\fB{_safe(f'{above}{name}')}\\fR {_safe(words)}",
            *_text(command.help or ""),
        )
        if isinstance(command, click.Group):
            yield from _commands(command.commands, f"{above}{name} ")


def _tail() -> Iterator[str]:
    yield from (
        ".SH EXIT STATUS",
        "0 done, 1 failed, 2 wrong usage, 75 try again later, 130 and 143 stopped by a signal.",
    )
    yield from (
        ".SH FILES",
        ".TP",
        "\\fI~/.config/mudroom/config.toml\\fR",
        "Your settings; \\fBmudroom config\\fR shows them.",
    )
    yield from (".TP", "\\fI.mudroom.toml\\fR", "Narrower limits of a project.")


def _text(words: str) -> Iterator[str]:
    """Paragraphs; a \\b before one keeps its lines as they are."""
    for n, paragraph in enumerate(filter(str.strip, re.split(r"\n\s*\n", words.strip()))):
        kept = paragraph.lstrip().startswith("\b")
        lines = [line.strip() for line in paragraph.replace("\b", "").strip().splitlines()]
        yield from [".PP"] * bool(n)
        yield from ([".nf", *map(_safe, lines), ".fi"] if kept else [_safe(" ".join(lines))])


def _safe(text: str) -> str:
    """Text that roff reads as text."""
    text = (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("\u2026", "...")
        .replace("\u00d7", "x")
    )
    return f"\\&{text}" if text.startswith((".", "'")) else text
