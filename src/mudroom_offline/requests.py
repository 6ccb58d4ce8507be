"""Prompts: the requests in a prompt, and the folders, files and patterns that a request names."""

from __future__ import annotations

import re

from .catalog import OutlineRules, intents, load_data, load_rows, phrase, words
from .plans import Request

ALL_SOURCE = "**/*.{{{}}}".format(
    ",".join(
        suffix
        for row in load_rows("languages", "outline", OutlineRules)
        for suffix in row.suffixes
        if row.is_source
    )
)
"""The glob of all source files."""

_LONGEST_PROMPT = 40_000
"""Characters. The patterns below cost more than their length, and a question is shorter."""
_LONG_WORD = re.compile(r"\S{1000}")
_CJK = re.compile(r"[\u3400-\u9fff]")
_LIST_ITEM = re.compile(r"(?m)^\s*[-*] .*$")
_PATH_LIKE = re.compile(r"https?://\S+|[\w@.-]*/[\w@./-]*|\b[\w-]+\.[A-Za-z]\w{0,9}\b")
_SENTENCE_END = re.compile(r"[.;。；](?:\s|$)|\n")
_GLOB = re.compile(r"(?<![\w*])(?:[\w.@-]+/)*(?:\*\*/)?(?:[\w.-]*/)*[\w.-]*\*[\w.*/{},-]*")
_SUFFIX = re.compile(r"(?<![\w/])\.([A-Za-z]\w{0,7})\b")
_FILE = re.compile(r"(?<![\w*/.-])((?:[\w@.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9})\b(?!/)")
_PATH = r"(?<![\w*/.-])[\w@.-]+(?:/[\w@.-]+)*/[\w@-]+(?![\w*/-]|\.\w)"
_SUFFIX_OF_LANGUAGE = dict(pair.split(":") for pair in words("language_suffixes"))


def is_chinese(text: str) -> bool:
    """Return True when the prompt is in Chinese, also with English words in it."""
    return bool(_CJK.search(_LIST_ITEM.sub("", text)))


def parse_requests(prompt: str) -> tuple[list[Request], list[str]]:
    """Return what a prompt asks for, in order, and the parts of it that no rule covers.

    A clause without a request belongs to the request before it, and to each request to create.
    """
    if len(prompt) > _LONGEST_PROMPT or _LONG_WORD.search(prompt):
        return [], []
    found: list[tuple[str, int]] = []
    loose: list[str] = []
    unsupported: list[str] = []
    for start, clause in _split_clauses(prompt):
        kind = _classify(clause)
        if kind == "unsupported":
            unsupported.append(clause)
        elif not kind:
            loose.append(clause)
        if kind and (not found or kind != found[-1][0]):
            found.append((kind, start if found else 0))
    if not found and not unsupported and phrase("read_files").search(prompt):
        found = [("summarise", 0)]
    prose = _PATH_LIKE.sub(" ", _LIST_ITEM.sub("", prompt))
    delegate = bool(phrase("delegate").search(prose))
    requests: list[Request] = []
    ends = [*(start for _, start in found), len(prompt)][1:]
    for (kind, start), end in zip(found, ends, strict=True):
        if kind == "unsupported":
            continue
        text = prompt[start:end]
        scopes = tuple(find_scopes(text))
        excluded = tuple(find_exclusions(text))
        if kind == "create":
            text = "\n".join([text, *loose])
        requests.append(Request(kind, text, delegate, scopes, excluded))
    return requests, unsupported


def find_scopes(text: str) -> list[str]:
    """Return the folders to look in, each with a slash at its end; empty for everything."""
    return _find_folders(_split_exclusion(text)[0])


def find_exclusions(text: str) -> list[str]:
    """Return the folders to leave out, each with a slash at its end."""
    return _find_folders(f"in {_split_exclusion(text)[1].strip()}")


def find_files(text: str) -> list[str]:
    """Return the files of a list, one per line after a dash; else the single files named."""
    listed = re.findall(r"(?m)^- `?([^\n`]+)`?$", text)
    return listed or list(dict.fromkeys(_FILE.findall(text)))


def find_patterns(text: str) -> list[str]:
    """Return the globs that a request names."""
    globs = [glob for glob in _GLOB.findall(text) if glob.strip("*")]
    if globs:
        return [glob if "/" in glob else f"**/{glob}" for glob in globs]
    suffixes = _SUFFIX.findall(text)
    names = phrase("language_name").findall(text)
    suffixes += [_SUFFIX_OF_LANGUAGE[name.lower()] for name in names]
    return [f"**/*.{suffix}" for suffix in dict.fromkeys(suffixes)]


def _split_clauses(prompt: str) -> list[tuple[int, str]]:
    """Return the clauses that are not empty, each with its start."""
    clauses: list[tuple[int, str]] = []
    start = 0
    ends = [(match.start(), match.end()) for match in phrase("clause_end").finditer(prompt)]
    for end, following in [*ends, (len(prompt), 0)]:
        if prompt[start:end].strip():
            clauses.append((start, prompt[start:end].strip()))
        start = following
    return clauses


def _classify(clause: str) -> str:
    """Return the intent of a clause; "unsupported" for known work without a rule, else ""."""
    text = _LIST_ITEM.sub("", clause)
    if "where" not in clause.lower():
        text = _PATH_LIKE.sub(" X ", text)
    bare = text
    while match := phrase("lead_in").match(bare):
        bare = bare[match.end() :]
    if phrase("create").match(bare):
        return "create"
    if phrase("unsupported").match(bare):
        return "unsupported"
    return next((kind for kind, pattern in intents().items() if pattern.search(text)), "")


def _split_exclusion(text: str) -> tuple[str, str]:
    match = phrase("except").search(text)
    if not match:
        return text, ""
    end = _SENTENCE_END.search(text, match.end())
    stop = end.start() if end else len(text)
    return text[: match.start()] + text[stop:], text[match.end() : stop]


def _find_folders(text: str) -> list[str]:
    bare = re.sub(r"https?://\S+", " ", text)
    names: list[str] = []
    for pattern in load_data("intents")["folders"]:
        for group in re.findall(pattern.replace("PATH", _PATH), bare):
            names += re.split(r"[`,\s和与、]+|\b(?:and|or)\b", group)
    folders = [f"{name.removeprefix('./').strip('/')}/" for name in names if name.strip("./")]
    return list(dict.fromkeys(folders))
