"""Texts of commands and skills called by the user, with arguments and shell commands.

Arguments reach shell commands as data, never as syntax. Commands of the Gemini CLI are TOML.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ..._core.json_values import JsonValue
from ..._platform.patterns import compile_later
from .frontmatter import Entry, parse_document, parse_toml
from .safe_read import Diagnostic, FileDiagnostics, read_text

_SHELL = compile_later(r"(?<!\S)!`([^`\n]+)`|^```!\n(.*?)\n```[ \t]*$", re.MULTILINE | re.DOTALL)
_WORD = r"\$ARGUMENTS(?:\[(\d{1,2})\])?|\$(\d)(?![\d.,]*\d)"


class PromptTemplate(Struct, frozen=True, kw_only=True):
    """The text of a command or skill, with its frontmatter's settings for a call.

    Arguments:
        first_number: the number of the first argument in `$N`: 1 or 0.
        appended: the form for adding arguments at the end if there is no placeholder.
        variables: see `Location`.
        allowed_tools: permission rules for what the call may do without asking.
        model: for this call, "" for the session's model.
        forks: a child runs the call as a task: `agent`, "" for the default one.
        is_callable: false if only models use it.
        gemini_path: the file's path if the text follows the Gemini CLI's rules, else "".
        problem: why the text is empty.
    """

    text: str
    folder: str
    first_number: int = 0
    appended: str = "ARGUMENTS: {}"
    description: str = ""
    argument_hint: str = ""
    argument_names: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    model: str = ""
    forks: bool = False
    agent: str = ""
    is_callable: bool = True
    gemini_path: str = ""
    problem: str = "the file is empty"
    errors: tuple[Diagnostic, ...] = ()

    def list_commands(self) -> tuple[str, ...]:
        if self.gemini_path:
            return tuple(text.strip() for text, is_command in _split(self.text) if is_command)
        pieces = _split_shell(self.text)
        return tuple(piece.command for piece in pieces if isinstance(piece, ShellText))

    def fill(self, arguments: str = "") -> list[str | ShellText]:
        """Fill in the arguments, or add them at the end; return texts and shell commands."""
        if self.gemini_path:
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
    def __init__(self, template: PromptTemplate, arguments: str) -> None:
        self.has_placeholder = False
        self._template = template
        self._arguments = arguments
        self._words = split_arguments(arguments)
        self._variables = list_variables(template.folder, template.variables)
        names = "|".join(sorted(map(re.escape, template.argument_names), key=len, reverse=True))
        named = rf"|\$({names})(?!\w)" if names else "|(?!)()"
        variables = "|".join(map(re.escape, self._variables))
        # One pattern for all placeholders, so that an argument's text is not filled in again.
        self._pattern = re.compile(rf"(\\)?(?:\$\{{(?:{variables})\}}|{_WORD}{named})")

    def fill(self, text: str) -> str:
        return self._pattern.sub(self._replace, text)

    def fill_command(self, piece: ShellText) -> ShellText:
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
            return self._variables[match[0][2:-1]]
        if digit and not self._words:
            return match[0]  # without arguments, "$5" is an amount of money
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


def list_variables(folder: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the values for `${NAME}` in the text of a file, by name."""
    return {"SKILL_DIR": folder, "CLAUDE_SKILL_DIR": folder, **variables}


def fill_variables(text: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def load_template(
    path: str, boundary: str, variables: Mapping[str, str] | None = None, *, is_command: bool
) -> PromptTemplate:
    """Load a file's template, cached if unchanged; its text is empty if unreadable."""
    try:
        state = os.stat(path)
    except OSError:
        return PromptTemplate(text="", folder="", problem="the file is missing")
    key = (state.st_mtime_ns, state.st_size, state.st_ino)
    known = _cache.get(path)
    if not known or known[0] != key:
        if len(_cache) >= _MAX_CACHED:
            _cache.clear()
        known = (key, _read_template(path, boundary, is_command=is_command))
        _cache[path] = known
    template = known[1]
    if not variables:
        return template
    rules = tuple(fill_variables(rule, variables) for rule in template.allowed_tools)
    return replace(template, variables=variables, allowed_tools=rules)


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
    # Command files count from 1, as before there were skills; `$0` shows a file counting from 0.
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


class ShellText(Struct, frozen=True):
    """A shell command in a text; its output replaces `source`."""

    command: str
    source: str
    problem: str = ""  # why the command must not run


# Characters without special meaning anywhere in a shell command.
_PLAIN = compile_later(r"[A-Za-z0-9_@%+=:,./ -]*")
_COMMENT_AFTER = " \t\n;&|("
_UNSAFE = (
    "the arguments have characters that a shell interprets, and the command has a place for them in"
    " a comment, a here-document or a command inside the command"
)


def fill_command(
    command: str,
    source: str,
    pattern: re.Pattern[str],
    find_value: Callable[[re.Match[str]], str],
    *,
    splits: Callable[[re.Match[str]], bool] = lambda _: False,
) -> ShellText:
    """Replace a shell command's placeholders with values.

    Each value is quoted for its place: outside quotation marks, or inside either kind. Where that
    is unclear, only values without special characters are allowed.

    Arguments:
        source: the command as in the file.
        splits: whether a value outside quotation marks is several words.
    """
    import shlex  # for the rare call with a shell command

    problem = ""
    filled = ""
    end = 0
    for match in pattern.finditer(command):
        filled += command[end : match.start()]
        end = match.end()
        value = find_value(match)
        place = _find_place(command[: match.start()])
        if value == match[0]:  # not filled in, such as awk's `$1`
            filled += value
        elif place is None:
            problem = problem or ("" if _PLAIN.fullmatch(value) else _UNSAFE)
            filled += value
        elif place == "'":
            filled += value.replace("'", "'\\''")
        elif place == '"':
            filled += re.sub(r'([\\"$`])', r"\\\1", value)
        elif value:
            words = split_arguments(value) if splits(match) else [value]
            filled += " ".join(map(shlex.quote, words))
    return ShellText(filled + command[end:], source, problem)


def _find_place(before: str) -> str | None:
    """Find the quotation mark still open at the end of the text; "" for none.

    None if the text contains something whose end is hard to find, such as `$(`.
    """
    quote = ""
    position = 0
    while position < len(before):
        letter = before[position]
        following = before[position : position + 2]
        if quote != "'" and (letter == "`" or following in ("$(", "<<", "<(", ">(", "$'")):
            return None
        if not quote and letter == "#" and before[position - 1 : position] in ("", *_COMMENT_AFTER):
            return None
        if letter == "\\" and quote != "'":
            position += 1
        elif letter == quote:
            quote = ""
        elif letter in "'\"" and not quote:
            quote = letter
        position += 1
    # After a single backslash, the value's first letter would lose its own quotation mark.
    return None if position > len(before) else quote


def split_arguments(text: str) -> list[str]:
    """Split arguments as a shell does; at blanks if a quotation mark is never closed."""
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


MISSING_PROMPT = "the key prompt is missing"
_ARGUMENTS = "{{args}}"
_PLACE = compile_later(re.escape(_ARGUMENTS))
_SHELL_START = "!{"
_FILE = compile_later(r"@\{([^{}\n]+)\}")


def read_gemini_command(text: str, diagnostics: FileDiagnostics) -> tuple[str, str]:
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
    """Fill in a prompt's arguments; return its texts and shell commands.

    In a shell command, outside quotation marks, the arguments are one word. If there is no place
    for them, the line the user typed is added at the end.
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


def _split(prompt: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a prompt, and whether each is a shell command.

    A command ends at the brace that closes its first; if none does, the rest is text.
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
