"""Hashes of the contents of files and links, as the record of a write has them."""

from __future__ import annotations

from hashlib import sha256

from ..._core.ports import Workspace
from ...errors import WorkspaceError

_LINK = "link:"
"""Start of the hash of a link: the sha256 of its path follows."""

_BLOCK_SIZE = 1 << 20
"""Bytes read at once to hash a file."""


def hash_file(workspace: Workspace, path: str) -> str:
    """Return the sha256 of a file's bytes, "" if it does not exist or cannot be read."""
    digest = sha256()
    offset = 0
    try:
        while block := workspace.read(path, offset, _BLOCK_SIZE):
            digest.update(block)
            offset += len(block)
            if len(block) < _BLOCK_SIZE:
                break
    except WorkspaceError:
        return ""
    return digest.hexdigest()


def hash_link(target: bytes) -> str:
    """Return the hash of a link."""
    return _LINK + sha256(target).hexdigest()


def is_link_hash(text: str) -> bool:
    """Return whether a hash is that of a link."""
    return text.startswith(_LINK)


def hash_entry(workspace: Workspace, path: str) -> str:
    """Return the hash of a link itself; of anything else as `hash_file`."""
    target = workspace.local.read_link(path) if workspace.local else None
    return hash_file(workspace, path) if target is None else hash_link(target)


def hash_present(workspace: Workspace, path: str, *recorded: str) -> str:
    """Return the hash of a file, to compare it with those in the record of a write."""
    has_link = any(map(is_link_hash, recorded))
    return hash_entry(workspace, path) if has_link else hash_file(workspace, path)


def read_entry(workspace: Workspace, path: str, size: int, *recorded: str) -> bytes:
    """Return the first bytes of a file; of a link its path, if one of the hashes is of a link."""
    if any(map(is_link_hash, recorded)) and workspace.local:
        target = workspace.local.read_link(path)
        if target is not None:
            return target
    return workspace.read(path, 0, size)
