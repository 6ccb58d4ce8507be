"""Intent: which testing framework a project uses."""

from __future__ import annotations

import re
from collections.abc import Generator
from fnmatch import fnmatch

from .evidence import Tree
from .frameworks import FRAMEWORKS, LANGUAGES
from .manifests import NAMES, is_lock, is_manifest, parse
from .places import exclusions, scopes
from .plan import Ask, Means, Outcome, Plan, Request, call
from .reading import own, paths, read_all, truncated
from .verdict import describe

_MANIFESTS_MOST = 60


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
    if truncated(outcomes[0]) and (
        len(files) >= 900 or "\n[" in outcomes[0].text or "…" in outcomes[0].text
    ):
        patterns = [f"**/{name}" for name in NAMES] + [
            f"**/*{s}" for lang in LANGUAGES.values() for s in lang.suffixes.split()
        ]
        lists = yield [call("glob", pattern=pattern, path=base) for pattern in patterns]
        files |= {path for listed in lists for path in paths(listed)}
    tree = Tree(sorted(f for f in files if own(f, scope) and not f.startswith(tuple(without))), [])
    above = [p for p in paths(outcomes[1]) if "/" not in p] if scope else []
    chosen = sorted(
        {f for f in [*tree.files, *above] if is_manifest(f)}, key=lambda f: (f.count("/"), f)
    )
    locks = [f for f in chosen if is_lock(f)][:_MANIFESTS_MOST]
    read = yield from read_all(f for f in chosen[:_MANIFESTS_MOST] if f not in locks)
    tree.manifests = [parse(path, file.text) for path, file in read.items() if not file.error]
    if locks:
        pinned = yield [
            call("grep", pattern="^[A-Za-z]", path=lock, output_mode="content", head_limit=500)
            for lock in locks
        ]
        tree.manifests += [
            parse(lock, _matched(found)) for lock, found in zip(locks, pinned, strict=True)
        ]
    return tree


def _matched(outcome: Outcome) -> str:
    """The lines that a search found, without their places."""
    return "\n".join(re.sub(r"^.*?:\d+:", "", line) for line in outcome.text.split("\n"))


def _search(
    tree: Tree, scope: str, without: list[str]
) -> Generator[list[Ask], list[Outcome], None]:
    """Look for the use of every framework of the languages that are here."""
    base = scope.rstrip("/") or None
    here = tree.languages()
    targets = [
        (f.name, tree.matches, f.used, f.files) for f in FRAMEWORKS if f.language in here and f.used
    ]
    targets += [
        (name, tree.plain, LANGUAGES[name].plain, LANGUAGES[name].plain_files)
        for name in here
        if LANGUAGES[name].plain
    ]
    if not targets:
        return
    asks = [
        call(
            "grep",
            pattern=used,
            path=base,
            glob=files[0] if len(files) == 1 else None,
            output_mode="files_with_matches",
            head_limit=500,
        )
        for _, _, used, files in targets
    ]
    outcomes = yield asks
    for (name, store, _, _), outcome in zip(targets, outcomes, strict=True):
        store[name] = [
            p for p in paths(outcome) if own(p, scope) and not p.startswith(tuple(without))
        ]
    for name, files in tree.plain.items():
        language = LANGUAGES[name]
        ours = [
            p
            for p in files
            if re.search(language.tests, p) and p.endswith(tuple(language.suffixes.split()))
        ]
        tree.plain[name] = [
            p
            for p in ours
            if name != "Python"
            or any(fnmatch(p.rpartition("/")[2], g) for g in language.plain_files)
        ]
