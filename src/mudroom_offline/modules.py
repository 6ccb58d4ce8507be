"""Intent: create a new module with functions, and verify it from here: a child writes it, the parent reads and runs it."""

from __future__ import annotations

import re
from collections.abc import Generator

from .checks import verify
from .delegate import Piece, caveats, send
from .plan import Ask, Beyond, Means, Outcome, Plan, Request, Tongue, call
from .reading import own, paths
from .recipes import RECIPES, USUAL, Recipe, camel, recipe
from .replies import combine
from .wishes import function_names
from .wishes import language as language_of
from .wishes import place as place_of


def create(request: Request, means: Means) -> Plan:
    """Have the module written (by a child where there is one), then verify it."""
    say = means.say
    names = function_names(request.text)
    unknown = [name for name in names if recipe(name) is None]
    if names and len(unknown) == len(names):
        known = ", ".join(sorted(RECIPES))
        raise Beyond(
            say(
                f"No implementation is known for {say.join(unknown)}. Known: {known}.",
                f"不知道如何实现 {say.join(unknown)}。已知:{known}。",
            )
        )
    if "task" in means.tools:
        piece = Piece(_prompt(request, names, say), say("Create a new module", "创建新模块"))
        heard = yield from send([piece], means, writes=True)
        made = re.search(r"`([^`\s]+\.(?:py|mjs|js))`", heard[0].text)
        if not made:
            raise Beyond("\n".join([heard[0].text, *caveats(heard)]).strip())
        path, notes = made[1], caveats(heard)
    else:
        if lacking := means.without("write", "glob", "read"):
            raise Beyond(lacking)
        path, notes = (yield from _write(request, names, means)), []
    wanted = _recipes(names)
    left = (
        [
            say(
                f"No implementation is known for {say.join(unknown)}; left out.",
                f"不知道如何实现 {say.join(unknown)},已略去。",
            )
        ]
        if unknown
        else []
    )
    if "task" not in means.tools and not re.search(
        r"(?i)verif|check|test|验证|检查|测试", request.text
    ):
        made_of = say.join([f"`{_shown(r, path)}`" for r in wanted])
        return combine(
            [say(f"Created `{path}` with {made_of}.", f"已创建 `{path}`,包含 {made_of}。"), *left]
        )
    return combine([(yield from verify(path, wanted, means)), *left, *notes])


def _recipes(names: list[str]) -> list[Recipe]:
    found = [r for r in map(recipe, names or USUAL) if r]
    return list({r.name: r for r in found}.values())


def _prompt(request: Request, names: list[str], say: Tongue) -> str:
    """What the child is told: language and place as asked for, and every function by name."""
    language = language_of(request.text)
    kind = {"py": "Python ", "js": "JavaScript "}.get(language, "")
    asked = place_of(request.text)
    place = say(f" at `{asked}`", f",文件为 `{asked}`") if asked else ""
    functions = ", ".join(names or USUAL)
    return say(
        f"Create a new {kind}module{place} with the functions {functions}. Overwrite no existing file. Report its path.",
        f"创建一个新的 {kind}模块{place},包含 {functions} 函数。不要覆盖已有文件。报告文件路径。",
    )


def _write(
    request: Request, names: list[str], means: Means
) -> Generator[list[Ask], list[Outcome], str]:
    """Choose language and a free path by what is there, write the file, and give back its path."""
    listed = yield [
        call("glob", pattern=p) for p in ("**/*.py", "**/*.js", "**/*.ts", "**/package.json")
    ]
    python, script, typed, manifests = ([p for p in paths(outcome) if own(p)] for outcome in listed)
    asked = place_of(request.text)
    language = language_of(request.text) or (
        "js" if len(script) + len(typed) > len(python) or (manifests and not python) else "py"
    )
    modern = asked.endswith(".mjs")
    if language == "js" and "package.json" in manifests and not modern:
        package = (yield [call("read", file_path="package.json")])[0]
        modern = bool(re.search(r'"type":\s*"module"', package.text))
    path = yield from _free(asked, language, [*python, *script])
    source = _source(_recipes(names), language, modern)
    written = (yield [call("write", file_path=path, content=source)])[0]
    if written.error:
        raise Beyond(written.text)
    return path


def _free(
    asked: str, language: str, present: list[str]
) -> Generator[list[Ask], list[Outcome], str]:
    """A path that does not exist: the one asked for, else a usual one, else the same with a number."""
    usual = "string_utils" if language == "py" else "stringUtils"
    folder = next(
        (f for f in ("src/utils/", "utils/", "lib/") if any(p.startswith(f) for p in present)), ""
    )
    stem, _, suffix = (
        asked if "." in asked else f"{asked or folder + usual}.{language}"
    ).rpartition(".")
    for start in (1, 4, 7, 10):
        tries = [f"{stem}{'' if n == 1 else f'_{n}'}.{suffix}" for n in range(start, start + 3)]
        outcomes = yield [call("glob", pattern=path) for path in tries] + [
            call("read", file_path=path, limit=1) for path in tries
        ]
        listed, read = outcomes[: len(tries)], outcomes[len(tries) :]
        for path, seen, page in zip(tries, listed, read, strict=True):
            if (
                not paths(seen)
                and page.error
                and re.search(r"(?i)no such|not exist|not found|no file|nothing", page.text)
            ):
                return path
    raise Beyond(f"{stem}.{suffix}: exists already")


def _shown(recipe_: Recipe, path: str) -> str:
    return recipe_.name if path.endswith(".py") else camel(recipe_.name)


def _source(recipes: list[Recipe], language: str, modern: bool) -> str:
    """The text of the module."""
    if language == "py":
        documented = (
            re.sub(
                r"(?s)^(def .*?:)\n",
                lambda m, r=r: f'{m[1]}\n    """{r.about}"""\n',
                r.python,
                count=1,
            )
            for r in recipes
        )
        return (
            '"""Small functions on text, numbers and lists."""\n\n\n'
            + "\n\n\n".join(documented)
            + "\n"
        )
    documented = (f"/** {r.about} */\n{'export ' * modern}{r.javascript}" for r in recipes)
    exports = (
        "" if modern else f"\nmodule.exports = {{ {', '.join(camel(r.name) for r in recipes)} }};\n"
    )
    return (
        "/** Small functions on text, numbers and lists. */\n\n"
        + "\n\n".join(documented)
        + "\n"
        + exports
    )
