"""From an intent to the plan that serves it: done here, or cut up for children."""

from __future__ import annotations

import re

from . import counting, modules, search, stack, summaries, testing
from .delegate import Piece, batches, caveats, folder_of, send
from .places import exclusions, scopes
from .plan import Beyond, Means, Plan, Request
from .projects import group, merge, outermost
from .replies import combine

_DIRECT_FILES = 3
_DIRECT = {
    "tests": testing.investigate,
    "stack": stack.investigate,
    "summarise": summaries.summarise,
    "find": search.search,
    "count": counting.count,
}


def begin(request: Request, means: Means) -> Plan:
    """The plan for a request. Work that reads much goes to children where there is a `task` tool, other work when asked to."""
    if request.kind == "create":
        return modules.create(request, means)
    if "task" in means.tools:
        if request.kind == "tests":
            return _tests(request, means)
        if request.kind == "summarise":
            return _summaries(request, means)
        if request.kind == "stack" or request.delegate:
            return _one_child(request, means)
    return _DIRECT[request.kind](request, means)


def _tests(request: Request, means: Means) -> Plan:
    """One child a part of the repository, each told to look only there."""
    say = means.say
    if scopes(request.text) or "glob" not in means.tools:
        return (yield from _one_child(request, means))
    parts = yield from outermost()
    ask = say("Find which testing framework this project uses", "找出这个项目使用的测试框架")
    pieces: list[Piece] = []
    shares = group(parts)
    for share in shares:
        if share == [""]:
            others = [part for part in parts if part]
            rest = (
                say(f", leaving out {', '.join(others)}", f",不包括 {'、'.join(others)}")
                if others
                else ""
            )
            pieces.append(Piece(f"{ask}{rest}.", say("Find the testing framework", "查找测试框架")))
        else:
            only = say(f", looking only under {', '.join(share)}", f",只看 {'、'.join(share)} 目录")
            pieces.append(
                Piece(
                    f"{ask}{only}.",
                    say(f"Testing framework in {share[0]}", f"{share[0]} 的测试框架"),
                )
            )
    heard = yield from send(pieces, means)
    if not any(h.text for h in heard):
        raise Beyond("\n".join(caveats(heard)))
    return combine([merge(shares, [h.text for h in heard], say), *caveats(heard)])


def _summaries(request: Request, means: Means) -> Plan:
    """List the files here, and let children read them, a batch each."""
    say = means.say
    if lacking := means.without("glob"):
        return lacking
    files = yield from summaries.wanted(request)
    if not files:
        return summaries.nothing(request, say)
    if len(files) <= _DIRECT_FILES and not request.delegate and "read" in means.tools:
        return (yield from summaries.tell(request, files, means))
    pieces: list[Piece] = []
    for batch in batches(files):
        listed = "\n".join(f"- {path}" for path in batch)
        place = folder_of(batch)
        title = say(
            f"Summarise {len(batch)} files{' in ' + place if place else ''}",
            f"总结{' ' + place + ' 中的' if place else ''} {len(batch)} 个文件",
        )
        pieces.append(
            Piece(
                say(
                    "Read these files and summarise what each one does, in a table:\n",
                    "读取以下文件,用表格总结每个文件的作用:\n",
                )
                + listed,
                title,
            )
        )
    heard = yield from send(pieces, means)
    return combine([summaries.merged([h.text for h in heard], request, say), *caveats(heard)])


def _one_child(request: Request, means: Means) -> Plan:
    """One child for the whole question, in words without the wish to delegate."""
    say = means.say
    prompt, title = _PROMPTS[request.kind](request, means)
    places, without = scopes(request.text), exclusions(request.text)
    if request.kind in ("tests", "stack", "count"):
        prompt += (
            say(f", looking only under {', '.join(places)}", f",只看 {'、'.join(places)} 目录")
            if places
            else ""
        )
        prompt += (
            say(f", leaving out {', '.join(without)}", f",不包括 {'、'.join(without)}")
            if without
            else ""
        )
    heard = yield from send([Piece(prompt + ".", title)], means)
    if not heard[0].text:
        raise Beyond(heard[0].caveat)
    return combine([heard[0].text, *caveats(heard)])


def _tests_prompt(request: Request, means: Means) -> tuple[str, str]:
    return means.say(
        "Find which testing framework this project uses", "找出这个项目使用的测试框架"
    ), means.say("Find the testing framework", "查找测试框架")


def _stack_prompt(request: Request, means: Means) -> tuple[str, str]:
    return (
        means.say(
            "Find the technology stack of this project: dependencies, build tools",
            "分析这个项目的技术栈:依赖、构建工具",
        ),
        means.say("Analyse the technology stack", "分析技术栈"),
    )


def _find_prompt(request: Request, means: Means) -> tuple[str, str]:
    names = ", ".join(f"`{name}`" for name in search.symbols(request.text)) or re.sub(
        r"\s+", " ", request.text
    )
    return means.say(
        f"Find where {names} is defined and used", f"查找 {names} 在哪里定义和使用"
    ), means.say("Find definition and uses", "查找定义和使用")


def _count_prompt(request: Request, means: Means) -> tuple[str, str]:
    kinds = " ".join(counting.kinds(request.text))
    return means.say(
        f"Count the lines of code and files by kind {kinds}".strip(),
        f"按类型统计文件数和代码行数 {kinds}".strip(),
    ), means.say("Count files and lines", "统计文件和行数")


_PROMPTS = {
    "tests": _tests_prompt,
    "stack": _stack_prompt,
    "find": _find_prompt,
    "count": _count_prompt,
}
