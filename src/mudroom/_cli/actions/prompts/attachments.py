"""Attachments of a prompt: the contents of mentioned files, and images."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ...._adapters.tools._image_files import MAX_IMAGE_BYTES, parse_image
from ...._core.listings import count_noun, format_size
from ...._core.messages import ImageBlock
from ...._platform.patterns import compile_later
from ...._platform.regular_files import read_regular_file
from ...._projections.safe_text import sanitize_line
from ...._session.config import Settings
from ....errors import WorkspaceError
from ....permissions.rules import Verdict
from .mentions import find_mentions

if TYPE_CHECKING:
    from ...._session.session import Session

# Bytes of a text file that is attached; the model reads parts of a larger one itself.
MAX_TEXT_BYTES = 100_000

# A word of a line, in quotes or not. Each character is looked at a bounded number of times, because
# a line may be one word of a million characters, as in Chinese.
_WORD = compile_later(r"""(?<!\S)"[^"]+"(?!\S)|(?<!\S)'[^']+'(?!\S)|(?:\\.|[^\s\\])+""")
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
# Linux allows no longer path; longer words need not be looked up.
_MAX_PATH = 4_096


class Attachments(Struct):
    """Files that are sent with a prompt.

    Arguments:
        text: contents of the text files, as the model gets them; "" for none.
        words: mentions whose contents are attached.
        notes: one line per file for the user.
    """

    text: str = ""
    words: list[str] = field(default_factory=list[str])
    images: list[ImageBlock] = field(default_factory=list[ImageBlock])
    notes: list[str] = field(default_factory=list[str])


def remove_attachments(prompt: str) -> str:
    """Return a recorded prompt without the contents of its files."""
    return prompt.partition('\n\n<file path="')[0]


def load_attachments(
    session: Session,
    settings: Settings,
    line: str,
    *,
    without: Collection[str] = (),
    typed: str | None = None,
) -> Attachments:
    """Read the files that a line mentions with "@", and the images whose paths it contains.

    Arguments:
        without: mentions that name no file.
        typed: the part of the line that the user wrote, None for all of it.
    """
    attachments = Attachments()
    paths = [each for each in _find_paths(session.cwd, line) if each[0] not in without]
    if not paths:
        return attachments
    from ...._adapters.tools.read import READ  # slow to import, as are the next two
    from ..load_permissions import load_permissions, make_policy

    permissions, _ = load_permissions(settings, session.cwd, can_ask=True)
    policy = make_policy(permissions, session.cwd)
    # An image outside the workspace is read only if the user names it: a stranger's file must not
    # send one.
    own = {path for _, path in (paths if typed is None else _find_paths(session.cwd, typed))}
    for word, path in paths:
        absolute = os.path.join(session.cwd, path)
        if os.path.isdir(absolute):
            continue
        verdicts = [
            policy.decide(READ, {"file_path": name}, permissions.mode)
            # Judged under both names: a link must not lead around a rule.
            for name in (absolute, os.path.realpath(absolute))
        ]
        denied = next((verdict for verdict in verdicts if verdict.verdict == Verdict.DENY), None)
        if denied:
            _add_note(attachments, path, f"not attached: {denied.why}")
        else:
            _attach(attachments, session, word, path, reads_outside=path in own)
    return attachments


def _find_paths(folder: str, line: str) -> Iterator[tuple[str, str]]:
    """Yield (mention or "", path) of the existing files in a line, each path once."""
    seen: set[str] = set()
    for word in find_mentions(line):
        path = os.path.expanduser(word)
        if path not in seen and os.path.lexists(os.path.join(folder, path)):
            seen.add(path)
            yield word, path
    # Lines with line feeds are pasted: paths in them without "@" are not meant.
    if "\n" in line:
        return
    for path in list_image_paths(line):
        if path not in seen and os.path.isfile(os.path.join(folder, path)):
            seen.add(path)
            yield "", path


def list_image_paths(line: str) -> Iterator[str]:
    """Yield the words of a line that are paths of images, as a terminal inserts dropped files."""
    for match in _WORD.finditer(line):
        word = match[0]
        if len(word) > _MAX_PATH:
            continue
        if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'":
            word = word[1:-1]
        else:
            # Terminals put a backslash before blanks.
            word = re.sub(r"\\(.)", r"\1", word)
        if word.lower().endswith(_IMAGE_SUFFIXES):
            yield os.path.expanduser(word)


def _attach(
    attachments: Attachments, session: Session, word: str, path: str, *, reads_outside: bool
) -> None:
    """Attach one file, or add a note why only its path is sent."""
    try:
        data = _read(session, path, reads_outside=reads_outside)
    except (OSError, WorkspaceError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _add_note(attachments, path, f"only the path is sent: {reason}")
        return
    image = parse_image(data) if len(data) <= MAX_IMAGE_BYTES else None
    if image:
        attachments.images.append(image)
        pixels = f"{image.width}x{image.height} pixels"
        _add_note(attachments, path, f"image attached, {pixels}, {format_size(len(data))}")
        return
    if not word:
        reason = f"not a complete image of at most {format_size(MAX_IMAGE_BYTES)}"
        _add_note(attachments, path, f"only the path is sent: {reason}")
        return
    if len(data) > MAX_TEXT_BYTES:
        reason = f"more than {format_size(MAX_TEXT_BYTES)}; the model reads parts of it"
        _add_note(attachments, path, f"only the path is sent: {reason}")
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Treated like other binary files.
        text = "\0"
    if "\0" in text:
        _add_note(attachments, path, "only the path is sent: not text in UTF-8")
    else:
        from ...._adapters.output_filters import Redactor
        from ...._projections.engine_text import quote, wrap

        lines = count_noun(len(text.splitlines()), "line")
        attachments.words.append(word)
        content = Redactor(os.environ)(text).rstrip("\n")
        attachments.text += f"\n\n{wrap('file', quote(content), path=path)}"
        _add_note(attachments, path, f"attached, {lines}, {format_size(len(data))}")


def _read(session: Session, path: str, *, reads_outside: bool) -> bytes:
    """Read a file of the workspace; outside of it, only an image that the user names."""
    try:
        return session.workspace.read(path, 0, MAX_IMAGE_BYTES + 1)
    except WorkspaceError:
        if not reads_outside or not path.lower().endswith(_IMAGE_SUFFIXES):
            raise
        return read_regular_file(path, max_bytes=MAX_IMAGE_BYTES)


def _add_note(attachments: Attachments, path: str, text: str) -> None:
    attachments.notes.append(f"{sanitize_line(path)}: {text}")
