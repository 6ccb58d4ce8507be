"""Context files, outermost first: a user's and a project's AGENTS.md, CLAUDE.md, GEMINI.md."""

from __future__ import annotations

import os
import re
from bisect import bisect
from collections.abc import Iterator

from msgspec import Struct

from ..._platform.git_folders import list_project_folders
from ..._platform.open_beneath import find_real_path, is_beneath
from ..._platform.patterns import compile_later
from ..._projections.engine_text import wrap
from .safe_read import Diagnostic, FileDiagnostics, Severity, read_text

MAX_TOTAL_BYTES = 32 << 10  # for all context files together
MAX_IMPORT_DEPTH = 5  # levels of files importing one another
# For a file and its imports. Each attempt looks at the disk, and a file may contain any number of
# words beginning with "@".
MAX_IMPORTS_TRIED = 1_000

_IMPORT = compile_later(r"(?<![\w`@/.])@([^\s`'\"<>]+)")
_FENCE = compile_later(r"\s*(`{3,}|~{3,})")
_BACKTICKS = compile_later(r"`+")
_TITLE = "Instructions from files of the user and of this project; later ones take precedence:"
_TITLE_BEFORE_TRUST = (
    "Instructions from files of this project, which the user has not trusted, and of the user; "
    "those of the user come last and take precedence:"
)


class ContextFile(Struct, frozen=True):
    """A context file, with its imports filled in."""

    path: str
    text: str
    is_personal: bool = False  # in the user's home
    omitted_bytes: int = 0  # cut from the end because of MAX_TOTAL_BYTES


class ContextFiles(Struct, frozen=True):
    """The context files, lowest precedence first, and their diagnostics."""

    files: tuple[ContextFile, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    trusts_folder: bool = True

    def to_prompt(self, *, include_personal: bool = True) -> str:
        files = [file for file in self.files if include_personal or not file.is_personal]
        if not files:
            return ""
        title = _TITLE if self.trusts_folder else _TITLE_BEFORE_TRUST
        return "\n".join([title, *map(_format, files)])


# The user's own instructions in a project, kept out of its repository.
_LOCAL = "CLAUDE.local.md"


def load_context_files(
    folder: str,
    *,
    user_home: str,
    max_bytes: int = MAX_TOTAL_BYTES,
    trusts_folder: bool = True,
    reads_local: bool = True,
) -> ContextFiles:
    """Load the context files that apply to a folder.

    The innermost file takes precedence. Before the user trusts the folder, the user's own files
    take precedence, and a long project file does not push them out.

    Arguments:
        folder, user_home: "" leaves either out.
        max_bytes: for all files together; those with the lowest precedence are cut first.
        reads_local: read CLAUDE.local.md.
    """
    files: list[ContextFile] = []
    diagnostics: list[Diagnostic] = []
    seen_paths = set[str]()
    seen_texts = set[str]()
    for path, boundary, is_personal in _find_files(folder, user_home):
        if not reads_local and path.endswith(_LOCAL):
            continue
        import_home = find_real_path(user_home) if is_personal else ""
        imports = _Imports(boundary, import_home, FileDiagnostics(path), seen_paths)
        text = _load(path, imports)
        diagnostics += imports.diagnostics.items
        # AGENTS.md and CLAUDE.md are often copies of each other.
        if text and text not in seen_texts:
            seen_texts.add(text)
            files.append(ContextFile(path, text, is_personal))
    # The last file has the highest precedence and is cut last.
    if not trusts_folder:
        files.sort(key=lambda file: file.is_personal)
    cut = _cut_to_size(files, max_bytes)
    diagnostics += [_make_cut_diagnostic(file, max_bytes) for file in cut if file.omitted_bytes]
    return ContextFiles(tuple(cut), tuple(diagnostics), trusts_folder)


def _find_files(folder: str, user_home: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (path, folder confining its imports, is_personal), outermost first."""
    if user_home:
        for name in (".agents/AGENTS.md", ".claude/CLAUDE.md"):
            path = os.path.join(user_home, name)
            if os.path.lexists(path):
                yield path, os.path.dirname(find_real_path(path)), True
    folders = list_project_folders(folder) if folder else []
    for parent in reversed(folders):
        for path in _list_project_files(parent):
            if not _is_personal_file(path, parent, user_home):
                yield path, folders[-1], False


def _list_project_files(folder: str) -> list[str]:
    candidates = [
        _find_existing(folder, "AGENTS.override.md", "AGENTS.md"),
        _find_existing(folder, "CLAUDE.md", ".claude/CLAUDE.md"),
        _find_existing(folder, _LOCAL),
    ]
    paths = [path for path in candidates if path]
    if paths:
        return paths
    gemini = _find_existing(folder, "GEMINI.md")
    return [gemini] if gemini else []


def _is_personal_file(path: str, folder: str, user_home: str) -> bool:
    # The home may be a folder of the project.
    is_home = bool(user_home) and find_real_path(folder) == find_real_path(user_home)
    return is_home and path.endswith(".claude/CLAUDE.md")


def _find_existing(folder: str, *names: str) -> str:
    paths = (os.path.join(folder, name) for name in names)
    return next((path for path in paths if os.path.lexists(path)), "")


class _Imports(Struct):
    boundary: str  # real path of the folder confining imports
    user_home: str  # the folder ~ refers to, "" to refuse ~
    diagnostics: FileDiagnostics
    seen: set[str]  # real paths of loaded files, shared by all context files
    remaining: int = MAX_IMPORTS_TRIED

    def warn(self, path: str, line: int, text: str) -> None:
        self.diagnostics.items.append(Diagnostic(path, line, Severity.WARNING, text))


def _load(path: str, imports: _Imports) -> str:
    """Load a file with its imports filled in; "" if it is already loaded."""
    real = find_real_path(path)
    if real in imports.seen:
        return ""
    imports.seen.add(real)
    text = read_text(path, imports.boundary, imports.diagnostics)
    return "" if text is None else _replace_imports(text, real, imports, 1).strip()


def _replace_imports(text: str, path: str, imports: _Imports, depth: int) -> str:
    lines: list[str] = []
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence):
            fence = ""
        elif not fence and "@" in line:
            line = _replace_in_line(line, number, path, imports, depth)
        lines.append(line)
    return "\n".join(lines)


def _replace_in_line(line: str, number: int, path: str, imports: _Imports, depth: int) -> str:
    code = _find_code_spans(line)

    def replace(match: re.Match[str]) -> str:
        is_code = bisect(code, match.start()) % 2 == 1
        if is_code or not imports.remaining:
            return match[0]
        imports.remaining -= 1
        return _import_text(match, number, path, imports, depth)

    return _IMPORT.sub(replace, line)


def _find_code_spans(line: str) -> list[int]:
    # Starts and ends of code, alternating. A span runs from backticks to the next run of as many.
    # A regular expression with a backreference would take quadratic time for unclosed runs.
    runs = list(_BACKTICKS.finditer(line))
    closing: dict[int, int] = {}
    latest: dict[int, int] = {}
    for index in range(len(runs) - 1, -1, -1):
        length = len(runs[index][0])
        closing[index] = latest.get(length, -1)
        latest[length] = index
    positions: list[int] = []
    index = 0
    while index < len(runs):
        end = closing[index]
        if end >= 0:
            positions += (runs[index].start(), runs[end].end())
            index = end
        index += 1
    return positions


def _import_text(
    match: re.Match[str], number: int, path: str, imports: _Imports, depth: int
) -> str:
    name = match[1].rstrip(".,;:!?)")
    rest = match[1][len(name) :]
    real = _resolve(name, path, imports)
    is_file = os.path.isfile(real)
    if not is_beneath(real, imports.boundary):
        # Other words with "@" may be user names or decorators, so they cause no warning.
        if name.endswith(".md") or is_file:
            imports.warn(path, number, f"@{name} is outside {imports.boundary}, so it is not read")
        return match[0]
    if not is_file:
        if name.endswith(".md"):
            imports.warn(path, number, f"@{name} does not exist")
        return match[0]
    if depth >= MAX_IMPORT_DEPTH:
        imports.warn(
            path, number, f"@{name} is on import level {depth + 1}; {MAX_IMPORT_DEPTH} are read"
        )
        return match[0]
    if real in imports.seen:
        return rest
    imports.seen.add(real)
    diagnostics = FileDiagnostics(path)
    text = read_text(real, imports.boundary, diagnostics)
    imports.diagnostics.items += diagnostics.items
    if text is None:
        return match[0]
    return _replace_imports(text, real, imports, depth + 1).strip() + rest


def _resolve(name: str, path: str, imports: _Imports) -> str:
    if "\0" in name:
        return ""
    if name.startswith("~/") and imports.user_home:
        return find_real_path(os.path.join(imports.user_home, name[2:]))
    return find_real_path(os.path.join(os.path.dirname(path), name))


def _cut_to_size(files: list[ContextFile], max_bytes: int) -> list[ContextFile]:
    """Cut the ends of files, outermost first."""
    cut: list[ContextFile] = []
    bytes_left = max_bytes
    for file in reversed(files):
        data = file.text.encode("utf-8", "replace")
        if len(data) > bytes_left:
            text = data[:bytes_left].decode("utf-8", "ignore")
            omitted = len(data) - bytes_left
            file = ContextFile(file.path, text, file.is_personal, omitted)
        cut.append(file)
        bytes_left = max(0, bytes_left - len(data))
    return cut[::-1]


def _make_cut_diagnostic(file: ContextFile, max_bytes: int) -> Diagnostic:
    size = len(file.text.encode()) + file.omitted_bytes
    return Diagnostic(
        file.path,
        1,
        Severity.WARNING,
        f"{file.omitted_bytes:,} of its {size:,} bytes are left out: "
        f"all context files together may have {max_bytes:,}",
    )


def _format(file: ContextFile) -> str:
    omission = ""
    if file.omitted_bytes:
        omission = (
            f"\n[… {file.omitted_bytes:,} bytes left out: the context files are too large; "
            "read the file if it matters]"
        )
    return wrap("file", f"{file.text}{omission}", path=file.path)
