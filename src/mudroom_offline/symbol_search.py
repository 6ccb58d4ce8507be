"""Request "find": where a name is defined and used."""

from __future__ import annotations

import re

from .catalog import outline_rules, words
from .plans import CannotAnswer, Context, Plan, Request, Translator, combine, plan_call
from .project_survey import describe_problems
from .tool_output import Listing, keep_covered, parse_listing

_COMMON_WORDS = frozenset(words("common_words"))
_QUOTED = re.compile(r"[`'\"“‘「]([^`'\"”’」\s]+)[`'\"”’」]")
_WORD = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_]\w*)*")
_IDENTIFIER_LIKE = re.compile(r"_|\d|\.|::|[a-z][A-Z]|^[A-Z]\w*[a-z]")
_ROW = re.compile(r"(.+?):(\d+):(.*)")
_MOST_ROWS = 60
_SEARCH_LIMIT = 400
_MOST_NAMES = 3


def find_symbols(text: str) -> list[str]:
    """Return the names a request asks about: quoted ones, else those that look like identifiers."""
    quoted = _QUOTED.findall(text)
    if quoted:
        return list(dict.fromkeys(name.rstrip("()") for name in quoted))
    candidates = _WORD.findall(re.sub(r"[\w./-]*/[\w./-]*", " ", text))
    names = [name for name in candidates if name.lower() not in _COMMON_WORDS]
    identifiers = [name for name in names if _IDENTIFIER_LIKE.search(name)]
    return list(dict.fromkeys(identifiers or names[-1:]))


def find_symbol(request: Request, context: Context) -> Plan:
    """Search for each name and separate definitions from uses by the form of the lines."""
    context.require("grep")
    names = find_symbols(request.text)[:_MOST_NAMES]
    if not names:
        raise CannotAnswer(context.say("Which name? Put it in backticks: `name`."))
    outputs = yield [
        plan_call(
            "grep",
            pattern=_whole_word(name),
            path=request.folder,
            output_mode="content",
            head_limit=_SEARCH_LIMIT,
        )
        for name in names
    ]
    return combine(
        _describe(name, parse_listing(output), request, context.say)
        for name, output in zip(names, outputs, strict=True)
    )


def _describe(name: str, listing: Listing, request: Request, say: Translator) -> str:
    rows = keep_covered(request, listing.rows)
    matches = [match for row in rows if (match := _ROW.fullmatch(row))]
    problem = describe_problems([listing.problem], say)
    if not matches:
        return combine([say("`{name}` was not found in the files searched.", name=name), problem])
    defined = [match for match in matches if _is_definition(name, match)]
    used = [match for match in matches if match not in defined]
    if defined:
        parts = [say("`{name}` is defined in:", name=name) + "\n" + _format(defined)]
    else:
        parts = [say("No definition of `{name}` was recognised.", name=name)]
    if used:
        lead = say(
            "It is used in {at_least}{count} lines of {files} files:",
            at_least=say("at least ") if problem else "",
            count=len(used),
            files=len({match[1] for match in used}),
        )
        left = len(used) - _MOST_ROWS
        more = say("… and {left} more.", left=left) if left > 0 else ""
        parts += [f"{lead}\n{_format(used)}", more]
    else:
        parts.append(say("No other line names it."))
    return combine([*parts, problem])


def _is_definition(name: str, match: re.Match[str]) -> bool:
    pattern = outline_rules(match[1]).definition
    plain = re.escape(re.split(r"\.|::|#", name)[-1])
    return bool(pattern) and bool(re.search(pattern.replace("NAME", plain), match[3]))


def _whole_word(name: str) -> str:
    """Return a pattern for the whole word that ripgrep and Python both understand."""
    left = r"\b" if re.match(r"\w", name) else ""
    right = r"\b" if re.search(r"\w$", name) else ""
    return left + re.escape(name).replace(r"\-", "-") + right


def _format(matches: list[re.Match[str]]) -> str:
    rows: list[str] = []
    for match in matches[:_MOST_ROWS]:
        line = match[3].strip()[:120].replace("`", "'")
        rows.append(f"- `{match[1]}:{match[2]}` `{line}`")
    return "\n".join(rows)
