"""Prompts.

Split them into requests, and find the folders, files and patterns that a request names.
"""

from __future__ import annotations

import re

from .catalog import intents, outline_rules, phrase, words
from .plans import Request

_CJK = re.compile(r"[\u3400-\u9fff]")
_LIST_ITEM = re.compile(r"(?m)^\s*[-*] .*$")
_PATH_LIKE = re.compile(r"https?://\S+|[\w@.-]*/[\w@./-]*|\b[\w-]+\.[A-Za-z]\w{0,9}\b")
_LONGEST_PROMPT = 40_000
"""Characters. The patterns below cost more than their length, and a question is shorter."""
_LONG_WORD = re.compile(r"\S{1000}")

_EXCEPT = re.compile(
    r"(?i)\b(?:except|excluding|outside|leaving out|not under)\b(?: under)?|除了|不包括|排除"
)
_SENTENCE_END = re.compile(r"[.;。;](?:\s|$)|\n")
_FOLDER = re.compile(r"(?<![\w*/.-])`?((?:\./)?(?:[\w@.-]+/)*[\w@.-]+/)`?(?![\w*])")
_PATH = r"(?<![\w*/.-])((?:\./)?[\w@.-]+(?:/[\w@.-]+)*/[\w@-]+)(?![\w*/-]|\.\w)"
_PATHS_IN = re.compile(
    rf"(?i)(?:\b(?:in|under|inside|within|of|from|below) (?:the )?|在\s*)"
    rf"(`?{_PATH}`?(?:(?:, ?| and | or | ?[和与、] ?)`?{_PATH}`?)*)"
)
_NAMED_FOLDERS = (
    re.compile(
        r"(?i)\b(?:in|under|inside|within|of) (?:the )?`?([\w.-]+)`? (?:folder|directory|package)\b"
    ),
    re.compile(r"(?<![\w/])`?([A-Za-z][\w.-]*)`?\s*(?:目录|文件夹)"),
    re.compile(rf"{_PATH}`?\s*(?:目录|文件夹|里|中|下|内)"),
)
_GLOB = re.compile(r"(?<![\w*])(?:[\w.@-]+/)*(?:\*\*/)?(?:[\w.-]*/)*[\w.-]*\*[\w.*/{},-]*")
_SUFFIX = re.compile(r"(?<![\w/])\.([A-Za-z]\w{0,7})\b")
_FILE = re.compile(r"(?<![\w*/.-])((?:[\w@.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9})\b(?!/)")
_SUFFIX_OF_LANGUAGE = dict(pair.split(":") for pair in words("language_suffixes"))
_LANGUAGE_NAME = re.compile(
    r"(?i)(?<![\w./-])("
    + "|".join(re.escape(name) for name in _SUFFIX_OF_LANGUAGE)
    + r"|go(?= (?:source )?(?:files?|code|packages?))|c(?= (?:source )?files?))(?![\w/-])",
    re.ASCII,
)
_NOT_SOURCE = frozenset(words("not_source"))


def is_chinese(text: str) -> bool:
    """Return True when the prompt is in Chinese, also with English words in it."""
    return bool(_CJK.search(_LIST_ITEM.sub("", text)))


def parse_requests(prompt: str) -> tuple[list[Request], list[str]]:
    """Return what a prompt asks for, in order, and the parts of it that no rule covers."""
    if len(prompt) > _LONGEST_PROMPT or _LONG_WORD.search(prompt):
        return [], []
    kinds: list[str] = []
    spans: list[tuple[int, int]] = []
    unsupported: list[str] = []
    for start, end in _split_clauses(prompt):
        kind = _classify(prompt[start:end])
        if kind == "unsupported":
            unsupported.append(prompt[start:end].strip())
        elif kind and kind not in kinds[-1:] and (kind, *kinds[-1:]) != ("tests", "create"):
            kinds.append(kind)
            spans.append((start if spans else 0, end))
        elif spans:
            spans[-1] = (spans[-1][0], end)
    if not kinds and not unsupported and phrase("read_files").search(prompt):
        kinds = ["summarise"]
        spans = [(0, len(prompt))]
    prose = _PATH_LIKE.sub(" ", _LIST_ITEM.sub("", prompt))
    delegate = bool(phrase("delegate").search(prose))
    requests = [
        Request(kind, prompt[start:end], delegate)
        for kind, (start, end) in zip(kinds, spans, strict=True)
    ]
    return requests, unsupported


def find_scopes(text: str) -> list[str]:
    """Return the folders to look in, each with a slash at its end; empty for everything."""
    return _find_folders(_split_exclusion(text)[0])


def find_exclusions(text: str) -> list[str]:
    """Return the folders to leave out."""
    return _find_folders(f"in {_split_exclusion(text)[1].strip()}")


def find_listed_files(text: str) -> list[str]:
    """Return the files of a list, one per line after a dash."""
    return re.findall(r"(?m)^- `?([^\s`]+)`?$", text)


def find_named_files(text: str) -> list[str]:
    """Return the single files that the text names."""
    return list(dict.fromkeys(_FILE.findall(text)))


def find_patterns(text: str) -> list[str]:
    """Return the globs a request names; all source files when it names no pattern and no file."""
    globs = [glob for glob in _GLOB.findall(text) if glob.strip("*")]
    if globs:
        return [glob if "/" in glob else f"**/{glob}" for glob in globs]
    suffixes = _SUFFIX.findall(text)
    for name in _LANGUAGE_NAME.findall(text):
        suffixes.append(_SUFFIX_OF_LANGUAGE.get(name.lower(), name.lower()))
    if suffixes:
        return [f"**/*.{suffix}" for suffix in dict.fromkeys(suffixes)]
    if find_named_files(text):
        return []
    return [f"**/*.{suffix}" for suffix in source_suffixes()]


def source_suffixes() -> list[str]:
    """Return the suffixes of source files, without dots."""
    return [suffix for suffix in outline_rules() if suffix not in _NOT_SOURCE]


def _split_clauses(prompt: str) -> list[tuple[int, int]]:
    clauses: list[tuple[int, int]] = []
    start = 0
    for match in re.finditer(r"\s*(?:" + phrase("clause_end").pattern + r")\s*", prompt, re.I):
        clauses.append((start, match.start()))
        start = match.end()
    clauses.append((start, len(prompt)))
    return [(a, b) for a, b in clauses if prompt[a:b].strip()]


def _classify(clause: str) -> str:
    """Return the intent of a clause; "unsupported" for known work without a rule, else ""."""
    text = _LIST_ITEM.sub("", clause)
    if "where" not in clause.lower():
        text = _PATH_LIKE.sub(" X ", text)
    bare = text
    while match := phrase("lead_in").match(bare):
        bare = bare[match.end() :]
    if phrase("unsupported").match(bare):
        return "unsupported"
    return next((kind for kind, pattern in intents().items() if pattern.search(text)), "")


def _split_exclusion(text: str) -> tuple[str, str]:
    match = _EXCEPT.search(text)
    if not match:
        return text, ""
    end = _SENTENCE_END.search(text, match.end())
    stop = end.start() if end else len(text)
    return text[: match.start()] + text[stop:], text[match.end() : stop]


def _find_folders(text: str) -> list[str]:
    bare = re.sub(r"https?://\S+", " ", text)
    folders: list[str] = _FOLDER.findall(bare)
    names: list[str] = []
    for pattern in _NAMED_FOLDERS[:2]:
        names += pattern.findall(bare)
    for match in _PATHS_IN.finditer(bare):
        names += re.findall(_PATH, match[1])
    names += _NAMED_FOLDERS[2].findall(bare)
    folders += [f"{name}/" for name in names]
    return list(dict.fromkeys(f.removeprefix("./") for f in folders if f not in ("./", "../")))
