"""The folders, files and patterns that a request names."""

from __future__ import annotations

import re

_FOLDER = r"`?((?:\./)?(?:[\w@.-]+/)*[\w@.-]+/)`?(?![\w*])"
_PATH = r"(?<![\w*/.-])((?:\./)?[\w@.-]+(?:/[\w@.-]+)*/[\w@-]+)(?![\w*/-]|\.\w)"
_PATHS = re.compile(
    rf"(?i)(?:\b(?:in|under|inside|within|of|from|below) (?:the )?|在\s*)(`?{_PATH}`?(?:(?:, ?| and | or | ?[和与、] ?)`?{_PATH}`?)*)"
)
_EXCEPT = re.compile(
    r"(?i)\b(?:except|excluding|outside|leaving out|not under)\b(?: under)?|除了|不包括|排除"
)
_END = re.compile(r"[.;。;](?:\s|$)|\n")


def scopes(text: str) -> list[str]:
    """Folders to look in, each with a slash at its end; empty for everything."""
    return _folders(_parts(text)[0])


def exclusions(text: str) -> list[str]:
    """Folders to leave out."""
    return _folders(f"in {_parts(text)[1].strip()}")


def _parts(text: str) -> tuple[str, str]:
    m = _EXCEPT.search(text)
    if not m:
        return text, ""
    end = _END.search(text, m.end())
    stop = end.start() if end else len(text)
    return text[: m.start()] + text[stop:], text[m.end() : stop]


def _folders(text: str) -> list[str]:
    bare = re.sub(r"https?://\S+", " ", text)
    found = re.findall(r"(?<![\w*/.-])" + _FOLDER, bare)
    found += [
        name + "/"
        for name in re.findall(
            r"(?i)\b(?:in|under|inside|within|of) (?:the )?`?([\w.-]+)`? (?:folder|directory|package)\b",
            bare,
        )
    ]
    found += [
        name + "/"
        for name in re.findall(r"(?<![\w/])`?([A-Za-z][\w.-]*)`?\s*(?:目录|文件夹)", bare)
    ]
    for several in _PATHS.findall(bare):
        found += [name + "/" for name in re.findall(_PATH, several[0])]
    found += [name + "/" for name in re.findall(rf"{_PATH}`?\s*(?:目录|文件夹|里|中|下|内)", bare)]
    return list(
        dict.fromkeys(name.removeprefix("./") for name in found if name not in ("./", "../"))
    )


def listed(text: str) -> list[str]:
    """The files of a list, one a line after a dash."""
    return re.findall(r"(?m)^- `?([^\s`]+)`?$", text)
