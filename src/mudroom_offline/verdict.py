"""The findings in words: a sentence, a table of what plays which part, and notes."""

from __future__ import annotations

import re

from .evidence import Finding, Tree, findings, unclaimed
from .frameworks import LANGUAGES
from .plan import Tongue
from .reading import table

HEAD = ("Framework", "Version", "Role")
_NAMED = 3


def describe(tree: Tree, say: Tongue, scope: str = "") -> str:
    """The findings as a sentence, a table, and notes."""
    found = findings(tree)
    main = [row for row in found if row.active and row.framework.kind in ("framework", "e2e")]
    names = say.join([f"**{row.framework.name}**" for row in main])
    place = f"`{scope}`" if scope else say("The project", "该项目")
    notes = [
        say(
            f"`{place_of(tree, lang)}` has no {lang} testing framework configured.",
            f"`{place_of(tree, lang)}` 没有配置 {lang} 测试框架。",
        )
        for lang in bare(tree, found)
    ]
    notes += [
        say(
            f"{n} {lang} test files name no framework, and none is declared.",
            f"有 {n} 个 {lang} 测试文件没有指明框架,也没有声明任何框架。",
        )
        for lang, n in unclaimed(tree, found).items()
    ]
    if not main:
        lead = say(
            f"{place} uses **no testing framework**: no test file uses one.",
            f"{place}**没有使用测试框架**:没有任何测试文件使用。",
        )
    else:
        lead = say(f"{place} uses {names}.", f"{place}使用 {names}。")
    rows = [
        (f"**{row.framework.name}**", version(row, say), role(row, found, say)) for row in found
    ]
    return "\n\n".join(x for x in (lead, table(HEAD, rows) if rows else "", "\n".join(notes)) if x)


def bare(tree: Tree, found: list[Finding]) -> list[str]:
    """Languages that have a manifest here, but no framework."""
    served = {
        row.framework.language
        for row in found
        if row.active and row.framework.kind in ("framework", "e2e")
    }
    return [
        lang for lang in tree.languages() if lang not in served and tree.declares(lang) and served
    ]


def place_of(tree: Tree, language: str) -> str:
    """The folder of the topmost manifest of a language."""
    manifests = [f for f in tree.files if re.search(rf"(^|/)({LANGUAGES[language].manifests})$", f)]
    return (
        min(manifests, key=lambda f: (f.count("/"), f)).rpartition("/")[0] + "/"
        if manifests
        else "./"
    )


def version(row: Finding, say: Tongue) -> str:
    """The constraint, or what stands in for one."""
    if row.version == "this project itself":
        return say("this project itself", "即本项目")
    return (
        row.version
        or row.framework.standard
        or (say("any", "未限定") if row.declared else say("not declared", "未声明"))
    )


def role(row: Finding, found: list[Finding], say: Tongue) -> str:
    """What part a framework plays, and the evidence for it."""
    peers = [
        f
        for f in found
        if f.active
        and f.framework.kind == "framework"
        and f.framework.language == row.framework.language
    ]
    several = len({f.framework.language for f in found if f.active}) > 1
    part = {
        "framework": say("Primary", "主要") if row in peers[:1] else say("Secondary", "次要"),
        "e2e": say("End-to-end tests", "端到端测试"),
        "library": say("Library beside it", "辅助库"),
        "runner": say("Runner", "运行器"),
        "benchmark": say("Benchmarks", "基准测试"),
    }[row.framework.kind]
    if not row.active:
        part = say("Declared only", "仅声明")
    words = [_used(row, say)] + [say("declared in ", "声明于 ") + _named(row.declared)] * bool(
        row.declared
    )
    words += [say("configured in ", "配置于 ") + _named(row.configured)] * bool(
        row.configured and not row.declared
    )
    language = f" ({row.framework.language})" if several else ""
    return f"{part}{language} — {'; '.join(w for w in words if w)}"


def _used(row: Finding, say: Tongue) -> str:
    if not row.used:
        return "" if row.active else say("no test file uses it", "没有测试文件使用")
    n, shown = len(row.used), _named(row.used)
    if row.runs:
        return say(
            f"runs the {n} {row.runs} test files ({shown})",
            f"运行 {n} 个 {row.runs} 测试文件({shown})",
        )
    if row.plain == n and not row.declared and not row.configured:
        return say(
            f"likely: {n} files of plain test functions ({shown})",
            f"很可能:{n} 个文件含有普通测试函数({shown})",
        )
    return say(f"used in {n} file{'s' * (n > 1)} ({shown})", f"用于 {n} 个文件({shown})")


def _named(files: list[str]) -> str:
    files = list(dict.fromkeys(files))
    shown = ", ".join(f"`{f}`" for f in files[:_NAMED])
    return shown + ", …" * (len(files) > _NAMED)
