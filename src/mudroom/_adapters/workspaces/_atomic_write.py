"""Atomic writes in an open folder: readers see the old file or the new one, never a part.

A file keeps its owner, extended attributes and other names: if a rename would separate it from its
owner or its other names, it is rewritten in place. A rename replaces a file only if its content is
as expected, even while others write it.
"""

from __future__ import annotations

import errno
import functools
import os
import secrets
import stat
import sys
from collections.abc import Callable
from contextlib import suppress

from ..._core.ports import ContentCheck, FileChangedError, LinkTarget
from ..._platform.protected_names import UNFINISHED_PREFIX

EntryReader = Callable[[int, str], bytes | None]
"""Reads an entry of an open folder; see `read_entry`."""

_NO_REPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)

_SPARE = ".old"  # suffix of a second link to a file about to be replaced


def replace_checked(
    folder: int,
    temporary: str,
    name: str,
    check: ContentCheck,
    read: EntryReader | None = None,
) -> None:
    """Rename a temporary file over another, which gets the temporary name.

    If there was no other file, the temporary name is free afterwards. `read` replaces `read_entry`
    where one of the two may be a folder. Raises FileChangedError and leaves the other file as it
    was if its content is not as expected.
    """
    read = read or read_entry
    present = read(folder, name)
    if not check(present):
        raise FileChangedError(name)
    flags = _NO_REPLACE if present is None else _EXCHANGE
    try:
        _rename(folder, temporary, name, flags)
    except (FileExistsError, FileNotFoundError):  # just made, or just removed
        raise FileChangedError(name) from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _exchange_in_steps(folder, temporary, name, is_new=present is None)
        return
    if present is None:
        return
    try:
        if check(replaced := read(folder, temporary)):
            return
    except OSError:  # such as a pipe in place of the file
        _rename(folder, temporary, name, _EXCHANGE)
        raise FileChangedError(name) from None
    # The file was written after it was read: put it back, and keep anything written meanwhile.
    written = read(folder, name)
    _rename(folder, temporary, name, _EXCHANGE)
    if read(folder, temporary) not in (written, replaced):
        _rename(folder, temporary, name, _EXCHANGE)
    raise FileChangedError(name)


def _exchange_in_steps(folder: int, temporary: str, name: str, *, is_new: bool) -> None:
    """Exchange two files where the kernel or file system cannot do it in one step.

    `name` always has the old file or the new one. A kill in between leaves the old file under its
    spare name; see `finish_exchange`.
    """
    if is_new:
        try:
            put_back(folder, temporary, name)
        except FileExistsError:
            raise FileChangedError(name) from None
        return
    spare = temporary + _SPARE
    if _is_folder(folder, name) or _is_folder(folder, temporary):
        # Neither can be renamed over the other, so the name is free for a moment.
        os.rename(name, spare, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            put_back(folder, temporary, name)
        except OSError as error:
            with suppress(FileExistsError):
                put_back(folder, spare, name)
            if not isinstance(error, FileExistsError):
                raise
            raise FileChangedError(name) from None
    else:
        _copy_entry(folder, name, spare)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(spare, temporary, src_dir_fd=folder, dst_dir_fd=folder)


def finish_exchange(folder: int, temporary: str, name: str) -> None:
    """Finish an exchange that was killed halfway: the old file gets the temporary name.

    If nothing had been exchanged yet, this removes the spare link, or gives a folder its name
    back.
    """
    spare = temporary + _SPARE
    if not entry_exists(folder, spare):
        return
    if not entry_exists(folder, temporary):
        os.rename(spare, temporary, src_dir_fd=folder, dst_dir_fd=folder)
    elif entry_exists(folder, name):
        os.unlink(spare, dir_fd=folder)
    else:
        put_back(folder, spare, name)


def _copy_entry(folder: int, name: str, copy: str) -> None:
    """Make a hard link, or a copy where links are impossible. Raises FileExistsError."""
    try:
        os.link(name, copy, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        return
    except OSError as error:
        if error.errno not in (*_UNSUPPORTED, errno.EPERM):
            raise
    data = read_entry(folder, name)
    if data is None:
        raise FileChangedError(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(copy, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        os.fchmod(file.fileno(), stat.S_IMODE(mode))


def remove_checked(folder: int, name: str, temporary: str, check: ContentCheck) -> None:
    """Remove a file if its content is as expected, renaming it to an unused name first."""
    set_aside_checked(folder, name, temporary, check)
    os.unlink(temporary, dir_fd=folder)


def set_aside_checked(folder: int, name: str, temporary: str, check: ContentCheck) -> None:
    """Give a file a temporary name if its content is as expected; else raise FileChangedError."""
    try:
        os.rename(name, temporary, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:  # already removed
        raise FileChangedError(name) from None
    try:
        if check(read_entry(folder, temporary)):
            return
    except OSError:  # not a file
        pass
    with suppress(FileExistsError):  # written again meanwhile
        put_back(folder, temporary, name)
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    raise FileChangedError(name)


def put_back(folder: int, temporary: str, name: str) -> None:
    """Give a file its name back. Raises FileExistsError if another file has taken it."""
    try:
        _rename(folder, temporary, name, _NO_REPLACE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        if _is_folder(folder, temporary):
            if entry_exists(folder, name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
            # Fails if a file has just been made there; an empty folder is replaced.
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        _copy_entry(folder, temporary, name)
        os.unlink(temporary, dir_fd=folder)


def read_link(folder: int, name: str) -> LinkTarget | None:
    try:
        return LinkTarget(os.fsencode(os.readlink(name, dir_fd=folder)))
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def read_entry(folder: int, name: str) -> bytes | None:
    """Read a regular file or a link; None if there is none.

    Raises OSError for anything else: a file of a moment ago may now be a pipe.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return read_link(folder, name)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        return file.read()


def stat_entry(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_folder(folder: int, name: str) -> bool:
    facts = stat_entry(folder, name)
    return facts is not None and stat.S_ISDIR(facts.st_mode)


def entry_exists(folder: int, name: str) -> bool:
    return stat_entry(folder, name) is not None


@functools.cache
def _find_function() -> Callable[..., int] | None:
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _rename(folder: int, old: str, new: str, flags: int) -> None:
    import ctypes

    rename = _find_function()
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(folder, os.fsencode(old), folder, os.fsencode(new), flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), new)


_PREFIX = f"{UNFINISHED_PREFIX}-"


def write_atomically(
    folder: int,
    name: str,
    data: bytes,
    old: os.stat_result | None,
    mode: int | None,
    check: ContentCheck | None = None,
) -> None:
    """Write a temporary file, make it durable and rename it over the old one."""

    if old is not None and mode is None and check is None and has_other_names(old):
        rewrite_in_place(folder, name, data, old)
        return
    temporary = _make_name()
    keeps_owner = write_entry(folder, temporary, data, old, mode, old_name=name)
    if old is not None and mode is None and check is None and not keeps_owner:
        os.unlink(temporary, dir_fd=folder)
        rewrite_in_place(folder, name, data, old)
        return
    try:
        if check is None:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            replace_checked(folder, temporary, name, check)
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        with suppress(FileNotFoundError):  # already renamed
            os.unlink(temporary, dir_fd=folder)
        raise


def write_entry(
    folder: int,
    name: str,
    data: bytes,
    old: os.stat_result | None,
    mode: int | None,
    *,
    old_name: str,
    permissions: int = 0o666,
) -> bool:
    """Write a new file or link durably. After an error, it is removed again.

    Arguments:
        old: facts about the file `old_name`; the new file gets its owner, attributes and mode.
        mode: see `Workspace.write`.
        permissions: of a file without `old` and `mode`, before the umask.

    Returns False if the file could not be given the old owner.
    """
    if mode is not None and stat.S_ISLNK(mode):
        os.symlink(data, os.fsencode(name), dir_fd=folder)
        return True
    keeps_owner = True
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A file that will be private must not be readable while it is written.
    at_first = permissions if mode is None and old is None else 0o600
    descriptor = os.open(name, flags, at_first, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                keeps_owner = keep_owner(descriptor, old)
                keep_attributes(descriptor, folder, old_name)
            if mode is None and old is not None:
                mode = stat.S_IMODE(old.st_mode)
            if mode is not None:
                os.fchmod(descriptor, mode & 0o777)
            os.fsync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise
    return keeps_owner


def remove_file(folder: int, name: str, check: ContentCheck | None) -> None:
    if check is None:
        os.unlink(name, dir_fd=folder)
    else:
        remove_checked(folder, name, _make_name(), check)


def _make_name() -> str:
    return f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"


def remove_temporary_files(folder: int) -> None:
    """Remove temporary files left in a folder by ended processes."""
    for name in os.listdir(folder):
        if name.startswith(_PREFIX) and not _is_in_use(name):
            os.unlink(name, dir_fd=folder)


def _is_in_use(temporary: str) -> bool:
    pid = temporary.removeprefix(_PREFIX).partition("-")[0]
    if os.path.exists("/proc/self"):
        return os.path.exists(f"/proc/{pid}")
    return pid == str(os.getpid())


_IN_PLACE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def has_other_names(old: os.stat_result | None) -> bool:
    """Return whether the file has other hard links, which a rename would separate from it."""
    return old is not None and stat.S_ISREG(old.st_mode) and old.st_nlink > 1


def keep_owner(descriptor: int, old: os.stat_result) -> bool:
    """Give a new file the old one's owner and group. Return whether that is permitted."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid):
        return True
    try:
        os.fchown(descriptor, old.st_uid, old.st_gid)
    except PermissionError:
        return False  # only root may give a file away
    return True


def keep_attributes(descriptor: int, folder: int, name: str) -> None:
    """Copy an old file's extended attributes to a new one: user attributes and access lists.

    The old file's access list replaces any default the new file got from its folder. Attributes
    that the user may not set are left out, as are all on a file system without them.
    """
    if sys.platform != "linux":
        return
    try:
        old = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return  # the file is writable but not readable
    try:
        kept = set(os.listxattr(old))
        for attribute in set(os.listxattr(descriptor)) - kept:
            with suppress(OSError):
                os.removexattr(descriptor, attribute)
        for attribute in kept:
            with suppress(OSError):
                os.setxattr(descriptor, attribute, os.getxattr(old, attribute))
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
    finally:
        os.close(old)


def rewrite_in_place(folder: int, name: str, data: bytes, old: os.stat_result) -> None:
    """Replace a file's content, keeping the file itself.

    A reader may see part of the new content, so this is only for files that a rename would change:
    those with other names, or owned by another user. Space is reserved first, and the old content
    is put back if the new one cannot be written.
    """
    descriptor = os.open(name, _IN_PLACE_FLAGS, dir_fd=folder)
    with open(descriptor, "r+b", buffering=0) as file:
        present = os.fstat(descriptor)
        if (present.st_dev, present.st_ino) != (old.st_dev, old.st_ino):
            raise OSError(errno.ESTALE, "another file has taken its name", name)
        content = file.read()
        try:
            if len(data) > len(content):
                os.posix_fallocate(descriptor, len(content), len(data) - len(content))
            _overwrite(descriptor, data)
        except OSError:
            with suppress(OSError):
                _overwrite(descriptor, content)
            raise


def _overwrite(descriptor: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], written)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)
