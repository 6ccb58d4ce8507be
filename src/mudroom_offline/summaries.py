"""Intent: read the files that match a pattern and say what each one does."""

from __future__ import annotations

import re
from collections.abc import Generator

from .gist import describe
from .languages import SOURCE
from .places import exclusions, listed, scopes
from .plan import Ask, Beyond, Cut, Means, Outcome, Plan, Request, Tongue
from .reading import File, listing, own, read_all, rows_of, table

_PAIRS = (
    "python:py markdown:md javascript:js typescript:ts golang:go go:go rust:rs java:java kotlin:kt ruby:rb php:php c#:cs elixir:ex "
    "shell:sh c++:cpp c:c swift:swift dart:dart yaml:yml json:json toml:toml html:html css:css sql:sql scala:scala lua:lua perl:pl "
    "haskell:hs"
)
_WORDS = {word: suffix for word, _, suffix in (pair.partition(":") for pair in _PAIRS.split())}
_LANGUAGE = re.compile(
    r"(?<![\w./-])(python|markdown|javascript|typescript|golang|rust|java|kotlin|ruby|php|c#|elixir|shell|swift|dart|yaml|json|toml|html|css"
    r"|sql|scala|lua|perl|haskell|c\+\+|go(?= (?:source )?(?:files?|code|packages?))|c(?= (?:source )?files?))(?![\w/-])",
    re.I | re.A,
)


def head(say: Tongue) -> tuple[str, ...]:
    """Column names of a summary table."""
    return (say("File", "文件"), say("Summary", "摘要"))


def summarise(request: Request, means: Means) -> Plan:
    """Read the files asked for, and tell in a table what each one does."""
    if lacking := means.without("read", "glob"):
        return lacking
    return (yield from tell(request, (yield from wanted(request)), means))


def tell(request: Request, files: list[str], means: Means) -> Plan:
    """The same for files already listed."""
    if not files:
        return nothing(request, means.say)
    read = yield from _read_while_allowed(files)
    rows = [(f"`{path}`", describe(file, means.say)) for path, file in read.items()]
    missed = len(files) - len(rows)
    note = (
        means.say(
            f"\n\nNot read, the run was stopped before: {missed} files.",
            f"\n\n运行被提前中止,未读取 {missed} 个文件。",
        )
        if missed
        else ""
    )
    return lead(request, len(files), means.say) + "\n\n" + table(head(means.say), rows) + note


def wanted(request: Request) -> Generator[list[Ask], list[Outcome], list[str]]:
    """The files a request names: a list, single paths, or all that match its patterns."""
    if names := listed(request.text):
        return names
    found: list[str] = []
    places, without = scopes(request.text), exclusions(request.text)
    for pattern in patterns(request.text):
        for place in [""] if "/" in pattern.removeprefix("**/") else places or [""]:
            found += yield from listing(pattern, place)
    if not found and (single := _single(request.text)):
        return single
    everything = len(patterns(request.text)) == len(SOURCE)
    return [
        f
        for f in dict.fromkeys(found)
        if not f.startswith(tuple(without)) and (own(f) or not everything)
    ]


def patterns(text: str) -> list[str]:
    """The globs a request asks for; all source files when it names none."""
    globs = re.findall(
        r"(?<![\w*])(?:[\w.@-]+/)*(?:\*\*/)?(?:[\w.-]*/)*[\w.-]*\*[\w.*/{},-]*", text
    )
    if globs:
        return [g if "/" in g else f"**/{g}" for g in (x.strip("*") and x for x in globs) if g]
    suffixes = re.findall(r"(?<![\w/])\.([A-Za-z]\w{0,7})\b", text)
    suffixes += [_WORDS[word.lower()] for word in _LANGUAGE.findall(text)]
    if suffixes:
        return [f"**/*.{suffix}" for suffix in dict.fromkeys(suffixes)]
    return [] if _single(text) else [f"**/*.{suffix}" for suffix in SOURCE]


def _single(text: str) -> list[str]:
    names = re.findall(r"(?<![\w*/.-])((?:[\w@.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9})\b(?!/)", text)
    return list(dict.fromkeys(names))


def _read_while_allowed(files: list[str]) -> Generator[list[Ask], list[Outcome], dict[str, File]]:
    """Read them in batches; when the run is cut short, what was read until then."""
    read: dict[str, File] = {}
    for start in range(0, len(files), 20):
        try:
            read |= yield from read_all(files[start : start + 20])
        except Cut:
            break
    return read


def lead(request: Request, count: int, say: Tongue) -> str:
    """The opening sentence of a summary."""
    if listed(request.text):
        return say(f"Summary of {count} files:", f"{count} 个文件的摘要:")
    kinds = say.join([f"`{p.removeprefix('**/')}`" for p in patterns(request.text)][:3])
    named = kinds if 0 < len(patterns(request.text)) < 4 else say("source", "源代码")
    english = f"all {count} {named} files" if count > 1 else f"the one {named} file"
    return say(f"Here is a summary of {english}:", f"以下是全部 {count} 个 {named} 文件的摘要:")


def nothing(request: Request, say: Tongue) -> str:
    """Words for a pattern that no file matches."""
    kinds = say.join([f"`{p}`" for p in patterns(request.text)[:3]])
    return say(f"No file matches {kinds}.", f"没有文件匹配 {kinds}。")


def merged(reports: list[str], request: Request, say: Tongue) -> str:
    """The reports of several children as one summary, a heading a folder."""
    rows = {row[0].strip("`"): row[1] for text in reports for row in rows_of(text, 2)}
    if not rows:
        raise Beyond("\n\n".join(reports))
    folders: dict[str, list[tuple[str, str]]] = {}
    for path, summary in sorted(
        rows.items(), key=lambda item: ("/" in item[0], item[0].rpartition("/")[0], item[0])
    ):
        folders.setdefault(path.rpartition("/")[0], []).append(
            (f"`{path.rpartition('/')[2]}`", summary)
        )
    parts = [lead(request, len(rows), say)]
    parts += [
        f"## {folder + '/' if folder else say('Top level', '顶层')}\n{table(head(say), entries)}"
        for folder, entries in folders.items()
    ]
    return "\n\n".join(parts)
