"""Prompts: the requests in them, and the folders, files and patterns each names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from msgspec import structs

from .catalog import join_patterns, load_data, load_pattern
from .plans import Request

_LONGEST_PROMPT = 40_000  # characters; the patterns below cost more than their length
_STDIN = re.compile(r"<stdin>\n.*?\n</stdin>", re.DOTALL)  # text that no request reads
_CJK = re.compile(r"[\u3400-\u9fff]")
_LIST_ITEM = re.compile(r"(?m)^[^\S\n]*- .*$")
_GLOB = re.compile(r"(?<![\w*.@/-])[\w.@/-]*+\*[\w.*/{},-]*")
_SUFFIX = load_pattern("suffix")
_FILE = re.compile(r"(?<![\w*/.-])((?:[\w@.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9})\b(?!/)")
_PATH = r"(?<![\w*/.-])[\w@.-]+(?:/[\w@.-]+)*/[\w@-]+(?![\w*/-]|\.\w)"
_PATH_LIKE = re.compile(r"`?[\w@.*{},-]*/[\w@./*{},-]*`?")
_WORD = re.compile(r"[A-Za-z][\w'’#+-]*|\d+|[\u3400-\u9fff]+|[?？\"“”‘’「」]")
_QUOTED = re.compile(r"`([^`\n]+)`|['‘]([^\"'”’」\s]+)['’]|[\"“「]([^\"“”「」\n]+)[\"”」]")
_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#|-)[A-Za-z_]\w*)*(?:\(\))?")
_LOOKS_LIKE_NAME = re.compile(r"_|\d|\.|::|[a-z][A-Z]|^[A-Z]\w*[a-z]|^(?:TODO|FIXME)$")
_SPELLING = load_data("spelling")
_USUAL = _SPELLING["words"] | {pair[0]: pair[1] for pair in _SPELLING["pairs"].split()}
_ENGLISH = r"(?<![\w./-])[A-Za-z]['’A-Za-z]*(?![\w./(-])"
_PHRASES = [rf"\b{x}\b" if x.isascii() else x for x in _USUAL if not re.fullmatch(_ENGLISH, x)]
_KEPT_OR_SPELLED = re.compile("|".join([f"({_SPELLING['kept']})", *_PHRASES, _ENGLISH]), re.I)
_TAKES_FILES = ("count", "definitions", "summarise", "list", "show")
_ABOUT_A_PLACE = (*_TAKES_FILES, "find", "symbol")


def is_chinese(text: str) -> bool:
    """Return whether the prompt is in Chinese, even with English words in it."""
    return bool(_CJK.search(_LIST_ITEM.sub("", text)))


def parse_prompt(prompt: str) -> tuple[list[Request], list[str]]:
    """Parse requests, and parts without a rule. Only the end of a prompt may save an answer."""
    asked, stdin_blocks = _STDIN.subn("", prompt)
    if len(asked) > _LONGEST_PROMPT or re.search(r"\S{1000}", asked):
        return [], [f"{asked[:60]}…"]
    forbids = load_pattern("forbids")
    delegate = bool(load_pattern("delegate").search(_LIST_ITEM.sub("", _normalize(asked))))
    kind, found = ("", {}) if stdin_blocks else match_writing_form(asked)
    if kind == "save":
        requests, unsupported = parse_prompt(found["rest"])
        has_title = [x for x in requests if f"title_{x.kind}" in load_data("texts")]
        if len(has_title) == len(requests) == 1 and not [*unsupported, *forbids.findall(asked)]:
            return [structs.replace(requests[0], delegate=delegate), Request("save", asked)], []
    elif kind:
        return [Request(kind, asked, delegate)], []
    asked = load_pattern("taken_off").sub("", _normalize(asked))
    parts = list(_add_places(_split_requests(asked)))
    kinds = {kind for kind, _, _ in parts} - {"", "help"}
    unsupported = [text for kind, text, _ in parts if not kind and not forbids.search(text)]
    kinds = kinds or ({"help"} if parts and not unsupported else kinds)
    unsupported += ["<stdin>"] if stdin_blocks else []
    return [Request(k, text, delegate, x) for k, text, x in parts if k in kinds], unsupported


def match_writing_form(prompt: str) -> tuple[str, dict[str, str]]:
    """Find the kind of a prompt that is one instruction to write, and what it names."""
    text = _normalize(prompt).strip(" ")
    parts = load_data("intents")["form_parts"]
    for kind, forms in load_data("intents")["writing_forms"].items():
        for form in forms:
            filled = re.sub("|".join(parts), lambda part: parts[part[0]], form)
            match = join_patterns((filled,)).fullmatch(text)
            found = {x.rstrip("2"): y for x, y in match.groupdict().items() if y} if match else {}
            # Quoted text is written as it stands in the prompt, or not at all.
            if match and all(y in prompt for x, y in found.items() if x != "rest"):
                return kind, found
    return "", {}


def find_unknown_words(text: str, kind: str) -> list[str]:
    """List words and conditions unknown to a kind of request; for "", to the best-matching one."""
    if not kind:
        rows = load_data("intents")["intent"]
        return min((find_unknown_words(text, row["name"]) for row in rows), key=len)
    bare = _remove_names(_LIST_ITEM.sub("", text), kind)
    known, chinese = _load_vocabulary(kind)
    unmet = load_pattern("conditions").findall(bare) if kind not in ("find", "symbol") else []
    return unmet + [x for x in _WORD.findall(chinese.sub(" ", bare)) if x.lower() not in known]


def find_symbols(text: str) -> list[str]:
    """List the names a request asks about: quoted ones, else those that look like identifiers."""
    text = _remove_folder(text)
    bare = _PATH_LIKE.sub(" ", text)
    quoted = ["".join(groups) for groups in _QUOTED.findall(text)]
    names = [name for name in _NAME.findall(bare) if _LOOKS_LIKE_NAME.search(name)]
    names = names or load_pattern("plain_name").findall(bare)
    names = quoted or [name for name in names if name.lower() not in _load_vocabulary("find")[0]]
    return list(dict.fromkeys(name.removesuffix("()").rstrip(".") for name in names))


def find_folders(text: str) -> list[str]:
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
    """List the globs, file names and kinds of file named in a request."""
    text = _remove_folder(text)
    names = [glob for glob in _GLOB.findall(text) if glob.strip("*")]
    if not names and load_pattern("test_files").search(text):
        return load_data("languages")["test_files"]
    if not names:
        table = load_data("intents")["language_suffixes"]
        languages = load_pattern("language_name").findall(text)
        suffixes = _SUFFIX.findall(text) + " ".join(table[x.lower()] for x in languages).split()
        names = [f"*.{suffix}" for suffix in suffixes]
    bare = load_pattern("bare_file")
    names = list(dict.fromkeys([*names, *_FILE.findall(text), *bare.findall(text)]))
    # A name without a suffix, such as README, means a top-level file with any suffix.
    return [x if "/" in x else f"{x}*" if bare.fullmatch(x) else f"**/{x}" for x in names]


def find_names(text: str) -> list[str]:
    """List the paths without wildcards that `find_patterns` returns."""
    return [x for y in find_patterns(text) if "*" not in (x := y.removeprefix("**/"))]


def _normalize(prompt: str) -> str:
    """Spell a prompt as the rules do; keep file names and quoted code."""
    for place in _SPELLING["spaces"]:
        prompt = re.sub(place, r"\1 ", prompt)
    return _KEPT_OR_SPELLED.sub(lambda x: x[1] or _USUAL.get(x[0].lower(), x[0]), prompt)


def _add_places(parts: list[tuple[str, str]]) -> Iterator[tuple[str, str, str | None]]:
    """Yield kind, text and folder. The kind is "" if a request's place is unclear."""
    folders: list[str] = []
    patterns: list[str] = []
    last = "help"
    has_place = any(find_folders(x) or (k == "count" and find_names(x)) for k, x in parts)
    for kind, text in parts:
        if last == "find" and not has_place and load_pattern("same_answer").fullmatch(text):
            continue
        is_vague = last != "help" and not {kind, last}.isdisjoint(["", *_ABOUT_A_PLACE])
        is_vague |= last in ("tests", "stack") and kind in ("version", "licence", "install")
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
    """List each request's kind and text; a clause without a kind belongs to the one before it."""
    whole = _classify(prompt)
    clauses = [x for x in load_pattern("clause_end").split(prompt) if re.search(r"\w", x)]
    kinds = {*map(_classify, clauses)} - {""}
    if whole and (_LIST_ITEM.search(prompt) or kinds <= {whole} - {*_ABOUT_A_PLACE}):
        return [(whole, prompt)]
    parts: list[tuple[str, str]] = []
    for clause in clauses:
        last, text = parts[-1] if parts else ("", "")
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
    """Find the first kind that matches the clause and knows all its words, else ""."""
    clause = _LIST_ITEM.sub("", clause)
    for kind, form in _load_forms():
        if form.search(clause) and not find_unknown_words(clause, kind):
            return kind
    return ""


@cache
def _load_forms() -> list[tuple[str, re.Pattern[str]]]:
    """List kinds and their patterns, then kinds and their topics: concepts in any order."""
    rows, concepts = (load_data("intents")[name] for name in ("intent", "concepts"))
    asked = {x: f"(?=.*(?<![a-z])(?:{words})(?![a-z]))" for x, words in concepts.items()}
    forms = [(row["name"], tuple(row["patterns"])) for row in rows if "patterns" in row]
    topics = [(row["name"], topic.split()) for row in rows for topic in row.get("topics", ())]
    forms += [(kind, ("^" + "".join(asked[x] for x in topic),)) for kind, topic in topics]
    return [(kind, join_patterns(patterns)) for kind, patterns in forms]


@cache
def _load_vocabulary(kind: str) -> tuple[frozenset[str], re.Pattern[str]]:
    intent = next(row for row in load_data("intents")["intent"] if row["name"] == kind)
    concepts, common = (load_data("intents")[name] for name in ("concepts", "common_words"))
    named = [concepts[name] for topic in intent.get("topics", ()) for name in topic.split()]
    words = re.split(r"[\s|]+", " ".join([intent["words"], common, *named]))
    # Longest first, because a short word may be the beginning of a longer one.
    chinese = sorted((word for word in words if _CJK.match(word)), key=len, reverse=True)
    return frozenset(words), re.compile("|".join(map(re.escape, chinese)))


def _remove_names(text: str, kind: str) -> str:
    paths = {*_FILE.findall(text), *_GLOB.findall(text), *load_pattern("bare_file").findall(text)}
    text = _remove_folder(text)
    if kind in _TAKES_FILES:
        # Longest first, because one path may be the end of another.
        for path in sorted(paths, key=len, reverse=True):
            text = re.sub(rf"`?{re.escape(path)}`?", " ", text)
        text = load_pattern("language_name").sub(" ", _SUFFIX.sub(" ", text))
    names = find_symbols(text) if kind in ("find", "symbol") else []
    if len(names) == 1:
        text = re.sub(rf"[`\"'“‘「]?{re.escape(names[0])}(?:\(\))?[`\"'”’」]?", " ", text)
    return re.sub(r"[?？]", " ", text)


def _remove_folder(text: str) -> str:
    folders = find_folders(text)
    if len(folders) != 1:
        return text
    name = re.escape(folders[0])
    return re.sub(rf"(?<![\w/])`?(?:\./)?{name}(?:/`?|`?(?![\w/:]|\.\w))", " ", text)
