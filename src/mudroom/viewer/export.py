"""A session as one file: the viewer's page with its parts and the events inside. It needs no server and asks for nothing."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator
from importlib.resources import files

import msgspec

from .sources import SessionSource, iterate_pages

_STYLE = re.compile(r'<link rel="stylesheet" href="([\w.-]+)">')
_SCRIPT = re.compile(r'<script defer src="([\w.-]+)"></script>')


def load_page_files() -> dict[str, bytes]:
    """The page and its parts, by name."""
    return {
        part.name: part.read_bytes() for part in files("mudroom.viewer").joinpath("page").iterdir()
    }


def render_single_file(source: SessionSource, session: str) -> Iterator[str]:
    """The page with everything in it, piece by piece.

    Arguments:
        session: the whole id of one of the source's.

    Raises UnknownName, JournalError.
    """
    parts = {name: body.decode() for name, body in load_page_files().items()}
    head, foot = parts["index.html"].split("</body>")
    scripts = "\n".join(parts[name] for name in _SCRIPT.findall(head))
    style = "\n".join(parts[name] for name in _STYLE.findall(head))
    policy = (
        f"default-src 'none'; script-src '{_digest(scripts)}'; style-src '{_digest(style)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    head = _STYLE.sub("", _SCRIPT.sub("", head))
    yield head.replace(
        "<meta charset",
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta charset',
        1,
    ).replace("</head>", f"<style>{style}</style>\n</head>", 1)
    yield f'<script type="application/json" id="given" data-session="{_attribute(session)}">'
    yield from _data(source, session)
    yield f"</script>\n<script>{scripts}</script>\n</body>{foot}"


def _data(source: SessionSource, session: str) -> Iterator[str]:
    """Events as JSON in which no character could end the element they are in."""
    yield '{"events":['
    trouble, first = "", True
    for page in iterate_pages(source, session):
        for seq, body in page.events:
            yield ("" if first else ",") + _inert(f"[{seq},{body.decode()}]")
            first = False
        trouble = page.error
    yield '],"more":false,"trouble":' + _inert(msgspec.json.encode(trouble).decode()) + "}"


def _inert(json: str) -> str:
    return json.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _digest(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()
