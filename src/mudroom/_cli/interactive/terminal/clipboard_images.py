"""Images from the clipboard, saved as files that a prompt can name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from ...._adapters.tools._image_files import MAX_IMAGE_BYTES, parse_image
from ...._platform.private_files import make_private_file, make_private_folder
from ....errors import UsageError

# Folder for saved images in mudroom's state folder.
FOLDER = "pasted"

_READ_SECONDS = 5
_KEPT_SECONDS = 86_400
_TYPE = "image/png"


def save_clipboard_image(home: str, environ: Mapping[str, str]) -> str:
    """Save the clipboard's image; return the path of its file.

    Raises UsageError if there is no image, or no program to read the clipboard.
    """
    command = _choose_command(environ)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_READ_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or "it does not answer"
        raise UsageError(f"the clipboard cannot be read: {reason}", where=command[0]) from None
    image = parse_image(done.stdout) if len(done.stdout) <= MAX_IMAGE_BYTES else None
    if image is None:
        raise UsageError("the clipboard has no image", remedy="Copy one, or write its path.")
    folder = Path(home, FOLDER)
    make_private_folder(folder)
    _delete_old_files(folder)
    path = folder / f"{uuid.uuid4().hex[:8]}.{image.media_type.rpartition('/')[2]}"
    make_private_file(path)
    path.write_bytes(done.stdout)
    return str(path)


def _choose_command(environ: Mapping[str, str]) -> list[str]:
    commands: list[list[str]] = []
    if environ.get("WAYLAND_DISPLAY"):
        commands.append(["wl-paste", "--no-newline", "--type", _TYPE])
    if environ.get("DISPLAY"):
        commands.append(["xclip", "-selection", "clipboard", "-target", _TYPE, "-out"])
    if sys.platform == "darwin":
        commands.append(["pngpaste", "-"])
    for command in commands:
        if program := shutil.which(command[0], path=environ.get("PATH")):
            return [program, *command[1:]]
    if commands:
        names = " or ".join(command[0] for command in commands)
        raise UsageError("the clipboard cannot be read", remedy=f"Install {names}.")
    raise UsageError(
        "there is no clipboard: this terminal has no display",
        remedy="Save the image and write its path.",
    )


def _delete_old_files(folder: Path) -> None:
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - _KEPT_SECONDS:
            path.unlink(missing_ok=True)
