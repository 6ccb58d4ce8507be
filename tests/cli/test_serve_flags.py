"""Flags of `mudroom serve`, and its tokens on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudroom._cli.actions.listen_flags import parse_address
from mudroom._cli.actions.serve_http import parse_workspaces
from mudroom._cli.main import main
from mudroom.errors import UsageError


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:8700", ("127.0.0.1", 8700)), ("[::1]:0", ("::1", 0)), ("a.b:1", ("a.b", 1))],
)
def test_addresses_have_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8700", ":8700", "localhost:", "localhost:x", "a:99999", "a:-1"])
def test_wrong_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        parse_address(text)


def test_workspaces_have_names(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert parse_workspaces(folder, []) == {"default": folder}
    assert parse_workspaces(".", [f"docs={folder}"]) == {"docs": folder}
    assert parse_workspaces(folder, [f"docs={folder}"]) == {"default": folder, "docs": folder}


@pytest.mark.parametrize("texts", [["docs"], ["=x"], ["docs="], ["a=.", "a=."], ["a=/no/such"]])
def test_wrong_workspaces_are_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_workspaces(".", texts)


def test_tokens_are_made_listed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    add = ["serve", "token", "add", "ada", "--scope", "read", "--usd-per-day", "5", "--json"]
    assert run(add) == 0
    token = json.loads(capsys.readouterr().out)
    assert token["token"].startswith(f"mudroom_{token['id']}_")
    assert run(["serve", "token", "list"]) == 0
    listed = capsys.readouterr().out
    assert "ada" in listed
    assert "$5 a day" in listed
    assert token["token"] not in listed
    assert run(["serve", "token", "remove", token["id"]]) == 0
    capsys.readouterr()
    assert run(["serve", "token", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": []}
    assert run(["serve", "token", "remove", token["id"]]) == 2
    assert "unknown token" in capsys.readouterr().err


def test_an_open_address_needs_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    assert run(["serve", "-m", "offline", "--listen", "0.0.0.0:0"]) == 2
    assert "--tls-cert" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["serve"], ["batch", "in.jsonl"], ["-p", "hi"]])
def test_an_unknown_worker_is_refused_at_the_start(
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text('"hi"\n')
    assert run([*words, "--worker", "proces"]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "unknown worker 'proces' (--worker). Use" in err
    assert '"process:N"' in err
