"""Redaction: keys and values of secret variables reach neither the model nor the disk."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom import Session
from mudroom._adapters.models.scripted import ScriptedModel, call
from mudroom._adapters.output_filters import Redactor, is_secret_name
from mudroom._adapters.tools.bash import RedactingStream

A20, A36 = "aB3dE6gH9jK2mN5pQ8rS", "aB3dE6gH9jK2mN5pQ8rSaB3dE6gH9jK2mN5p"
SHAPES = {
    "AWS key": "AKIA" + "ABCDEFGH12345678",
    "AWS secret": "aws_secret_access_key = " + A20 + A20,
    "GitHub token": "ghp_" + A36,
    "GitLab token": "glpat-" + A20,
    "Slack token": "xoxb-" + "123456789012-" + A20,
    "Anthropic key": "sk-ant-" + "api03-" + A36,
    "OpenAI key": "sk-proj-" + A36,
    "Google key": "AIza" + A36[:35],
    "Stripe key": "sk_live_" + A20 + "1234",
    "npm token": "npm_" + A36,
    "Hugging Face token": "hf_" + A36,
    "JWT": "eyJ" + A20 + ".eyJ" + A20 + "." + A20,
    "password in an address": "https://" + "bob:hunter22@example.org/x",
    "private key": "-----BEGIN RSA PRIVATE "
    + "KEY-----\n"
    + (A36 + "\n") * 10
    + "-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("before", ["before ", "--", "__ ", "..", "::", "//", "é ", "B "])
def test_known_forms_of_keys_are_redacted_after_any_character(name: str, before: str) -> None:
    text = Redactor({})(f"{'=' * 99} {before}{SHAPES[name]} after\n{'_-.:/' * 99}")
    assert f"[redacted: {name}]" in text and before.strip() in text and "after" in text
    assert SHAPES[name] not in text and A20 not in text and "hunter22" not in text


ORDINARY = [
    "def test_task(): return mask-the-very-long-kebab-case-name-of-a-thing-1",
    "http://localhost:8080/a?b=c@d",
    "git@github.com:a/b.git",
    "sha256:" + "ab" * 32,
    "npm_config_registry=x",
    "the token is short",
    "eyJ alone",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "disk-usage-of-all-folders-in-the-tree",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert Redactor({})(text) is text


def test_values_of_secret_variables_are_redacted() -> None:
    redact = Redactor(
        {
            "MY_TOKEN": "correct-horse-9",
            "ANTHROPIC_API_KEY": "k3y-of-mine",
            "EDITOR": "emacs-nox-1",
            "DB_PASSWORD": "true",
            "X_KEY": "/usr/lib/x",
        }
    )
    assert redact("a correct-horse-9 b k3y-of-mine c emacs-nox-1 true /usr/lib/x") == (
        "a [redacted: $MY_TOKEN] b [redacted: $ANTHROPIC_API_KEY] c emacs-nox-1 true /usr/lib/x"
    )


def test_names_that_look_secret() -> None:
    secret = ["GITHUB_TOKEN", "aws_secret_access_key", "DB_PASSWD", "AWS_PROFILE", "STRIPE_KEY"]
    assert all(map(is_secret_name, secret))
    assert not any(map(is_secret_name, ["PATH", "KEYBOARD", "HOME", "LANG"]))


@given(st.lists(st.integers(1, 40_000), max_size=12), st.integers(0, 150_000))
def test_a_secret_is_redacted_wherever_chunks_are_cut(sizes: list[int], at: int) -> None:
    whole = b"x\n" * 75_000
    secret = SHAPES["GitHub token"].encode()
    whole = whole[:at] + secret + whole[at:]
    stream, out = RedactingStream(Redactor({})), b""
    for size in sizes:
        out += stream.feed(whole[:size])
        whole = whole[size:]
    out += stream.feed(whole) + stream.flush()
    assert secret not in out and out.count(b"[redacted: ") == 1


@given(st.binary(max_size=2_000))
def test_a_stream_without_secrets_is_unchanged(data: bytes) -> None:
    stream = RedactingStream(lambda text: text)
    assert stream.feed(data) + stream.flush() == data


async def test_76_secret_scan(tmp_path: Path) -> None:
    """Secrets in the environment, a file and output are in no request and no file of mudroom."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    planted = "pl4nted-value-77"
    (work / "config").write_text(f"token: {SHAPES['GitHub token']}\nown: {planted}\n")
    script = [
        [
            call("read", file_path="config"),
            call("bash", command="cat config"),
            call("grep", pattern="own", output_mode="content"),
        ],
        [call("bash", command='yes "$(cat config)" | head -c 3000000')],
        "Done.",
    ]
    model = ScriptedModel(script)
    environ = {"MY_SECRET": planted}
    seen: list[Any] = []
    async with Session(
        model=model, cwd=str(work), home=str(home), environ=environ, sandbox="off"
    ) as session:
        session.watch(seen.append)
        await session.run("Look.")
    disclosed = str(model.requests) + str(seen)
    assert "[redacted: $MY_SECRET]" in disclosed and "[redacted: GitHub token]" in disclosed
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.stat().st_size > 1_000_000 for path in files), (
        "the long output is kept in a file"
    )
    kept = b"".join(path.read_bytes() for path in files)
    for secret in (planted, SHAPES["GitHub token"]):
        assert secret not in disclosed and secret.encode() not in kept
    assert all(path.stat().st_mode & 0o077 == 0 for path in home.rglob("*.db*"))


async def test_files_of_the_user_are_written_without_redaction(tmp_path: Path) -> None:
    model = ScriptedModel([[call("write", file_path="a", content=SHAPES["npm token"])], "Done."])
    async with Session(
        model=model, cwd=str(tmp_path), home=str(tmp_path / "h"), environ={}, sandbox="off"
    ) as session:
        await session.run("Write.")
    assert (tmp_path / "a").read_text() == SHAPES["npm token"]


def test_redaction_takes_less_than_200_ns_per_character() -> None:
    redact = Redactor(dict(os.environ))
    text = Path(__file__).read_text("utf-8").replace(A36, "a").replace(A20, "b") * 20
    began = time.process_time()
    redact(text)
    assert (time.process_time() - began) / len(text) < 2e-7
