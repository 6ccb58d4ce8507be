"""Patterns that the source builds when it runs: where, and what it builds for typical values.

`patterns.list_patterns` finds the places; a place that is missing here fails the test.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Any

from mudroom._adapters import output_filters
from mudroom._adapters.agent_files.prompt_template import PromptTemplate, _Filler
from mudroom._adapters.integrations.hook_programs.events import _translate
from mudroom._adapters.models import model_facts
from mudroom._adapters.models.openai.responses import _CALL_ID
from mudroom._adapters.models.refusals import overflow
from mudroom._adapters.workspaces._listing import _compile_patterns
from mudroom._cli.output import markdown
from mudroom._projections import cache_use
from mudroom.permissions import program_table
from mudroom_offline import catalog, requests, technologies

from .patterns import read_source

NAMES = ("a", "under_score", "a.b", "$", "-", "总结", "a" * 40)
"""Names and paths of users and models: each is escaped in the patterns below."""

_rows = catalog.load_rows
_outline = catalog.load_data("outline")
_rules = _rows("languages", "outline", catalog.OutlineRules)
_formats = _rows("manifests", "manifest", catalog.ManifestFormat)


def _fill(*forms: str) -> list[str]:
    return [form.replace("NAME", re.escape(name)) for form in forms for name in NAMES]


def _list_intents() -> list[Any]:
    offline = "".join(text for path, text in read_source().items() if "offline" in path.parts[-2])
    return [
        *map(catalog.load_pattern, re.findall(r'load_pattern\("(\w+)"\)', offline)),
        *(form for _, form in requests._load_forms()),
    ]


def _list_ignored() -> list[str]:
    lines = ["*", "*.log", "/build/", "**/node_modules/**", "a/**/b", "*a*b*", "[a-z]*.py", "!keep"]
    return [
        pattern
        for line in lines
        for _, pattern in _compile_patterns(line.encode())
        if isinstance(pattern, str)
    ]


BUILT: dict[tuple[str, str], Callable[[], Iterable[str | re.Pattern[str]]]] = {
    (
        "mudroom/_adapters/agent_files/prompt_template.py",
        r"f'(\\\\)?(?:\\$\\{{(?:{variables})\\}}|{_WORD}{named})'",
    ): lambda: [
        _Filler(PromptTemplate(text="", folder="", argument_names=names), "")._pattern
        for names in ((), ("name",), NAMES)
    ],
    (
        "mudroom/_adapters/agent_files/frontmatter.py",
        'f"""^[ \\\\t]*+\\\\[*+[ \\\\t]*+["\']?{re.escape(key)}\\\\b"""',
    ): lambda: _fill("""(?m)^[ \\t]*+\\[*+[ \\t]*+["']?NAME\\b"""),
    ("mudroom/_adapters/integrations/hook_programs/events.py", "_translate(text)"): lambda: [
        # What users write as a matcher may be slow: it reads the name of a tool or an agent.
        *map(_translate, ("Edit|Write", "mcp__.*", "^(?<name>Bash)$", r"Notebook\w*"))
    ],
    ("mudroom/_adapters/models/_tool_names.py", "form"): lambda: [_CALL_ID, "[a-zA-Z0-9]{9}"],
    ("mudroom/_adapters/models/model_facts.py", "row.pattern"): lambda: [
        row.pattern for row in model_facts._ROWS
    ],
    ("mudroom/_adapters/models/model_facts.py", "row.host"): lambda: [
        row.host for row in model_facts._ROWS
    ],
    ("mudroom/_adapters/models/refusals/overflow.py", "f'(?i){pattern}'"): lambda: [
        f"(?i){window.pattern}" for window in overflow._STATED_WINDOWS
    ],
    ("mudroom/_adapters/output_filters.py", "re.escape(prefix) + rest"): lambda: [
        output_filters._compile_pattern(prefix, rest)
        for _, prefixes, rest in output_filters.SECRET_PATTERNS
        for prefix in prefixes.split("|")
    ],
    (
        "mudroom/_adapters/output_filters.py",
        "f\"{first}(?<!{first}{first})(?:{'|'.join(choices)})\"",
    ): lambda: map(output_filters._compile_test, output_filters._BY_CHARACTER),
    (
        "mudroom/_adapters/output_filters.py",
        "f\"(?:{'|'.join(map(re.escape, sorted(parts)))})\\\\Z\"",
    ): lambda: [output_filters._compile_partial()],
    ("mudroom/_adapters/output_filters.py", "rest"): lambda: [
        *output_filters._compile_unfinished().values()
    ],
    ("mudroom/_adapters/output_filters.py", "ordinary"): lambda: [
        r"[a-z]+|[A-Z]+|\d+|(/[\w.+-]+)+/?|true|false"
    ],
    ("mudroom/_projections/cache_use.py", "pattern"): lambda: [
        pattern for pattern, _ in cache_use._SMALLEST_PROMPTS
    ],
    ("mudroom/_adapters/tools/grep.py", "special"): lambda: [r"[][\\.+*?()|{}^$#&~-]"],
    ("mudroom/_adapters/workspaces/_listing.py", "'|'.join(texts)"): lambda: [
        *(ignored := _list_ignored()),
        "|".join(ignored),
    ],
    ("mudroom/_cli/interactive/questions/question_lines.py", "f'({pattern})'"): lambda: [
        "(" + "|".join(map(re.escape, sorted(NAMES, key=len, reverse=True))) + ")"
    ],
    ("mudroom/_cli/output/markdown.py", "breaks"): lambda: [
        markdown.BREAKS,
        markdown._BREAKS_IN_TABLES,
    ],
    ("mudroom/_platform/patterns.py", "self._source"): lambda: (),  # each use has its place
    ("mudroom/_platform/patterns.py", "fnmatch.translate(name)"): lambda: map(
        fnmatch.translate, ("*", "a*b*c*d*e", "*.py", "[!a]*?", "*a" * 40)
    ),
    ("mudroom/_projections/engine_text.py", "f'(</[ \\\\t]*)(?={tag}\\\\b)'"): lambda: [
        f"(?i)(</[ \\t]*)(?={tag}\\b)" for tag in ("file", "message", "task-notification")
    ],
    ("mudroom/permissions/program_risk.py", "approval.operands"): lambda: [
        f"(?s){approval.operands}" for approval in program_table.APPROVALS.values()
    ],
    ("mudroom/permissions/program_risk.py", "approval.flags"): lambda: [
        approval.flags for approval in program_table.APPROVALS.values()
    ],
    ("mudroom/permissions/program_risk.py", "risky_flag"): lambda: [
        *program_table.RISKY_FLAGS.values(),
        *program_table.GIT_COMMAND_FLAGS.values(),
    ],
    ("mudroom/permissions/program_wrappers.py", "joined"): lambda: [
        r"--(kill-after|signal)=\w+",
        r"-\d+|-n-?\d+|--adjustment=-?\d+",
        r"-[ioe]\w+|--(input|output|error)=\w+",
        r"-[nPL]\d+",
    ],
    ("mudroom/permissions/program_risk.py", "writing.recursive"): lambda: [
        writing.recursive for writing in program_table.WRITING_PROGRAMS.values()
    ],
    ("mudroom/permissions/program_risk.py", "writing.flags"): lambda: [
        writing.flags for writing in program_table.WRITING_PROGRAMS.values()
    ],
    ("mudroom_offline/catalog.py", "'|'.join((f'(?:{pattern})' for pattern in patterns))"): (
        _list_intents
    ),
    **{
        ("mudroom_offline/files.py", expression): build
        for expression, build in {
            "blocks": lambda: [_outline["not_prose"]],
            "find_outline_rules(path).purpose": lambda: [row.purpose for row in _rules],
            "outline['block']": lambda: [_outline["block"]],
            "outline['paragraph']": lambda: [_outline["paragraph"]],
            "'\\\\S.*' if match else NEVER": lambda: [r"\S.*", catalog.NEVER],
            "outline['mark']": lambda: [_outline["mark"]],
            "mark": lambda: [_outline["mark"]],
            "f\"(?m){outline['mark']}\"": lambda: [f"(?m){_outline['mark']}"],
            "pattern": lambda: [name for row in _rules for name in row.names],
            "outline['noise']": lambda: [_outline["noise"]],
            "outline['attached']": lambda: [_outline["attached"]],
            "outline['preamble']": lambda: [_outline["preamble"]],
            "rule": lambda: [rule for rule, _ in _outline["notes"]],
        }.items()
    },
    ("mudroom_offline/next_step.py", "pattern.replace('NAME', plain)"): lambda: [
        pattern
        for row in _rules
        for pattern in _fill(row.definition.replace("NAME", r"NAME(?!\$)"))
    ],
    ("mudroom_offline/next_step.py", "p"): lambda: [
        pattern for row in _outline["first_lines"].values() for pattern in row[1]
    ],
    ("mudroom_offline/requests.py", "'|'.join(parts)"): lambda: [
        "|".join(catalog.load_data("intents")["form_parts"])
    ],
    (
        "mudroom_offline/requests.py",
        "f'(?<![\\\\w/])`?(?:\\\\./)?{name}(?:/`?|`?(?![\\\\w/:]|\\\\.\\\\w))'",
    ): lambda: _fill(r"(?<![\w/])`?(?:\./)?NAME(?:/`?|`?(?![\w/:]|\.\w))"),
    ("mudroom_offline/requests.py", "pattern.replace('PATH', _PATH)"): lambda: [
        pattern.replace("PATH", requests._PATH)
        for pattern in catalog.load_data("intents")["folders"]
    ],
    ("mudroom_offline/requests.py", "place"): lambda: requests._SPELLING["spaces"],
    ("mudroom_offline/requests.py", "'|'.join(map(re.escape, chinese))"): lambda: [
        requests._load_vocabulary(row["name"])[1] for row in catalog.load_data("intents")["intent"]
    ],
    (
        "mudroom_offline/requests.py",
        'f"""[`\\\\"\'“‘「]?{re.escape(names[0])}(?:\\\\(\\\\))?[`\\\\"\'”’」]?"""',
    ): lambda: _fill("[`\"'“‘「]?NAME(?:\\(\\))?[`\"'”’」]?"),
    ("mudroom_offline/requests.py", "f'`?{re.escape(path)}`?'"): lambda: _fill("`?NAME`?"),
    ("mudroom_offline/technologies.py", "rules.comment"): lambda: [row.comment for row in _formats],
    ("mudroom_offline/technologies.py", "rules.dependency"): lambda: [
        row.dependency for row in _formats
    ],
    ("mudroom_offline/technologies.py", "other"): lambda: [
        catalog.load_data("manifests")["not_runtime"]
    ],
    ("mudroom_offline/writing.py", "language['omit']"): lambda: [
        row["omit"] for row in catalog.load_data("demo")["language"]
    ],
    ("mudroom_offline/writing.py", "say('created', path='(.+?)', names='.*')"): lambda: [
        text.format(path="(.+?)", names=".*") for text in catalog.load_data("texts")["created"]
    ],
    ("mudroom_offline/technologies.py", "row.tool"): lambda: [
        row.tool for row in _rows("technologies", "technology", technologies.Technology)
    ],
}
"""Module and expression -> the patterns that it makes, or the sources of them."""
