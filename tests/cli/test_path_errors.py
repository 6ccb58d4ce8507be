"""A folder that is exchanged while mudroom opens it: an error that says what to do."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from mudroom._cli import main as command_line
from mudroom._platform.open_beneath import find_real_path


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.ESTALE])
def test_the_error_of_a_path_names_it_and_a_remedy(
    code: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: list[str]) -> int:
        raise OSError(code, os.strerror(code), "/some/folder")

    monkeypatch.setattr(command_line, "_invoke", fail)
    assert command_line.run([]) == 1
    shown = capfd.readouterr().err
    assert f"{os.strerror(code)}: /some/folder. " in shown and "try again" in shown


def test_a_folder_that_is_exchanged_all_the_time_has_a_path(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    place, ended = tmp_path / "place", threading.Event()

    def swap() -> None:
        while not ended.is_set():
            for kind in ("folder", "link"):
                place.unlink() if place.is_symlink() else place.exists() and place.rmdir()
                place.mkdir() if kind == "folder" else place.symlink_to("folder")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        paths = {find_real_path(str(place)) for _ in range(2_000)}
    finally:
        ended.set()
        thread.join()
    assert paths <= {str(place), str(tmp_path / "folder")}
