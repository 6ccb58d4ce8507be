"""Converts HTML to plain text; headings, lists, links and code keep their form."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_DROPPED_TAGS = "script style noscript template svg iframe object canvas"
_BLOCK_TAGS = (
    "address article aside blockquote dd div dl dt fieldset figcaption figure footer form header "
    "hr main nav ol p pre section table tbody thead ul"
)
_DROPPED = frozenset(_DROPPED_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"\n[ \n]*\n")


def convert_html(html: str, url: str) -> str:
    """Convert an HTML page to text; links become `[text](address)`, resolved against `url`."""
    converter = _Converter(url)
    converter.feed(html)
    converter.close()
    text = "".join(converter.parts)
    return _BLANK_LINES.sub("\n\n", text).strip()


class _Converter(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._url = url
        self._dropped: list[str] = []
        self._links: list[str] = []
        self._pre_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _DROPPED or self._dropped:
            self._dropped += [tag] if tag in _DROPPED else []
            return
        if tag == "a":
            target = dict(attrs).get("href") or ""
            self._links.append(self._resolve_link(target))
            if self._links[-1]:
                self.parts.append("[")
        elif tag in ("br", "tr"):
            self._start_line("")
        elif tag == "li":
            self._start_line("- ")
        elif tag in ("td", "th"):
            is_first = not self.parts or self.parts[-1].endswith("\n")
            self.parts.append("| " if is_first else " | ")
        elif tag in _HEADINGS or tag == "title":
            self._start_block(f"{_HEADINGS.get(tag, '#')} ")
        elif tag in _BLOCKS:
            self._start_block("```\n" if tag == "pre" else "")
            self._pre_depth += tag == "pre"
        elif tag == "code" and not self._pre_depth:
            self.parts.append("`")

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            if tag == self._dropped[-1]:
                self._dropped.pop()
            return
        if tag == "a" and self._links:
            if target := self._links.pop():
                self.parts.append(f"]({target})")
        elif tag == "pre" and self._pre_depth:
            self._pre_depth -= 1
            self._start_line("```")
            self._start_block("")
        elif tag in _BLOCKS or tag in _HEADINGS or tag == "title":
            self._start_block("")
        elif tag == "code" and not self._pre_depth:
            self.parts.append("`")

    def handle_data(self, data: str) -> None:
        if self._dropped:
            return
        if self._pre_depth:
            self.parts.append(data)
            return
        text = _SPACE.sub(" ", data)
        if not self.parts or self.parts[-1].endswith((" ", "\n", "[")):
            text = text.lstrip()
        if text:
            self.parts.append(text)

    def _start_line(self, text: str) -> None:
        self.parts.append(f"\n{text}")

    def _start_block(self, text: str) -> None:
        self.parts.append(f"\n\n{text}")

    def _resolve_link(self, target: str) -> str:
        """Make a link absolute; "" if it leads to no other page."""
        try:
            address = urljoin(self._url, target.strip())
        except ValueError:
            return ""
        is_page = address.startswith(("http://", "https://")) and not target.startswith("#")
        return address if target and is_page else ""
