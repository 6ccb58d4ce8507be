"""Wrong names on the command line: variables, JSON flags, sessions, session options."""

from __future__ import annotations

import pytest

from mudroom import Session, UsageError
from mudroom._cli.actions.load_settings import describe_unknown_variables
from mudroom._cli.actions.parse_json_flags import load_json_schema
from mudroom._core.ports.journal import select_session
from mudroom.errors import UnknownName

IDS = [f"{n:08x}-d31a-4446-8fb1-3ffcecb3e3f8" for n in range(0xAB00, 0xAB00 + 200)]


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [
        ("MUDROOM_MODLE", "Did you mean MUDROOM_MODEL"),
        ("MUDROOM_MAX_TURN", "Did you mean MUDROOM_MAX_TURNS"),
        ("MUDROOM_PERMISSION_MODE", "Use the setting: mudroom config set permission_mode VALUE"),
        ("MUDROOM_XYZZY", "Known: MUDROOM_CHILD_MODEL, "),
    ],
)
def test_a_variable_that_is_not_used_is_named_with_the_nearest_one(
    variable: str, remedy: str
) -> None:
    environ = {
        variable: "x",
        "MUDROOM_MODEL": "y",
        "MUDROOM_OPENAI_MODEL": "z",
        "_MUDROOM_COMPLETE": "1",
    }
    (notice,) = describe_unknown_variables(environ)
    assert notice.startswith(f"${variable} is not used. ") and remedy in notice


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "expected a JSON object, not a list"),
        ('"x"', "expected a JSON object, not a text"),
        ("{x", "not JSON"),
        ("no/such/file", "cannot be read: No such file"),
    ],
)
def test_a_json_schema_that_is_none_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_json_schema(text)
    assert message in caught.value.message and "--json-schema" in caught.value.where
    assert '{"type": "object"' in caught.value.remedy and "file" in caught.value.remedy


def test_an_unknown_session_names_the_nearest_or_the_last_three_and_the_list() -> None:
    names = [("review-auth", IDS[5])]
    for text, remedy in (
        ("zzz", f"The last ones: {IDS[0][:8]}, {IDS[1][:8]}, {IDS[2][:8]}. `mudroom runs`"),
        ("reveiw-auth", "Did you mean review-auth?"),
        ("0000ab7g", "Did you mean 0000ab"),
    ):
        with pytest.raises(UnknownName) as caught:
            select_session(text, IDS, names)
        assert remedy in str(caught.value) and len(str(caught.value)) < 120
    with pytest.raises(UnknownName, match="There are none"):
        select_session("zzz", [], [])


def test_an_option_that_a_session_does_not_have_names_the_nearest_one() -> None:
    with pytest.raises(UnknownName, match=r"unknown option 'modle' \(Session\).*mean model"):
        Session(modle="offline")  # pyright: ignore[reportCallIssue]
    with pytest.raises(UnknownName, match=r"unknown option 'nosuch' \(Session\).*Known: agent, "):
        Session.run_sync("x", nosuch=1)  # pyright: ignore[reportCallIssue]
