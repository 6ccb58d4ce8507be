"""Texts of commands and skills that the user calls, with arguments and shell commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from msgspec import Struct

from ..._core.json_values import JsonValue
from ..._platform.patterns import compile_later
from .diagnostics import Diagnostic, FileDiagnostics
from .frontmatter import Entry, parse_document
from .prompt_pieces import ShellText
from .safe_read import read_text

_SHELL = compile_later(r"(?<!\S)!`([^`\n]+)`|^```!\n(.*?)\n```[ \t]*$", re.MULTILINE | re.DOTALL)
_FOLDER = r"\$\{(?:CLAUDE_)?SKILL_DIR\}"
_WORD = r"\$ARGUMENTS(?:\[(\d{1,2})\])?|\$(\d)(?![\d.,]*\d)"


class PromptTemplate(Struct, frozen=True, kw_only=True):
    """The text of a command or skill, and what its frontmatter says about a call.

    Arguments:
        text: the text below the frontmatter. folder: the file's folder.
        first_number: the number of the first argument in `$N`: 1 or 0.
        appended: the form in which arguments are added at the end if there is no placeholder.
        argument_names: in order.
        allowed_tools: permission rules for what the call may do without asking.
        model: for this call, "" for the session's model.
        forks: true if a child runs the call as a task. agent: this child, "" for the default one.
        is_callable: false if only models use it.
        gemini_path: the file's path if the text follows the Gemini CLI's rules, else "".
        problem: why the text is empty. errors: problems with the file.
    """

    text: str
    folder: str
    first_number: int = 0
    appended: str = "ARGUMENTS: {}"
    description: str = ""
    argument_hint: str = ""
    argument_names: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    model: str = ""
    forks: bool = False
    agent: str = ""
    is_callable: bool = True
    gemini_path: str = ""
    problem: str = "the file is empty"
    errors: tuple[Diagnostic, ...] = ()

    def list_commands(self) -> tuple[str, ...]:
        """Return the shell commands as the file has them."""
        if self.gemini_path:
            from .gemini_commands import list_gemini_commands

            return tuple(list_gemini_commands(self.text))
        pieces = _split_shell(self.text)
        return tuple(piece.command for piece in pieces if isinstance(piece, ShellText))

    def fill(self, arguments: str = "") -> list[str | ShellText]:
        """Return the text with its arguments filled in, split into texts and shell commands.

        Arguments without a placeholder are added at the end.
        """
        if self.gemini_path:
            from .gemini_commands import fill_gemini_command

            return fill_gemini_command(self.text, arguments, self.gemini_path)
        # Split before filling, so that an argument cannot add a shell command.
        filler = _Filler(self, arguments)
        pieces = [
            filler.fill_command(piece) if isinstance(piece, ShellText) else filler.fill(piece)
            for piece in _split_shell(self.text)
        ]
        if arguments and not filler.has_placeholder:
            pieces.append("\n\n" + self.appended.format(arguments))
        return pieces


class _Filler:
    """Fills placeholders with the arguments of one call."""

    def __init__(self, template: PromptTemplate, arguments: str) -> None:
        self.has_placeholder = False
        self._template = template
        self._arguments = arguments
        from .shell_arguments import split_arguments

        self._words = split_arguments(arguments)
        names = "|".join(sorted(map(re.escape, template.argument_names), key=len, reverse=True))
        named = rf"|\$({names})(?!\w)" if names else "|(?!)()"
        # One pattern for all placeholders, so that text from an argument is not filled in again.
        self._pattern = re.compile(rf"(\\)?(?:{_FOLDER}|{_WORD}{named})")

    def fill(self, text: str) -> str:
        return self._pattern.sub(self._replace, text)

    def fill_command(self, piece: ShellText) -> ShellText:
        from .shell_arguments import fill_command

        return fill_command(
            piece.command,
            piece.source,
            self._pattern,
            self._replace,
            splits=lambda match: match[0] == "$ARGUMENTS",
        )

    def _replace(self, match: re.Match[str]) -> str:
        escaped, index, digit, name = match.groups()
        if escaped:
            return match[0][1:]
        if match[0].startswith("${"):
            return self._template.folder
        if digit and not self._words:
            return match[0]  # without arguments "$5" is an amount of money
        number = int(index) if index else None
        if digit:
            number = int(digit) - self._template.first_number
        elif name:
            number = self._template.argument_names.index(name)
        self.has_placeholder = True
        if number is None:
            return self._arguments
        return self._words[number] if 0 <= number < len(self._words) else ""


def _split_shell(text: str) -> Iterator[str | ShellText]:
    end = 0
    for match in _SHELL.finditer(text):
        yield text[end : match.start()]
        yield ShellText(match[1] or match[2], match[0])
        end = match.end()
    yield text[end:]


_cache: dict[str, tuple[tuple[int, int, int], PromptTemplate]] = {}
_MAX_CACHED = 2_000


def load_template(path: str, boundary: str, *, is_command: bool) -> PromptTemplate:
    """Return a file's template, whose text is empty if the file cannot be read.

    A file that has not changed is not read again.

    Arguments:
        boundary: see `safe_read.read_text`.
        is_command: true for a command file, false for a skill.
    """
    try:
        state = os.stat(path)
    except OSError:
        return PromptTemplate(text="", folder="", problem="the file is missing")
    key = (state.st_mtime_ns, state.st_size, state.st_ino)
    known = _cache.get(path)
    if known and known[0] == key:
        return known[1]
    template = _read_template(path, boundary, is_command=is_command)
    if len(_cache) >= _MAX_CACHED:
        _cache.clear()
    _cache[path] = (key, template)
    return template


def _read_template(path: str, boundary: str, *, is_command: bool) -> PromptTemplate:
    diagnostics = FileDiagnostics(path)
    folder = os.path.dirname(path)
    text = read_text(path, boundary, diagnostics)
    if text is None:
        errors = tuple(diagnostics.items)
        return PromptTemplate(text="", folder=folder, problem=errors[0].text, errors=errors)
    if path.endswith(".toml"):
        return _read_gemini_template(text, folder, diagnostics)
    document = parse_document(text, diagnostics)
    entries = document.entries if document else {}
    body = document.body if document else text
    names = _read_words(entries, "arguments")
    # Command files count from 1, as they did before skills; `$0` shows that a file counts from 0.
    counts_from_zero = not is_command or names or re.search(r"\$0(?!\d)", body)
    first_line = body.strip().partition("\n")[0].strip("# ")
    return PromptTemplate(
        text=body,
        folder=folder,
        first_number=0 if counts_from_zero else 1,
        appended="{}" if is_command else "ARGUMENTS: {}",
        description=_read_text(entries, "description") or first_line,
        argument_hint=_read_text(entries, "argument-hint"),
        argument_names=names,
        allowed_tools=_read_rules(entries),
        model=_read_text(entries, "model"),
        forks=_read_text(entries, "context") == "fork",
        agent=_read_text(entries, "agent"),
        is_callable=_get(entries, "user-invocable") is not False,
        errors=tuple(diagnostics.items),
    )


def _read_gemini_template(text: str, folder: str, diagnostics: FileDiagnostics) -> PromptTemplate:
    from .gemini_commands import MISSING_PROMPT, read_gemini_command

    prompt, description = read_gemini_command(text, diagnostics)
    errors = tuple(diagnostics.items)
    problem = ""
    if errors:
        error = errors[0]
        is_of_file = error.text == MISSING_PROMPT
        problem = error.text if is_of_file else f"line {error.line}: {error.text}"
    return PromptTemplate(
        text=prompt,
        folder=folder,
        description=description or prompt.strip().partition("\n")[0],
        gemini_path=diagnostics.path,
        problem=problem,
        errors=errors,
    )


def _get(entries: dict[str, Entry], key: str) -> JsonValue:
    entry = entries.get(key)
    return entry.value if entry else None


def _read_text(entries: dict[str, Entry], key: str) -> str:
    value = _get(entries, key)
    if isinstance(value, list):  # such as `argument-hint: [name]`, which YAML reads as a list
        return f"[{', '.join(map(str, value))}]"
    return " ".join(value.split()) if isinstance(value, str) else ""


def _read_words(entries: dict[str, Entry], key: str) -> tuple[str, ...]:
    value = _get(entries, key)
    words = value.split() if isinstance(value, str) else value
    items = words if isinstance(words, list) else []
    return tuple(item for item in items if isinstance(item, str) and item.isidentifier())


def _read_rules(entries: dict[str, Entry]) -> tuple[str, ...]:
    value = _get(entries, "allowed-tools")
    items = value if isinstance(value, list) else [value]
    return tuple(item for item in items if isinstance(item, str) and item.strip())
