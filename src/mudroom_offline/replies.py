"""What the rules say about themselves: what they can do, what was left out, that they were cut short."""

from __future__ import annotations

from .plan import Tongue

REMEDY = (
    "For everything else connect a model: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, "
    "or point OPENAI_BASE_URL or OLLAMA_HOST at a local server."
)


def abilities(say: Tongue) -> str:
    """The list of what can be asked."""
    return say(
        "The offline model follows rules and did not understand this. It can:\n"
        "- find which testing framework a project uses, or its technology stack, dependencies and build tools\n"
        '- summarise files: "read all .py files and summarize what each one does"\n'
        '- find where something is defined or used: "where is `parse_config` defined?"\n'
        "- count files and lines by kind\n"
        '- create a new module with functions it knows, and verify it: "create a new module with slugify and word_count"\n'
        "- do any of these with subtasks.\n",
        "离线模型只按规则工作,没有理解这个请求。它可以:\n"
        "- 找出项目使用的测试框架,或技术栈、依赖和构建工具\n"
        "- 总结文件:“读取所有 .py 文件并总结每个文件的作用”\n"
        "- 查找定义或使用的位置:“`parse_config` 在哪里定义?”\n"
        "- 按类型统计文件数和行数\n"
        "- 用它认识的函数创建新模块并验证:“创建一个包含 slugify 和 word_count 的新模块”\n"
        "- 用子任务完成以上任何一项。\n",
    )


def combine(parts: list[str]) -> str:
    """Several answers as one."""
    return "\n\n".join(part.strip() for part in parts if part.strip())


def left_out(foreign: list[str], say: Tongue) -> list[str]:
    """A sentence for each part of the prompt that no rule covers."""
    return [
        say(
            f"Not done, no rule of the offline model covers it: “{part}”.",
            f"未完成(离线模型没有相应规则):“{part}”。",
        )
        for part in foreign
    ]


def cut_short(say: Tongue) -> str:
    """Words for a run that must end before anything can be said."""
    return say("Stopped before there was anything to report.", "在得出结论之前就被中止了。")
