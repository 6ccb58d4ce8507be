"""From a prompt to what it asks for: its language, and the intents in it, in order."""

from __future__ import annotations

import re

from .plan import Request

_CJK = re.compile(r"[\u3400-\u9fff]")
_DELEGATE = re.compile(
    r"\bsub-?(?:task|agent)s?\b|\bdelegat\w*|\buse (?:a |some )?(?:separate )?tasks?\b|\bchild(?:ren)? agents?\b"
    r"|\btask tool\b|子任务|子\s*智能体|子代理|子\s*agent|委派|委托|派发|分派|用任务|使用任务|用\s*(?:sub)?task",
    re.I,
)
_LEAD = re.compile(
    r"^(?:\W|please\b|kindly\b|now\b|then\b|first\b|also\b|(?:can|could|would) you\b|i (?:want|need) you to\b"
    r"|help me(?: to)?\b|let'?s\b|hi\b|hello\b|(?:sub-?)?tasks?\b|delegate\b|to\b|and\b"
    r"|(?:use|using|via|with|through|in) (?:a |an |some |several |parallel |separate )*(?:sub-?)?(?:task|agent)s?\b"
    r"|请|帮我|帮忙|麻烦你?|用|使用|通过|一个|多个|几个|子任务|子代理|子\s*智能体|任务|委派|委托|给|来|去|先|再|并|然后|接着|最后|你)+",
    re.I,
)
_FOREIGN = re.compile(
    r"^(?:fix|repair|refactor|migrate|deploy|delete|remove|rename|install|upgrade|update|translate|optimi[sz]e|debug|commit|push|merge|send|email|"
    r"implement (?:a|an|the) (?!module|function|utility)|improve|convert|replace|format|release|publish"
    r"|(?:write|add|create|generate|run|execute)\b.{0,30}\btests?\b(?! module)"
    r"|修复|修改|重构|迁移|部署|删除|重命名|安装|升级|更新|翻译|优化|调试|提交|推送|合并|发送|发布|改进|替换|(?:写|编写|添加|运行|执行|生成).{0,10}测试)",
    re.I,
)
_CLAUSE = re.compile(
    r"\s*(?:,?\s*\b(?:and then|and also|then|and|also|after that|plus)\b|[;；。！!？]|[.?]\s|\n"
    r"|然后|接着|之后|并且|同时|以及|并(?!行)|,)\s*",
    re.I,
)
_PATHS = re.compile(r"https?://\S+|[\w@.-]*/[\w@./-]*|\b[\w-]+\.[A-Za-z]\w{0,9}\b")
_LONGEST = (
    40_000  # characters; a question is shorter, and the patterns below cost more than their length
)
_ENDLESS = re.compile(r"\S{1000}")
_LISTED = re.compile(r"(?m)^\s*[-*] .*$")

_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "create",
        re.compile(
            r"\b(?:create|make|write|add|build|generate|implement)\b[^.]{0,40}"
            r"\b(?:module|utilit(?:y|ies)|library|functions?|script|(?:\w+ )?file (?:with|that|containing))"
            r"|(?:创建|新建|编写|写|生成|建立|(?<!构)建|添加|实现|做)[^,。::]{0,80}?(?:模块|工具|函数|文件)",
            re.I,
        ),
    ),
    (
        "count",
        re.compile(
            r"\b(?:count|how many|number of|how much)\b.{0,40}\b(?:lines?|files?|loc|code)\b|\blines of code\b"
            r"|(?:统计|多少|数一数|数一下|几个|几行|计算).{0,16}(?:行|文件|代码)|(?:行数|文件数|代码量)",
            re.I,
        ),
    ),
    (
        "find",
        re.compile(
            r"\bwhere\b.{0,80}\b(?:defined|used|declared|implemented|called|imported|referenced|located|definition)\b"
            r"|\bwh(?:o|at|ich \w+) (?:calls?|uses?|imports?|references?) (?!test|this|build|framework|does)"
            r"|\b(?:definitions?|usages?|uses|references?|callers?) (?:of|to)\b"
            r"|\bwhere(?: is| are|'s)\b|\b(?:find|locate|search for|look for|grep)\b(?: for)?(?: the| all| every)?"
            r"(?: (?:function|class|method|variable|constant|symbol|type|struct)\b| `| \w+_\w+\b| (?-i:[a-z]+[A-Z]\w*)\b)"
            r"|(?:在哪|哪里|何处|什么地方|哪些文件|哪个文件).{0,12}(?:定义|使用|用到|用了|调用|声明|实现|引用)"
            r"|(?:定义|使用|用到|调用|声明|实现|引用).{0,6}(?:在哪|哪里|何处|位置|的地方)"
            r"|(?:查找|找到|找出|搜索|寻找|定位).{0,40}(?:定义|用法|引用|调用|使用的?地方)",
            re.I,
        ),
    ),
    (
        "tests",
        re.compile(
            r"\btest(?:ing|s)?[- ]+(?:framework|librar|tool|runner|stack|suite|setup|package|harness)"
            r"|\b(?:framework|librar\w+|runner|tool)s?\b.{0,50}\btest(?:s|ing|ed)?\b|\bhow\b.{0,30}\btested\b"
            r"|\b(?:what|which)\b.{0,40}\b(?:used? (?:to|for) test|test(?:s|ing)?\b.{0,20}\bus(?:e|ed|es|ing)\b)"
            r"|测试.{0,6}(?:框架|工具|库|套件|运行器|方案)|(?:什么|哪个|哪些|何种|哪种).{0,12}测试|(?:怎么|如何|怎样).{0,8}测试|框架.{0,6}测试",
            re.I,
        ),
    ),
    (
        "stack",
        re.compile(
            r"\b(?:tech(?:nology|nical|nologies)?[- ]*stack|technolog(?:y|ies)|dependenc(?:y|ies))\b"
            r"|\b(?:build (?:tool|system)s?|package managers?)\b"
            r"|\bstack\b|\b(?:which|what) (?:programming )?(?:languages?|librar\w+|frameworks?|tools)\b"
            r"|技术栈|技术选型|依赖|构建(?:工具|系统)|打包工具|包管理|编程语言|(?:什么|哪些|哪种)(?:技术|语言|库|框架|工具)",
            re.I,
        ),
    ),
    (
        "summarise",
        re.compile(
            r"\bsummar(?:y|i[sz]e|i[sz]es|ies|i[sz]ing)\b|\bwhat (?:each|every|all|they|it|these|those)\b.*\b(?:do|does|is|are|for)\b"
            r"|\bwhat (?:does|do) (?:the|this|these|each|every|all)\b.*\bdo\b|\boverview\b"
            r"|\b(?:describe|explain|outline)\b.{0,60}\b(?:files?|modules?|code|project|folder|director)"
            r"|总结|概括|概述|摘要|汇总|每个文件.{0,8}(?:作用|功能|用途|做什么|干什么)"
            r"|(?:介绍|说明|描述|解释|列出).{0,30}(?:文件|模块|代码|项目)",
            re.I,
        ),
    ),
)
_READ = re.compile(
    r"\b(?:read|review|go through|look (?:at|through)|all)\b.{0,40}\bfiles?\b|(?:读取|阅读|查看|浏览|所有).{0,20}文件",
    re.I,
)


def chinese(text: str) -> bool:
    """Whether the questioner writes Chinese, also when English words are mixed in."""
    return bool(_CJK.search(_LISTED.sub("", text)))


def understand(prompt: str) -> tuple[list[Request], list[str]]:
    """What a prompt asks for, in order, and the parts of it that ask for something no rule covers."""
    if len(prompt) > _LONGEST or _ENDLESS.search(prompt):
        return [], []
    kinds: list[str] = []
    spans: list[tuple[int, int]] = []
    foreign: list[str] = []
    start = 0
    for begin, end in _clauses(prompt):
        kind = _kind(prompt[begin:end])
        if kind == "foreign":
            foreign.append(prompt[begin:end].strip())
        elif kind and kind not in kinds[-1:] and not (kind == "tests" and "create" in kinds[-1:]):
            kinds.append(kind)
            spans.append((start if not spans else begin, end))
        elif spans:
            spans[-1] = (spans[-1][0], end)
    if not kinds and not foreign and _READ.search(prompt):
        kinds, spans = ["summarise"], [(0, len(prompt))]
    delegate = bool(_DELEGATE.search(_PATHS.sub(" ", _LISTED.sub("", prompt))))
    return [
        Request(kind, prompt[a:b], delegate) for kind, (a, b) in zip(kinds, spans, strict=True)
    ], foreign


def _clauses(prompt: str) -> list[tuple[int, int]]:
    cuts = [0, *(point for m in _CLAUSE.finditer(prompt) for point in m.span()), len(prompt)]
    return [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=True) if prompt[a:b].strip()]


def _kind(clause: str) -> str:
    """The intent of one clause; "foreign" for a known sort of work that no rule does, "" for neither."""
    bare = (
        _PATHS.sub(" X ", _LISTED.sub("", clause))
        if "where" not in clause.lower()
        else _LISTED.sub("", clause)
    )
    if _FOREIGN.match(_LEAD.sub("", bare)):
        return "foreign"
    return next((kind for kind, pattern in _KINDS if pattern.search(bare)), "")
