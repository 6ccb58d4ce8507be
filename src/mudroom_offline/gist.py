"""What one file does, in a line: its own words, what it defines, else the tests it lists, the values it sets, what it imports."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .languages import Outline, outline
from .plan import Tongue
from .reading import File

_LENGTH = 170
_NAMES = 6

_TITLE = re.compile(
    r"""^[ \t]*(?:it|test|t\.test|describe|scenario|context|specify)(?:\.\w+)?\s*\(?\s*(['"`])(.+?)\1""",
    re.M,
)
_VALUE = re.compile(
    r"^(?:export\s+)?(?:const|let|var|final|static|local)?\s*([A-Za-z_]\w*)\s*(?::[^=\n]+)?=(?![=>])",
    re.M,
)
_IMPORT = re.compile(
    r"""^[ \t]*(?:from\s+(?!__future__)([\w.]+)\s+import|import\s+([\w.]+)\s*(?:$|;|,|as\b)|use\s+([\w:\\]+)|#include\s*[<"]([^>"]+)"""
    r"""|import\b[^'"\n]{0,300}['"]([^'"\n]+)['"]|[^\n]{0,120}?\brequire\(?\s*['"]([^'"\n]+)['"]"""
    r"""|export\b[^'"\n]{0,300}?\bfrom\s+['"]([^'"\n]+)['"])""",
    re.M,
)
_MOST = 4


def describe(file: File, say: Tongue) -> str:
    """What one file does, in a line."""
    if file.error:
        return say(f"not readable: {file.error}", f"无法读取:{file.error}")[:_LENGTH]
    if not file.text.strip():
        return say("Empty file.", "空文件。")
    found = outline(file.path, file.text)
    prose = file.path.endswith(
        (".md", ".markdown", ".mdx", ".rst", ".toml", ".json", ".yml", ".yaml", ".ini", ".cfg")
    )
    parts = _sections(found, say) if prose else _definitions(found, say)
    about = found.about[:_LENGTH]
    room = _LENGTH - len(about)
    shown = "; ".join(part for part in parts if part)
    shown = (
        shown
        if len(shown) <= room
        else shown[: max(0, room)].rpartition(",")[0] + ", …"
        if room > 40
        else ""
    )
    stop = "" if not about or about[-1] in ".!?。!?:" else "."
    text = f"{about}{stop} {shown}".strip() or _statements(file.text, say)[:_LENGTH]
    return text or say(
        f"{len(file.lines)} lines, no definitions.", f"{len(file.lines)} 行,没有定义。"
    )


def _definitions(found: Outline, say: Tongue) -> list[str]:
    tests = [f for f in found.functions if f.lower().startswith("test")]
    plain = [f for f in found.functions if f not in tests]
    return [
        _listed(say("classes ", "类 "), found.types, say),
        _listed(say("functions ", "函数 "), plain, say),
        say(f"{len(tests)} test{'s' * (len(tests) > 1)}: ", f"{len(tests)} 个测试:")
        + _some(tests, 2)
        if tests
        else "",
    ]


def _sections(found: Outline, say: Tongue) -> list[str]:
    return [_listed(say("sections ", "章节 "), found.types, say)]


def _listed(label: str, names: Iterable[str], say: Tongue) -> str:
    listed_ = list(names)
    more = (
        say(f", {len(listed_) - _NAMES} more", f",另有 {len(listed_) - _NAMES} 个")
        if len(listed_) > _NAMES
        else ""
    )
    return label + ", ".join(listed_[:_NAMES]) + more if listed_ else ""


def _statements(text: str, say: Tongue) -> str:
    """One phrase for a file without definitions; "" when nothing can be said."""
    titles = [m[2] for m in _TITLE.finditer(text)]
    if titles:
        return say(f"{len(titles)} tests: ", f"{len(titles)} 个测试:") + _some(
            [f"“{title}”" for title in titles], 2
        )
    values = list(dict.fromkeys(_VALUE.findall(text)))
    used = list(
        dict.fromkeys(next(group for group in m.groups() if group) for m in _IMPORT.finditer(text))
    )
    parts = [say("sets ", "设置 ") + _some(values, _MOST)] * bool(values) + [
        say("imports ", "导入 ") + _some(used, _MOST)
    ] * bool(used)
    return "; ".join(parts)


def _some(names: list[str], most: int) -> str:
    return ", ".join(names[:most]) + ", …" * (len(names) > most)
