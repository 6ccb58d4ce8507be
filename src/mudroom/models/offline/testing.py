"""Intent: which testing framework a project uses."""

from __future__ import annotations

import re
from collections.abc import Generator
from fnmatch import fnmatch

from .evidence import Finding, Tree, findings, unclaimed
from .frameworks import FRAMEWORKS, LANGUAGES
from .manifests import NAMES, is_lock, is_manifest, parse
from .places import exclusions, scopes
from .plan import Ask, Means, Outcome, Plan, Request, Tongue, call
from .reading import own, paths, read_all, table, truncated

HEAD = ("Framework", "Version", "Role")
_MANIFESTS_MOST = 60
_NAMED = 3


def investigate(request: Request, means: Means) -> Plan:
    """Look for the frameworks of a project, or of each of the folders named in the request."""
    if lacking := means.without("read", "grep", "glob"):
        return lacking
    wanted, without = scopes(request.text) or [""], exclusions(request.text)
    parts: list[str] = []
    for scope in wanted:
        tree = yield from survey(scope, without)
        yield from _search(tree, scope, without)
        heading = f"### {scope}\n" if len(wanted) > 1 else ""
        parts.append(heading + describe(tree, means.say, scope))
    return "\n\n".join(parts)


def survey(scope: str, without: list[str]) -> Generator[list[Ask], list[Outcome], Tree]:
    """The project's own files in a folder, and its manifests read; for a part, the manifests of the whole too."""
    base = scope.rstrip("/") or None
    asks = [call("grep", pattern=".", path=base, output_mode="files_with_matches", head_limit=1000)]
    asks += [call("glob", pattern="*")] if scope else []
    outcomes = yield asks
    files = set(paths(outcomes[0]))
    if truncated(outcomes[0]) and (len(files) >= 900 or "\n[" in outcomes[0].text or "…" in outcomes[0].text):
        patterns = [f"**/{name}" for name in NAMES] + [f"**/*{s}" for lang in LANGUAGES.values() for s in lang.suffixes.split()]
        lists = yield [call("glob", pattern=pattern, path=base) for pattern in patterns]
        files |= {path for listed in lists for path in paths(listed)}
    tree = Tree(sorted(f for f in files if own(f, scope) and not f.startswith(tuple(without))), [])
    above = [p for p in paths(outcomes[1]) if "/" not in p] if scope else []
    chosen = sorted({f for f in [*tree.files, *above] if is_manifest(f)}, key=lambda f: (f.count("/"), f))
    locks = [f for f in chosen if is_lock(f)][:_MANIFESTS_MOST]
    read = yield from read_all(f for f in chosen[:_MANIFESTS_MOST] if f not in locks)
    tree.manifests = [parse(path, file.text) for path, file in read.items() if not file.error]
    if locks:
        pinned = yield [call("grep", pattern="^[A-Za-z]", path=lock, output_mode="content", head_limit=500) for lock in locks]
        tree.manifests += [parse(lock, _matched(found)) for lock, found in zip(locks, pinned, strict=True)]
    return tree


def _matched(outcome: Outcome) -> str:
    """The lines that a search found, without their places."""
    return "\n".join(re.sub(r"^.*?:\d+:", "", line) for line in outcome.text.split("\n"))


def _search(tree: Tree, scope: str, without: list[str]) -> Generator[list[Ask], list[Outcome], None]:
    """Look for the use of every framework of the languages that are here."""
    base = scope.rstrip("/") or None
    here = tree.languages()
    targets = [(f.name, tree.matches, f.used, f.files) for f in FRAMEWORKS if f.language in here and f.used]
    targets += [(name, tree.plain, LANGUAGES[name].plain, LANGUAGES[name].plain_files) for name in here if LANGUAGES[name].plain]
    if not targets:
        return
    asks = [
        call("grep", pattern=used, path=base, glob=files[0] if len(files) == 1 else None, output_mode="files_with_matches", head_limit=500)
        for _, _, used, files in targets
    ]
    outcomes = yield asks
    for (name, store, _, _), outcome in zip(targets, outcomes, strict=True):
        store[name] = [p for p in paths(outcome) if own(p, scope) and not p.startswith(tuple(without))]
    for name, files in tree.plain.items():
        language = LANGUAGES[name]
        ours = [p for p in files if re.search(language.tests, p) and p.endswith(tuple(language.suffixes.split()))]
        tree.plain[name] = [p for p in ours if name != "Python" or any(fnmatch(p.rpartition("/")[2], g) for g in language.plain_files)]


def describe(tree: Tree, say: Tongue, scope: str = "") -> str:
    """The findings as a sentence, a table, and notes."""
    found = findings(tree)
    main = [row for row in found if row.active and row.framework.kind in ("framework", "e2e")]
    names = say.join([f"**{row.framework.name}**" for row in main])
    place = f"`{scope}`" if scope else say("The project", "该项目")
    notes = [
        say(f"`{place_of(tree, lang)}` has no {lang} testing framework configured.", f"`{place_of(tree, lang)}` 没有配置 {lang} 测试框架。")
        for lang in bare(tree, found)
    ]
    notes += [
        say(
            f"{n} {lang} test files name no framework, and none is declared.", f"有 {n} 个 {lang} 测试文件没有指明框架,也没有声明任何框架。"
        )
        for lang, n in unclaimed(tree, found).items()
    ]
    if not main:
        lead = say(f"{place} uses **no testing framework**: no test file uses one.", f"{place}**没有使用测试框架**:没有任何测试文件使用。")
    else:
        lead = say(f"{place} uses {names}.", f"{place}使用 {names}。")
    rows = [(f"**{row.framework.name}**", version(row, say), role(row, found, say)) for row in found]
    return "\n\n".join(x for x in (lead, table(HEAD, rows) if rows else "", "\n".join(notes)) if x)


def bare(tree: Tree, found: list[Finding]) -> list[str]:
    """Languages that have a manifest here, but no framework."""
    served = {row.framework.language for row in found if row.active and row.framework.kind in ("framework", "e2e")}
    return [lang for lang in tree.languages() if lang not in served and tree.declares(lang) and served]


def place_of(tree: Tree, language: str) -> str:
    """The folder of the topmost manifest of a language."""
    manifests = [f for f in tree.files if re.search(rf"(^|/)({LANGUAGES[language].manifests})$", f)]
    return min(manifests, key=lambda f: (f.count("/"), f)).rpartition("/")[0] + "/" if manifests else "./"


def version(row: Finding, say: Tongue) -> str:
    """The constraint, or what stands in for one."""
    if row.version == "this project itself":
        return say("this project itself", "即本项目")
    return row.version or row.framework.standard or (say("any", "未限定") if row.declared else say("not declared", "未声明"))


def role(row: Finding, found: list[Finding], say: Tongue) -> str:
    """What part a framework plays, and the evidence for it."""
    peers = [f for f in found if f.active and f.framework.kind == "framework" and f.framework.language == row.framework.language]
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
    words = [_used(row, say)] + [say("declared in ", "声明于 ") + _named(row.declared)] * bool(row.declared)
    words += [say("configured in ", "配置于 ") + _named(row.configured)] * bool(row.configured and not row.declared)
    language = f" ({row.framework.language})" if several else ""
    return f"{part}{language} — {'; '.join(w for w in words if w)}"


def _used(row: Finding, say: Tongue) -> str:
    if not row.used:
        return "" if row.active else say("no test file uses it", "没有测试文件使用")
    n, shown = len(row.used), _named(row.used)
    if row.runs:
        return say(f"runs the {n} {row.runs} test files ({shown})", f"运行 {n} 个 {row.runs} 测试文件({shown})")
    if row.plain == n and not row.declared and not row.configured:
        return say(f"likely: {n} files of plain test functions ({shown})", f"很可能:{n} 个文件含有普通测试函数({shown})")
    return say(f"used in {n} file{'s' * (n > 1)} ({shown})", f"用于 {n} 个文件({shown})")


def _named(files: list[str]) -> str:
    shown = ", ".join(f"`{f}`" for f in files[:_NAMED])
    return shown + ", …" * (len(files) > _NAMED)
