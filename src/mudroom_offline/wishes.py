"""What a request says of the module it wants: functions, language, place."""

from __future__ import annotations

import re

from .recipes import RECIPES, recipe, snake

_IDENTIFIER = r"[A-Za-z_$][\w$]*"
_INTRODUCED = re.compile(
    r"(?i)(?:\bfunctions?\b(?: (?:called|named|like|such as|for))?|\bwith\b(?: (?:the|a|an)\b)?(?: functions?\b)?"
    r"|\bcontain\w*|\bprovid\w*|\bexport\w*|\bincluding\b|\bhas\b|\bhaving\b"
    r"|包含|含有|包括|带有?|提供|实现|函数)[:: ]*"
)
_STOP_WORDS = (
    "a an the and or some functions function new module python javascript js py typescript verify it then test tests named "
    "called with to from here use for in of file utility utilities helper helpers string strings text number numbers math few "
    "several common useful basic subtask task please that this library script check two three four five is as you your "
    "docstrings docstring type hints comments at least one each name path"
)
_STOP = frozenset(_STOP_WORDS.split())


def function_names(text: str) -> list[str]:
    """The functions a request names; empty when it leaves the choice open."""
    bare = re.sub(r"[\w./-]+\.(?:py|m?js|ts)\b", " ", text)
    listed = [m[1] for m in re.finditer(rf"(?<![\w/.])({_IDENTIFIER})\s*\(", bare)] + re.findall(
        rf"`({_IDENTIFIER})(?:\(\))?`", bare
    )
    for m in _INTRODUCED.finditer(bare):
        run = re.match(
            rf"[`\s]*{_IDENTIFIER}(?:\(\w*\))?`?(?:\s*(?:,|、|和|与|以及|\band\b)+\s*(?:and\s+)?`?{_IDENTIFIER}(?:\(\w*\))?`?)*",
            bare[m.end() :],
        )
        listed += re.findall(_IDENTIFIER, run[0]) if run else []
    known = [
        w
        for w in re.findall(_IDENTIFIER, bare)
        if recipe(w) and (snake(w) in RECIPES and "_" in snake(w))
    ]
    before = re.findall(
        rf"({_IDENTIFIER}(?:\s*(?:,|、|和|\band\b)\s*{_IDENTIFIER})*) functions?\b", bare
    )
    known += [w for run in before for w in re.findall(_IDENTIFIER, run) if recipe(w)]
    names = [n for n in [*listed, *known] if n.lower() not in _STOP]
    if not names:
        words = {w.lower().rstrip("s") for w in re.findall(r"[A-Za-z]+", bare)}
        names = [
            r.name
            for r in RECIPES.values()
            if any(part in words for part in {r.name, *r.others} if len(part) > 5)
        ]
    return list(dict.fromkeys(names))


def language(text: str) -> str:
    """The suffix of the language a request names, "" for none."""
    if re.search(r"(?i)\bpython\b|\.py\b", text):
        return "py"
    return (
        "js"
        if re.search(r"(?i)\bjavascript\b|\bnode(?:\.?js)?\b|\btypescript\b|\.m?js\b|\bjs\b", text)
        else ""
    )


def place(text: str) -> str:
    """The path, or the bare name, that a request gives the module; "" for none."""
    m = re.search(r"(?<![\w*/])((?:[\w.-]+/)*[\w-]+\.(?:py|mjs|js))\b", text)
    if m:
        return m[1]
    named = re.search(
        r"(?i)\bmodule (?:called|named) `?([a-z]\w*)`?|模块[名叫为]+\s*`?([a-z]\w*)`?", text
    )
    return (named[1] or named[2]) if named else ""
