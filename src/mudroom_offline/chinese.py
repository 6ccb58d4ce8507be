"""Chinese prompts in the one form that the tables know: simplified, with spaces around suffixes."""

from __future__ import annotations

import re
from functools import cache

from .catalog import load_data

CJK = re.compile(r"[\u3400-\u9fff]")
_PART = r"[^\s`，。；：、,;:?？!！]*"
# A name of a file, and what stands between marks of code, keep their characters.
_WORDS = re.compile(rf"`[^`\n]*`|{_PART}[./]{_PART}|[\u3400-\u9fff]+")
_BEFORE_SUFFIX = re.compile(
    r"(所有|全部|每个|各个|各类|[的把读取看数里中下内]|总结|概括|概述|统计)(?=\.[A-Za-z]\w{0,9}文件)"
)
_AFTER_SUFFIX = re.compile(r"(\.[A-Za-z][A-Za-z0-9]{0,9})(?=[\u3400-\u9fff])")


def normalize(prompt: str) -> str:
    """Return a prompt in simplified characters; names of files keep theirs."""
    if not CJK.search(prompt):
        return prompt
    spaced = _AFTER_SUFFIX.sub(r"\1 ", _BEFORE_SUFFIX.sub(r"\1 ", prompt.replace("檔案", "文件")))
    return _WORDS.sub(lambda match: _simplify(match[0]), spaced)


def _simplify(run: str) -> str:
    if not CJK.match(run) or re.search(r"[./`]", run):
        return run
    words, characters = _load_tables()
    for traditional, simplified in words.items():
        run = run.replace(traditional, simplified)
    return run.translate(characters)


@cache
def _load_tables() -> tuple[dict[str, str], dict[int, str]]:
    """Return the words that Taiwan and Hong Kong name otherwise, and the characters."""
    tables = load_data("intents")["traditional"]
    pairs = tables["characters"].split()
    return tables["words"], {ord(pair[0]): pair[1] for pair in pairs}
