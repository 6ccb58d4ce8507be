"""Request "find": where a name is defined and used."""

from __future__ import annotations

import re

from .catalog import outline_rules
from .plans import CannotAnswer, Context, Plan, Request, Translator, combine, plan_call
from .requests import find_symbols
from .tool_output import describe_problems, explain_nothing, parse_listing

_ROW = re.compile(r"(.+?):(\d+):(.*)")
_COMMENT = re.compile(r"\s*(?:#(?!\s*define)|//|/?\*|--|;|%|>>>|\.\.\.)")
_MOST_ROWS = 60
_SEARCH_LIMIT = 2_000


def find_symbol(request: Request, context: Context) -> Plan:
    """Search for the name and separate definitions from uses by the form of the lines."""
    context.require("grep")
    say = context.say
    names = find_symbols(request.text)
    if len(names) != 1:
        raise CannotAnswer(say("which_name"))
    name = names[0]
    call = plan_call(
        "grep",
        pattern=_whole_word(name),
        path=request.folder,
        output_mode="content",
        head_limit=_SEARCH_LIMIT,
    )
    output = (yield [call])[0]
    if output.error:
        raise CannotAnswer(output.text)
    listing = parse_listing(output)
    matches = [match for row in listing.rows if (match := _ROW.fullmatch(row))]
    if not matches:
        return explain_nothing(say("name_not_seen", name=name), [listing.problem], say)
    matches.sort(key=lambda match: not outline_rules(match[1]).is_source)
    defined = [match for match in matches if _is_definition(name, match)]
    used = [match for match in matches if match not in defined]
    problem = describe_problems([listing.problem], say)
    parts = [say("no_definition", name=name)]
    if defined:
        parts = [say("defined_in", name=name) + "\n" + _format(defined, say)]
    if used:
        files = say.count(len({match[1] for match in used}), "file")
        at_least = say("at_least") if problem else ""
        count = say.count(len(used), "line")
        lead = say("appears_in", at_least=at_least, count=count, files=files)
        parts.append(f"{lead}\n{_format(used, say)}")
    elif not problem:
        parts.append(say("no_other_line"))
    return combine([*parts, problem])


def _is_definition(name: str, match: re.Match[str]) -> bool:
    pattern = outline_rules(match[1]).definition
    plain = re.escape(re.split(r"\.|::|#", name)[-1])
    is_comment = _COMMENT.match(match[3])
    return bool(pattern and not is_comment and re.search(pattern.replace("NAME", plain), match[3]))


def _whole_word(name: str) -> str:
    """Return a pattern for the whole word that ripgrep and Python both understand."""
    left = r"\b" if re.match(r"\w", name) else ""
    right = r"\b" if re.search(r"\w$", name) else ""
    return left + re.escape(name).replace(r"\-", "-") + right


def _format(matches: list[re.Match[str]], say: Translator) -> str:
    rows: list[str] = []
    for match in matches[:_MOST_ROWS]:
        line = match[3].strip()[:120].replace("`", "'")
        rows.append(f"- `{match[1]}:{match[2]}` `{line}`")
    left = len(matches) - _MOST_ROWS
    return "\n".join([*rows, say("more", left=left)] if left > 0 else rows)
