"""Secrets in what tools give back: known shapes of keys, and the values of the environment's own; replaced before model and disk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

SECRET_PATTERNS = (
    ("AWS key", "AKIA|ASIA", r"[0-9A-Z]{16}(?![0-9a-zA-Z])"),
    (
        "AWS secret",
        "ecret_access_key|ECRET_ACCESS_KEY|ecretAccessKey",
        r"[\"']?\s*[:=]\s*[\"']?[A-Za-z0-9/+=]{40}",
    ),
    ("GitHub token", "ghp_|gho_|ghu_|ghs_|ghr_", r"[A-Za-z0-9]{36,}"),
    ("GitHub token", "github_pat_", r"[A-Za-z0-9_]{22,}"),
    ("GitLab token", "glpat-", r"[\w-]{20,}"),
    ("Slack token", "xoxa-|xoxb-|xoxe-|xoxp-|xoxr-|xoxs-", r"[\w-]{10,}"),
    ("Slack address", "hooks.slack.com/services/", r"[\w/]{20,}"),
    ("Anthropic key", "sk-ant-", r"[\w-]{20,}"),
    ("OpenAI key", "sk-", r"(?<!\w{4})(?<!\w\w\w-)(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{32,}"),
    ("Google key", "AIza", r"[\w-]{35}"),
    ("Google token", "ya29.", r"[\w-]{30,}"),
    ("Stripe key", "sk_live_|rk_live_", r"[A-Za-z0-9]{20,}"),
    ("npm token", "npm_", r"[A-Za-z0-9]{36}\b"),
    ("PyPI token", "pypi-AgEI", r"[\w-]{50,}"),
    ("Hugging Face token", "hf_", r"(?=[A-Za-z]*\d)[A-Za-z0-9]{30,}"),
    ("SendGrid key", "SG.", r"[\w-]{20,}\.[\w-]{30,}"),
    ("JWT", "eyJ", r"[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}"),
    ("password in an address", "://", r"(?P<secret>[\w.+-]{0,64}:[^\s:/@'\"]{3,256})@(?=[\w.-])"),
    (
        "private key",
        "-----BEGIN ",
        r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<secret>[^-]{20,20000})",
    ),
)
"""What a secret is called in its marker, texts it begins with, what follows; of a named group only that is taken out."""

_PARTS = "PASSWORD PASSWD PASSPHRASE SECRET TOKEN CREDENTIAL API_KEY APIKEY PRIVATE_KEY PRIVATEKEY ACCESS_KEY ACCESSKEY"
_ENDS = ("_KEY", "_PAT", "_PWD", "_AUTH")
_MIN_LENGTH = 8
"""Characters of a variable's value below which it is no secret worth the words it would tear out of texts."""


@lru_cache(maxsize=64)
def _compile_pattern(begins: str, follows: str) -> re.Pattern[str]:
    return re.compile(re.escape(begins) + follows)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    name = name.upper()
    return (
        name.startswith("AWS_")
        or name.endswith(_ENDS)
        or any(part in name for part in _PARTS.split())
    )


class Redactor:
    """Takes secrets out of texts; call it with a text.

    Arguments:
        environ: variables whose values are taken out wherever they stand, if their names look secret.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        pairs = ((value.strip(), name) for name, value in environ.items() if is_secret_name(name))
        self._values = sorted(
            (pair for pair in pairs if _is_distinctive(pair[0])), key=lambda pair: -len(pair[0])
        )

    def __call__(self, text: str) -> str:
        """The text with a marker where each secret was; the same text if there was none."""
        for value, name in self._values:
            if value in text:
                text = text.replace(value, f"[redacted: ${name}]")
        for mark, beginnings in _BY_CHARACTER.items():
            if mark in text:
                for name, begins, follows in beginnings:
                    if begins in text:
                        text = _compile_pattern(begins, follows).sub(
                            lambda found, name=name: _replace_secret(found, name), text
                        )
        return text


def _is_distinctive(value: str) -> bool:
    """Whether a value is no ordinary word, number or path."""
    return len(value) >= _MIN_LENGTH and not re.fullmatch(
        r"[a-z]+|[A-Z]+|\d+|(/[\w.+-]+)+/?|true|false", value
    )


def _replace_secret(found: re.Match[str], name: str) -> str:
    secret = found.groupdict().get("secret", found[0])
    return found[0].replace(secret, f"[redacted: {name}]")


def _index_by_character() -> dict[str, list[tuple[str, str, str]]]:
    """Most beginnings have one of these in them, and that a text has none of it is seen a hundred times as quickly as words are found."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name, texts, follows in SECRET_PATTERNS:
        for begins in texts.split("|"):
            found.setdefault(next((mark for mark in "_-./:" if mark in begins), ""), []).append(
                (name, begins, follows)
            )
    return found


_BY_CHARACTER = _index_by_character()
