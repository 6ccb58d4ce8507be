"""Description of one source file: its own first words, then the public names it defines."""

from __future__ import annotations

import re
from itertools import takewhile

from .catalog import find_outline_rules, load_data
from .plans import Translator
from .tool_output import FileText

_LENGTH = 170
_MOST_NAMES = 6
_HEAD_LINES = 60
_BLOCK = re.compile(r"[ \t]*/\*(?s:.*?)\*/.*\n?|(?:[ \t]*(?:#+(?!\S)|//|--).*\n?)+|.*\n?")
_MARK = re.compile(r"(?m)^[ \t]*(?:#+(?!\S)|//+!?|/\*+!?|--+|\*+(?!/))|\*+/.*$")
_DEFINITION = re.compile(r"^(?!This|It|There)\S+(?: \S+){0,3} (?:is|are) an?\b|是一")
_FIRST_PARAGRAPHS = 3
_TITLE = re.compile(r"(?m)^#[ \t]+(\w.* .* .*)|^(\w.* .* .*)\n[=~*#-]{3,}[ \t]*$")
_LEAD_IN = re.compile(r"(?:^|(?<=[.!?。]) ?)[^.!?。]*[:：]$")
_HEADING = re.compile(r"^[^\n]*\n[=~*#-]{3,}\s*(?:\n|$)")


def describe_file(file: FileText, say: Translator) -> str:
    """Return one line that says what a file is for and what it defines."""
    if file.problem and not file.text:
        return say("not_readable", error=file.problem)[:_LENGTH]
    if not file.text.strip():
        return say("empty_file")
    purpose = _find_purpose(file)
    if len(purpose) > _LENGTH:
        purpose = f"{purpose[:_LENGTH].rpartition(' ')[0]}…"
    if purpose and purpose[-1] not in ".!?。！？:：…":
        purpose += "."
    count = say.count(file.text.count("\n") + 1, "line")
    line = f"{purpose} {_list_names(file, say)}".strip() or say("no_description", count=count)
    return f"{line} ({file.problem})" if file.problem else line


def find_description(text: str) -> str:
    """Return what a text says it is, else its first paragraph before any colon, else its title."""
    text = re.sub(load_data("outline")["not_prose"], "\n\n", text)
    first = _read_paragraphs(text)[:_FIRST_PARAGRAPHS]
    paragraphs = list(takewhile(bool, (_LEAD_IN.sub("", paragraph) for paragraph in first)))
    definitions = [paragraph for paragraph in paragraphs if _DEFINITION.search(paragraph)]
    titles = [_read_prose(title[1] or title[2]) for title in _TITLE.finditer(text)]
    return next(iter([*definitions, *paragraphs, *titles[:1]]), "")


def _read_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of prose, one line each."""
    return list(filter(None, map(_read_prose, re.split(r"\n\s*\n", text.strip()))))


def _read_prose(paragraph: str) -> str:
    """Return a paragraph as one line; "" for headings, badges, lists and code."""
    prose = re.sub(r"(?m)^> |<[^>]+>|!\[[^\]]*\]\([^)]*\)", " ", paragraph, flags=re.DOTALL)
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    prose = re.sub(r"\s+", " ", _HEADING.sub("", prose.strip() + "\n")).strip()
    is_prose = re.search(r"[\u3400-\u9fff]{4}|[A-Za-z]\S* +\S*[A-Za-z]", prose)
    return "" if not is_prose or re.match(load_data("outline")["markup"], prose) else prose


def _find_purpose(file: FileText) -> str:
    """Return the first sentence that the file says about itself, "" if it says nothing."""
    rules = find_outline_rules(file.path)
    if rules.purpose and (match := re.search(rules.purpose, file.text)):
        return _first_sentence(next(filter(None, match.groups()), ""))
    head = _first_sentence(_find_head_comment(file.text))
    if not head and rules.about and (match := re.search(rules.about, file.text)):
        sentence = _first_sentence(match["text"])
        return sentence and f"{match['name']}: {sentence}"
    return head


def _find_head_comment(text: str) -> str:
    """Return the first comment that is not a licence or a setting and has only such before it."""
    outline = load_data("outline")
    head = "\n".join(text.split("\n")[:_HEAD_LINES])
    for match in _BLOCK.finditer(head):
        block = match[0].strip()
        words = _MARK.sub("", block).strip() if _MARK.match(block) else ""
        if words and not re.search(outline["noise"], words):
            return "" if re.match(outline["attached"], head[match.start() :]) else words
        if block and not _MARK.match(block) and not re.match(outline["preamble"], block):
            return ""
    return ""


def _first_sentence(text: str) -> str:
    text = re.sub(r"(?m)^[ \t]*\*?[ \t]?(?:@(?s:.*))?", "", text.strip())
    plain = re.sub(r"\s+", " ", text.split("\n\n")[0]).strip()
    plain = "" if re.match(load_data("outline")["markup"], plain) else plain
    paragraph = next(iter(_read_paragraphs(text)), plain)
    match = re.match(r".*?(?<!\be\.g)(?<!\bi\.e)[.!?。！？](?=\s|$)", paragraph)
    return match[0] if match else paragraph


def _list_names(file: FileText, say: Translator) -> str:
    """Return a phrase that lists the names a file defines; names with a leading _ are left out."""
    rules = find_outline_rules(file.path)
    matches = [match for pattern in rules.names for match in re.finditer(pattern, file.text)]
    all_names = dict.fromkeys(next(filter(None, match.groups()), "_") for match in matches)
    public = [name for name in all_names if not name.startswith("_")]
    if not public:
        return ""
    left = len(public) - _MOST_NAMES
    more = say("more_names", left=left) if left > 0 else ""
    names = ", ".join(public[:_MOST_NAMES])
    return say("defines" if rules.is_source else "sections", names=names, more=more)
