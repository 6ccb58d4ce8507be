"""The two phases of a landing, and the recovery of an interrupted one.

First every new file is written beside its target, which reveals missing rights or space. Only then
do the files get their names. After an error, or if the user saved one of the files meanwhile, those
already renamed are put back.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from ....._core.ports import FileChangedError, MergedFile
from ....._platform.protected_names import UNFINISHED_PREFIX
from .....errors import WorkspaceError
from ..._errors import check_unprotected, explain
from ..store import list_parents
from .files import Contents, LandingFolder, list_planned
from .landing_record import InnerFile, LandingFile, LandingPlan, LandingRecord

_PREFIX = f"{UNFINISHED_PREFIX}.landing-"
"""Prefix of temporary files. The clean-up after single writes leaves them alone."""


class Landing:
    """Lands files in one folder, one merge at a time: the caller holds the folder's lock."""

    def __init__(self, root: str, record: Path, contents: Contents) -> None:
        self._root = root
        self._record = LandingRecord(record)
        self._contents = contents

    @property
    def is_begun(self) -> bool:
        """True while another process or thread is landing files, or after it was killed."""
        return self._record.exists

    def land(self, files: Sequence[MergedFile], on_staged: Callable[[], object]) -> None:
        """Write and remove files: all of them, or none.

        `on_staged` is called before the first rename; if it raises, nothing is changed.

        Raises FileChangedError if a file is not as the merge expects, and WorkspaceError if one
        cannot be written. The folder is then as before, with anything the user saved meanwhile.
        """
        with (
            _explain_errors(".", self._root),
            closing(LandingFolder(self._root, self._contents)) as folder,
        ):
            plan = self._make_plan(folder, files)
            for file in plan.files:
                with _explain_errors(file.path, self._root):
                    folder.require_unchanged(file)
            plan = self._stage(folder, plan, on_staged)
            done: list[LandingFile] = []
            try:
                for file in plan.files:
                    with _explain_errors(file.path, self._root):
                        folder.rename(file)
                    done.append(file)
            except BaseException as error:
                # Without an atomic exchange, a rename takes several steps, and the last may fail.
                # A file changed by the user has already been put back.
                if not isinstance(error, FileChangedError):
                    begun = plan.files[len(done) : len(done) + 1]
                    done += [file for file in begun if _has_new_name(folder, file)]
                self._undo(folder, plan, done, error)
                raise
            self._finish(folder, plan)

    def recover(self) -> None:
        """Finish a killed landing, or undo it if it cannot be finished.

        Raises WorkspaceError if neither is possible; a later call tries again.
        """
        plan = self._record.read()
        if plan is None:
            return
        with _explain_errors(".", plan.root):
            if not os.path.isdir(plan.root):  # the folder is gone, with all its files
                self._record.remove()
                return
            with closing(LandingFolder(plan.root, self._contents)) as folder:
                self._recover(folder, plan)

    def _recover(self, folder: LandingFolder, plan: LandingPlan) -> None:
        if self._record.is_landed:
            self._finish(folder, plan)
            return
        if self._record.is_undone or not plan.is_staged:
            self._remove_staged(folder, plan)
            return
        done = [file for file in plan.files if folder.is_renamed(file)]
        try:
            for file in plan.files:
                if file not in done:
                    folder.stage_again(file)
                    folder.rename(file)
                    done.append(file)
        except (OSError, WorkspaceError) as error:
            self._undo(folder, plan, done, error)
        else:
            self._finish(folder, plan)

    def _make_plan(self, folder: LandingFolder, files: Sequence[MergedFile]) -> LandingPlan:
        token = secrets.token_hex(8)
        for file in files:
            check_unprotected(file.path, file.path)
        landing = tuple(
            self._make_file(folder, file, inner, f"{_PREFIX}{token}-{number}")
            for number, (file, inner) in enumerate(_join_folders(files))
        )
        folders = folder.find_missing_folders(file.path for file in landing if file.after)
        return LandingPlan(folder.root, landing, tuple(folders))

    def _make_file(
        self,
        folder: LandingFolder,
        file: MergedFile,
        inner: tuple[InnerFile, ...] | None,
        temporary: str,
    ) -> LandingFile:
        old, new = (inner, None) if file.after else (None, inner)
        before, after = file.before, file.after
        if new is not None:
            after = self._contents.find_id(list_planned(new))
        elif not before and folder.is_folder(file.path):
            # Trees have no empty folders: to git, nothing is in the new file's way.
            old = old or ()
        if old is not None:
            before = self._contents.find_id(list_planned(old))
        return LandingFile(
            file.path,
            temporary,
            before,
            after,
            file.mode,
            file.was_link,
            old_files=old,
            new_files=new,
        )

    def _stage(
        self, folder: LandingFolder, plan: LandingPlan, on_staged: Callable[[], object]
    ) -> LandingPlan:
        """Write all new files beside their targets; return the updated plan."""
        if self._record.exists:
            # The temporary files of an ended landing cannot be removed. Its mark must not tell a
            # later process that this landing has also ended.
            with _explain_errors(".", self._root):
                self._record.remove()
        self._save(plan)
        try:
            staged: list[LandingFile] = []
            for file in plan.files:
                with _explain_errors(file.path, self._root):
                    staged.append(folder.stage(file))
            on_staged()
            plan = replace(plan, files=tuple(staged), is_staged=True)
            self._save(plan)
        except BaseException:
            self._remove_staged(folder, plan)
            raise
        return plan

    def _save(self, plan: LandingPlan) -> None:
        try:
            self._record.save(plan)
        except OSError as error:
            raise WorkspaceError(
                f"the merge cannot be recorded in mudroom's state folder: {error.strerror}",
                remedy="Look at the room on its disk, and at its rights.",
            ) from error

    def _finish(self, folder: LandingFolder, plan: LandingPlan) -> None:
        """Remove the old files, and folders left empty."""
        folder.sync(plan.files)
        # Without the mark, `recover` finds out by looking at the files.
        with suppress(OSError):
            self._record.mark_landed()
        if self._remove_temporary_files(folder, plan):
            # As git does: an empty folder would be in the way of a file with its name.
            emptied = list_parents(file.path for file in plan.files if not file.after)
            for path in sorted(emptied, reverse=True):
                folder.remove_empty(path)
            self._record.remove()

    def _remove_staged(self, folder: LandingFolder, plan: LandingPlan) -> None:
        """Remove the new files, and the folders made for them."""
        with suppress(OSError):
            self._record.mark_undone()
        if self._remove_temporary_files(folder, plan):
            for path in reversed(plan.folders):
                folder.remove_empty(path)
            self._record.remove()

    def _remove_temporary_files(self, folder: LandingFolder, plan: LandingPlan) -> bool:
        """Remove them; return whether all are gone. If not, the record stays for `recover`."""
        are_gone = True
        for file in plan.files:
            try:
                folder.remove_temporary(file)
            except OSError:
                are_gone = False
        return are_gone

    def _undo(
        self,
        folder: LandingFolder,
        plan: LandingPlan,
        done: Sequence[LandingFile],
        cause: BaseException,
    ) -> None:
        """Put back renamed files, last one first.

        A file that the user saved over the new one stays. Raises WorkspaceError if a file cannot be
        put back; the record then stays, and `recover` tries again.
        """
        stuck: list[str] = []
        for file in reversed(done):
            try:
                folder.undo(file)
            except FileChangedError:
                continue
            except OSError:
                stuck.append(file.path)
        if stuck:
            raise WorkspaceError(
                f"{cause} These files could not be put back: {', '.join(stuck)}",
                remedy="The next start of mudroom in this folder tries again.",
            ) from cause
        folder.sync(plan.files)
        self._remove_staged(folder, plan)


def _join_folders(
    files: Sequence[MergedFile],
) -> Iterator[tuple[MergedFile, tuple[InnerFile, ...] | None]]:
    """Yield each file of a merge, with the files of any folder exchanged for it.

    Those are removed with a folder that a file replaces, or arrive with a folder that replaces a
    file. They are not yielded separately; all other files have None.
    """
    above_written = list_parents(file.path for file in files if file.after)
    above_removed = list_parents(file.path for file in files if not file.after)
    exchanged: dict[str, list[InnerFile]] = {
        file.path: []
        for file in files
        if file.path in (above_removed if file.after else above_written)
    }
    alone: list[MergedFile] = []
    for file in files:
        tops = list_parents((file.path,)) & exchanged.keys() if exchanged else ()
        for top in tops:
            content = file.after or file.before
            exchanged[top].append(InnerFile(file.path[len(top) + 1 :], content, file.mode))
        if not tops:
            alone.append(file)
    for file in alone:
        inner = exchanged.get(file.path)
        yield file, None if inner is None else tuple(inner)


def _has_new_name(folder: LandingFolder, file: LandingFile) -> bool:
    try:
        return folder.is_renamed(file)
    except OSError:
        return True  # undoing it will report the problem


@contextmanager
def _explain_errors(path: str, root: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise explain(error, path, root) from error
