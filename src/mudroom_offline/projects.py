"""The parts of a repository: folders with a manifest of their own; and one answer from the reports on them."""

from __future__ import annotations

from collections.abc import Generator

from .plan import Ask, Outcome, Tongue, call
from .reading import own, paths, rows_of, table

_EACH = (
    "package.json",
    "pyproject.toml",
    "setup.py",
    "go.mod",
    "composer.json",
    "Gemfile",
    "mix.exs",
    "pubspec.yaml",
)
_TOPMOST = (
    "Cargo.toml",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "CMakeLists.txt",
    "Package.swift",
)
_CHILDREN = 12


def outermost() -> Generator[list[Ask], list[Outcome], list[str]]:
    """Folders that are a project of their own, "" for the top, each with a slash at its end.

    Of manifests that a build nests by itself, like those of Maven modules, only the topmost makes a part.
    """
    names = [*_EACH, *_TOPMOST]
    outcomes = yield [call("glob", pattern=f"**/{name}") for name in names]
    parts: set[str] = set()
    for name, outcome in zip(names, outcomes, strict=True):
        folders = {path.rpartition("/")[0] for path in paths(outcome) if own(path)}
        if name in _TOPMOST:
            folders = {
                f
                for f in folders
                if not any(f != top and (not top or f.startswith(top + "/")) for top in folders)
            }
        parts |= {folder + "/" if folder else "" for folder in folders}
    return ["", *sorted(parts - {""})]


def group(parts: list[str]) -> list[list[str]]:
    """Parts shared out among at most a dozen children; the top has one of its own."""
    inner = [part for part in parts if part]
    size = -(-len(inner) // (_CHILDREN - 1)) or 1
    return [[""], *(inner[n : n + size] for n in range(0, len(inner), size))]


def merge(shares: list[list[str]], reports: list[str], say: Tongue) -> str:
    """One report from those on the parts: a single one as it is, several as a table in which each framework has one row."""
    told = [
        (part, text)
        for share, report in zip(shares, reports, strict=True)
        for part, text in _sections(share, report)
        if text
    ]
    if len(told) == 1:
        return told[0][1]
    seen: dict[str, list[tuple[str, str, str]]] = {}
    notes: list[str] = []
    for part, text in told:
        rows = rows_of(text, 3)
        for name, version, role in rows:
            seen.setdefault(name, []).append((part, version, role))
        plain = [line for line in text.split("\n") if line.strip() and not line.startswith("|")]
        if not rows or not _active(rows):
            notes += plain[:1] if part or rows else []
        notes += plain[1:]
    if not any(_active([[name, v, r]]) for name, found in seen.items() for _, v, r in found):
        return _none(say, seen, notes)
    order = sorted(seen, key=lambda name: (_rank(seen[name]), -len(seen[name])))
    rows = [_row(name, seen[name], say) for name in order]
    main = [name for name in order if _rank(seen[name]) < 2]
    lead = say(f"The project uses {say.join(main)}.", f"该项目使用 {say.join(main)}。")
    return "\n\n".join(
        x
        for x in (
            lead,
            table(("Framework", "Version", "Role"), rows),
            "\n".join(f"- {note}" for note in notes),
        )
        if x
    )


def _sections(share: list[str], report: str) -> list[tuple[str, str]]:
    if len(share) == 1:
        return [(share[0], report)]
    pieces = ("\n" + report).split("\n### ")
    return [
        (head.strip(), body.strip())
        for head, _, body in (piece.partition("\n") for piece in pieces[1:])
    ]


_IDLE = ("Declared only", "仅声明")
_MAIN = ("Primary", "主要", "Secondary", "次要", "End-to-end", "端到端")


def _active(rows: list[list[str]]) -> bool:
    return any(not row[2].startswith(_IDLE) for row in rows)


def _rank(found: list[tuple[str, str, str]]) -> int:
    roles = [role for _, _, role in found]
    if any(role.startswith(_MAIN[:2]) for role in roles):
        return 0
    return (
        1
        if any(role.startswith(_MAIN) for role in roles)
        else 3
        if all(role.startswith(_IDLE) for role in roles)
        else 2
    )


def _row(name: str, found: list[tuple[str, str, str]], say: Tongue) -> tuple[str, ...]:
    best = next(
        (f for f in found if f[2].startswith(_MAIN[:2])),
        next((f for f in found if not f[2].startswith(_IDLE)), found[0]),
    )
    used = [f for f in found if not f[2].startswith(_IDLE)] or found
    versions = ", ".join(dict.fromkeys(version for _, version, _ in used))
    if len(used) == 1:
        return name, versions, best[2]
    kind = best[2].partition(" — ")[0]
    places = [f"`{part or './'}`" for part, _, _ in used]
    shown = say.join(places[:8]) + (
        say(f" and {len(places) - 8} more", f"等 {len(places)} 处") if len(places) > 8 else ""
    )
    return (
        name,
        versions,
        f"{kind} — "
        + say(f"used in {len(places)} parts: {shown}", f"用于 {len(places)} 个部分:{shown}"),
    )


def _none(say: Tongue, seen: dict[str, list[tuple[str, str, str]]], notes: list[str]) -> str:
    rows = [_row(name, found, say) for name, found in seen.items()]
    lead = say(
        "The project uses **no testing framework**: no test file uses one.",
        "该项目**没有使用测试框架**:没有任何测试文件使用。",
    )
    return "\n\n".join(
        x for x in (lead, table(("Framework", "Version", "Role"), rows) if rows else "") if x
    )
