"""Prompts: the requests in a prompt, and the folders, files and patterns that a request names.

A clause is understood only if it matches a pattern of one kind of request and has no word
outside that kind's vocabulary. So a condition, a negation or another purpose is never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from .catalog import DemoFunction, Intent, join_patterns, load_data, load_pattern, load_rows
from .plans import Request

_LONGEST_PROMPT = 40_000  # characters; the patterns below cost more than their length
_LONG_WORD = re.compile(r"\S{1000}")
_STDIN = re.compile(r"<stdin>\n.*?\n</stdin>", re.DOTALL)  # text that no request reads
_CJK = re.compile(r"[\u3400-\u9fff]")
_LIST_ITEM = re.compile(r"(?m)^[^\S\n]*- .*$")
_GLOB = re.compile(r"(?<![\w*.@/-])[\w.@/-]*+\*[\w.*/{},-]*")
_SUFFIX = load_pattern("suffix")
_FILE = re.compile(r"(?<![\w*/.-])((?:[\w@.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9})\b(?!/)")
_PATH = r"(?<![\w*/.-])[\w@.-]+(?:/[\w@.-]+)*/[\w@-]+(?![\w*/-]|\.\w)"
_PATH_LIKE = re.compile(r"`?[\w@.*{},-]*/[\w@./*{},-]*`?")
_WORD = re.compile(r"[A-Za-z][\w'’#+-]*|\d+|[\u3400-\u9fff]+|[?？\"“”‘’「」]")
_QUOTED = re.compile(r"`([^`\s]+)`|[\"'“‘「]([^\"'”’」\s]+)[\"'”’」]")
_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#|-)[A-Za-z_]\w*)*(?:\(\))?")
_LOOKS_LIKE_NAME = re.compile(r"_|\d|\.|::|[a-z][A-Z]|^[A-Z]\w*[a-z]")
_TRADITIONAL = load_data("intents")["traditional"]
_PAIRS = _TRADITIONAL["words"] | {pair[0]: pair[1] for pair in _TRADITIONAL["pairs"].split()}
_KEPT_OR_TRADITIONAL = re.compile("|".join([f"({_TRADITIONAL['kept']})", *_PAIRS]))
_TAKES_FILES = ("count", "summarise")
_ABOUT_A_PLACE = ("count", "summarise", "find")


def is_chinese(text: str) -> bool:
    """Return whether the prompt is in Chinese, even with English words in it."""
    return bool(_CJK.search(_LIST_ITEM.sub("", text)))


def parse_prompt(prompt: str) -> tuple[list[Request], list[str]]:
    """Return requests, and parts without a rule. A prompt that writes has no other part."""
    asked, stdin_blocks = _STDIN.subn("", prompt)
    if len(asked) > _LONGEST_PROMPT or _LONG_WORD.search(asked):
        return [], [f"{asked[:60]}…"]
    asked = _normalize(asked)
    delegate = bool(load_pattern("delegate").search(_LIST_ITEM.sub("", asked)))
    if not stdin_blocks and is_writing_form(asked):
        return [Request("create", asked, delegate)], []
    asked = load_pattern("taken_off").sub("", asked)
    parts = list(_add_places(_split_requests(asked)))
    kinds = {kind for kind, _, _ in parts} - {"", "help"}
    forbids = load_pattern("forbids")
    unsupported = [text for kind, text, _ in parts if not kind and not forbids.search(text)]
    if not kinds and not unsupported and parts:
        kinds = {"help"}
    unsupported += ["<stdin>"] if stdin_blocks else []
    requests = [Request(k, text, delegate, folder) for k, text, folder in parts if k in kinds]
    return requests, unsupported


def is_writing_form(prompt: str) -> bool:
    """Return whether the whole prompt, without spaces at its ends, is an instruction to write."""
    names = "|".join(row.name for row in load_rows("demo", "function", DemoFunction))
    forms = [x.replace("NAME", f"(?-i:{names})") for x in load_data("intents")["writing_forms"]]
    return bool(join_patterns(tuple(forms)).fullmatch(_normalize(prompt).strip(" ")))


def find_unknown_words(text: str, kind: str) -> list[str]:
    """List the words of a text that a kind of request does not know; for "", any kind."""
    if not kind:
        rows = load_rows("intents", "intent", Intent)
        return min((find_unknown_words(text, row.name) for row in rows), key=len)
    bare = _remove_names(_LIST_ITEM.sub("", text), kind)
    known, chinese = _load_vocabulary(kind)
    return [word for word in _WORD.findall(chinese.sub(" ", bare)) if word.lower() not in known]


def find_symbols(text: str) -> list[str]:
    """List the names a request asks about: quoted ones, else those that look like identifiers."""
    text = _remove_folder(text)
    bare = _PATH_LIKE.sub(" ", text)
    quoted = ["".join(groups) for groups in _QUOTED.findall(text)]
    known, _ = _load_vocabulary("find")
    names = [name for name in _NAME.findall(bare) if _LOOKS_LIKE_NAME.search(name)]
    names = names or load_pattern("plain_name").findall(bare)
    names = quoted or [name for name in names if name.lower() not in known]
    return list(dict.fromkeys(name.removesuffix("()").rstrip(".") for name in names))


def find_folders(text: str) -> list[str]:
    """List the folders that a request names."""
    bare = re.sub(r"https?://\S+", " ", text)
    names: list[str] = []
    for pattern in load_data("intents")["folders"]:
        for group in re.findall(pattern.replace("PATH", _PATH), bare):
            names += re.split(r"[`,\s和与、]+|\b(?:and|or)\b", group)
    folders = [name.removeprefix("./").strip("/") for name in names if name.strip("./")]
    if not folders and (match := load_pattern("plain_folder").search(bare)):
        is_word = match["name"].lower() in load_data("intents")["common_words"].split()
        folders = [] if is_word or _SUFFIX.fullmatch(match["name"]) else [match["name"]]
    return list(dict.fromkeys(folders))


def find_patterns(text: str) -> list[str]:
    """List the globs, file names and kinds of file that a request names."""
    text = _remove_folder(text)
    names = [glob for glob in _GLOB.findall(text) if glob.strip("*")]
    if not names:
        table = load_data("intents")["language_suffixes"]
        languages = load_pattern("language_name").findall(text)
        suffixes = _SUFFIX.findall(text) + " ".join(table[x.lower()] for x in languages).split()
        names = [f"*.{suffix}" for suffix in suffixes]
    names = list(dict.fromkeys([*names, *_FILE.findall(text)]))
    return [name if "/" in name else f"**/{name}" for name in names]


def find_names(text: str) -> list[str]:
    """List the paths without wildcards that `find_patterns` returns."""
    return [x for y in find_patterns(text) if "*" not in (x := y.removeprefix("**/"))]


def _normalize(prompt: str) -> str:
    """Write a prompt in simplified characters; names of files and quoted code keep theirs."""
    for place in _TRADITIONAL["spaces"]:
        prompt = re.sub(place, r"\1 ", prompt)
    return _KEPT_OR_TRADITIONAL.sub(lambda found: found[1] or _PAIRS[found[0]], prompt)


def _add_places(parts: list[tuple[str, str]]) -> Iterator[tuple[str, str, str | None]]:
    """Yield kind, text and folder. The kind is "" if the place of a request is not sure."""
    folders: list[str] = []
    patterns: list[str] = []
    last = "help"
    has_place = any(find_folders(x) or (k == "count" and find_names(x)) for k, x in parts)
    for kind, text in parts:
        if last == "find" and not has_place and load_pattern("same_answer").fullmatch(text):
            continue
        is_vague = last != "help" and not {kind, last}.isdisjoint(["", *_ABOUT_A_PLACE])
        kind = "" if is_vague and load_pattern("pronoun").search(text) else kind
        last = kind
        own = find_folders(text)
        own_patterns = [] if kind == "find" else find_patterns(text)
        if kind in _ABOUT_A_PLACE and not own and not load_pattern("names_project").search(text):
            is_close = not folders and (not has_place or (own_patterns and find_names(text)))
            kind = kind if is_close and (kind == "find" or own_patterns or not patterns) else ""
        yield kind, text, next(iter(own), None)
        folders = own or folders
        patterns = own_patterns or patterns


def _split_requests(prompt: str) -> list[tuple[str, str]]:
    """List kind and text of each request; a clause without one belongs to the one before it."""
    whole = _classify(prompt)
    clauses = load_pattern("clause_end").split(prompt)
    if whole and (_LIST_ITEM.search(prompt) or not any(map(_classify, clauses))):
        return [(whole, prompt)]
    parts: list[tuple[str, str]] = []
    for clause in clauses:
        last, text = parts[-1] if parts else ("", "")
        if not re.search(r"\w", clause):
            continue
        kind = _classify(clause)
        has_place = find_folders(text) and load_pattern("names_project").search(clause)
        limits_files = last in _TAKES_FILES and find_patterns(clause) and not find_patterns(text)
        has_place = has_place or find_folders(clause) or limits_files
        is_new = kind not in ("", last) or kind == "find" or has_place
        if last not in ("", "help") and not (is_new or find_unknown_words(clause, last)):
            parts[-1] = (last, f"{clause}, {text}")
        else:
            parts.append((kind, clause.strip()))
    return parts


def _classify(clause: str) -> str:
    """Return the first kind of request whose pattern matches and that knows all words, else ""."""
    clause = _LIST_ITEM.sub("", clause)
    for intent in load_rows("intents", "intent", Intent):
        is_match = join_patterns(intent.patterns).search(clause)
        if is_match and not find_unknown_words(clause, intent.name):
            return intent.name
    return ""


@cache
def _load_vocabulary(kind: str) -> tuple[frozenset[str], re.Pattern[str]]:
    intent = next(row for row in load_rows("intents", "intent", Intent) if row.name == kind)
    words = [*intent.words.split(), *load_data("intents")["common_words"].split()]
    # The longest first, because a short word may be the beginning of a longer one.
    chinese = sorted((word for word in words if _CJK.match(word)), key=len, reverse=True)
    return frozenset(words), re.compile("|".join(chinese))


def _remove_names(text: str, kind: str) -> str:
    paths = {*_FILE.findall(text), *_GLOB.findall(text)}
    text = _remove_folder(text)
    if kind in _TAKES_FILES:
        # The longest first, because one path may be the end of another.
        for path in sorted(paths, key=len, reverse=True):
            text = re.sub(rf"`?{re.escape(path)}`?", " ", text)
        text = load_pattern("language_name").sub(" ", _SUFFIX.sub(" ", text))
    names = find_symbols(text) if kind == "find" else []
    if len(names) == 1:
        text = re.sub(rf"[`\"'“‘「]?{re.escape(names[0])}(?:\(\))?[`\"'”’」]?", " ", text)
    return re.sub(r"[?？]", " ", text)


def _remove_folder(text: str) -> str:
    folders = find_folders(text)
    if len(folders) != 1:
        return text
    name = re.escape(folders[0])
    return re.sub(rf"(?<![\w/])`?(?:\./)?{name}(?:/`?|`?(?![\w/:]|\.\w))", " ", text)
