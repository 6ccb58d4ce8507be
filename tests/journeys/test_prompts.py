"""Prompts with files and images, commands of files, and names of other programs' commands."""

from __future__ import annotations

from pathlib import Path

from mudroom.testing.model_server import ModelServer

from ..session.test_prompt_images import make_png
from .conftest import Tmux
from .course import MODEL

READY = "sandbox"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_a_mentioned_file_is_sent_and_its_size_is_said(tmux: Tmux) -> None:
    project = tmux.mudroom.project
    write(project / "big.log", "x" * 100_001)
    (project / "data.bin").write_bytes(b"\0\1")
    write(project / "secret.txt", "planted")
    async with ModelServer(lambda asked: f"reply-{asked.number}") as server:
        await tmux.open(server, "--disallowed-tools", "Read(secret.txt)")
        await tmux.say("see @f3.txt, @big.log, @data.bin and @secret.txt")
        await tmux.expect(
            "f3.txt: attached, 301 lines, 3.6 kB",
            "big.log: only the path is sent: more than 100 kB; the model reads parts of it",
            "data.bin: only the path is sent: not text in UTF-8",
            "secret.txt: not attached: a rule says deny",
            "reply-",
        )
        words = str(server.requests[0].messages[-1])
        assert '<file path="f3.txt">' in words and "MUD-3" in words
        assert "see @f3.txt, big.log, data.bin and secret.txt" in words
        assert "planted" not in words and "x" * 1000 not in words
        await tmux.say("/undo")
        await tmux.expect("Removed prompt 1 and all after it.", "mudroom >> see @f3.txt, big.log")


async def test_images_are_sent_by_mention_and_by_pasted_path(tmux: Tmux) -> None:
    project = tmux.mudroom.project
    (project / "a.png").write_bytes(make_png(3, 2))
    desktop = project.parent / "my desktop"
    desktop.mkdir()
    (desktop / "shot.png").write_bytes(make_png(5, 4))
    (project / "torn.png").write_bytes(make_png(5, 4)[:40])
    async with ModelServer(lambda asked: f"reply-{asked.number}") as server:
        await tmux.open(server, columns=200)
        await tmux.type("compare @a.png, torn.png and ")
        await tmux.paste(str(desktop / "shot.png").replace(" ", "\\ "))
        await tmux.press("Enter")
        await tmux.expect(
            "a.png: image attached, 3x2 pixels,",
            "shot.png: image attached, 5x4 pixels,",
            "torn.png: only the path is sent: not a complete image",
            "reply-",
        )
        assert server.requests[0].body.count(b"image/png") == 2


async def test_commands_and_skills_of_files_are_prompts_with_arguments(tmux: Tmux) -> None:
    project = tmux.mudroom.project
    command = "---\ndescription: find bugs\n---\nReview $1 for $2, see @f0.txt. All: $ARGUMENTS"
    write(project / ".claude/commands/review.md", command)
    write(project / ".agents/commands/help.md", "never sent")
    skill = "---\nname: release\ndescription: make a release\n---\nRelease it with $ARGUMENTS."
    write(project / ".claude/skills/release/SKILL.md", skill)
    async with ModelServer(lambda asked: f"reply-{asked.number}") as server:
        await tmux.start(*MODEL, url=server.url, rows=50)
        await tmux.expect("trust")
        await tmux.press("1")
        await tmux.expect(READY)
        await tmux.say("/help")
        await tmux.expect(
            "/review", "find bugs", "/release", "help.md is not used:", "/help is built"
        )
        await tmux.type("/rev")
        await tmux.expect("/review", "find bugs")
        await tmux.say("iew a.py leaks")
        await tmux.expect("f0.txt: attached, 301 lines", "reply-")
        words = str(server.requests[0].messages[-1])
        assert "Review a.py for leaks" in words and "All: a.py leaks" in words and "MUD-0" in words
        await tmux.say("/release tag v1")
        await tmux.expect("SKILL.md")
        await tmux.expect_scrolled("reply-", 2)
        words = str(server.requests[-1].messages[-1])
        assert "Release it with tag v1." in words and "<skill name=" in words


async def test_commands_of_other_programs_name_the_nearest_one(tmux: Tmux) -> None:
    async with ModelServer(lambda asked: f"reply-{asked.number}") as server:
        await tmux.open(server)
        await tmux.say("/login")
        await tmux.expect("unknown command /login. Keys are environment variables")
        await tmux.say("/undo")
        await tmux.expect("There is no earlier prompt to rewind to.")
        assert not server.requests
