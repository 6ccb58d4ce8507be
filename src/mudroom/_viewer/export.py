"""Exports a session as one HTML file: the page, its scripts and the events, without a server."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from html import escape
from importlib.resources import files

import msgspec

from .._projections.reason_words import REASON_WORDS
from .sources import SessionSource, iterate_pages
from .work import WorkQueries

_STYLE_LINK = re.compile(r'<link rel="stylesheet" href="([\w.-]+)">')
_SCRIPT_LINK = re.compile(r'<script defer src="([\w.-]+)"></script>')


def load_page_files() -> dict[str, bytes]:
    """Load the page's files by name, with a generated script of words used on screens."""
    folder = files("mudroom._viewer").joinpath("page")
    words = b"const REASON_WORDS = %b;\n" % msgspec.json.encode(REASON_WORDS)
    return {file.name: file.read_bytes() for file in folder.iterdir()} | {"reason_words.js": words}


async def render_single_file(source: SessionSource, session: str) -> AsyncIterator[str]:
    """Yield the text of a page with one session in it. Raises UnknownName, JournalError."""
    texts = {name: body.decode() for name, body in load_page_files().items()}
    head, foot = texts["index.html"].split("</body>")
    script = "\n".join(texts[name] for name in _SCRIPT_LINK.findall(head))
    style = "\n".join(texts[name] for name in _STYLE_LINK.findall(head))
    # The file is opened from disk and holds strangers' text: only these two blocks, by digest,
    # may run.
    policy = (
        f"default-src 'none'; script-src '{_compute_digest(script)}'; "
        f"style-src '{_compute_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    head = _STYLE_LINK.sub("", _SCRIPT_LINK.sub("", head))
    head = head.replace("<meta charset", f"{meta}<meta charset", 1)
    yield head.replace("</head>", f"<style>{style}</style>\n</head>", 1)
    yield f'<script type="application/json" id="embedded" data-session="{escape(session)}">'
    async for piece in _render_events(source, session):
        yield piece
    yield f"</script>\n<script>{script}</script>\n</body>{foot}"


async def _render_events(source: SessionSource, session: str) -> AsyncIterator[str]:
    """Yield the events as JSON without characters that could end the script element."""
    yield '{"events":['
    error = ""
    separator = ""
    queries = WorkQueries()
    async for page in iterate_pages(source, session):
        for position, body in page.events:
            yield separator + _escape_json(f"[{position},{body.decode()}]")
            separator = ","
            queries.observe(body)
        error = page.error
    yield '],"more":false,"error":' + _escape_json(msgspec.json.encode(error).decode())
    works = {run: await source.read_work(session, query) for run, query in queries.list_all()}
    yield f',"works":{_escape_json(msgspec.json.encode(works).decode())}}}'


def _escape_json(json: str) -> str:
    # "</script>" would end the element; U+2028 and U+2029 end a line in older JavaScript.
    return json.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _compute_digest(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()
