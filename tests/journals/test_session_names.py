"""Rules for ids and names of sessions."""

import pytest

from mudroom._core.ports.journal import check_session_name, select_session
from mudroom.errors import UnknownName, UsageError

IDS = [f"aa{n}" for n in range(6)]


def test_an_ambiguous_beginning_names_the_first_five_ids() -> None:
    with pytest.raises(UsageError) as caught:
        select_session("aa", IDS, [])
    assert caught.value.message == "6 sessions begin with 'aa'"
    assert caught.value.remedy == "Write more of the id: aa0, aa1, aa2, aa3, aa4, …"
    with pytest.raises(UsageError) as caught:
        select_session("aa", IDS[:5], [])
    assert caught.value.remedy == "Write more of the id: aa0, aa1, aa2, aa3, aa4"


def test_the_first_of_two_sessions_with_one_name_is_found() -> None:
    assert select_session("my work", IDS, [("my work", "aa1"), ("my work", "aa2")]) == "aa1"


def test_an_unknown_text_names_the_last_three_ids_and_how_to_list_all() -> None:
    many = [f"{n:02}" for n in range(30)]
    with pytest.raises(UnknownName) as caught:
        select_session("mine", many, [("my work", "01")])
    assert caught.value.kind == "session" and "my work" in caught.value.known
    assert caught.value.remedy == "The last ones: 00, 01, 02. `mudroom runs` lists them."


def test_a_name_has_at_most_80_characters() -> None:
    check_session_name("x" * 80, [])
    with pytest.raises(UsageError, match="at most 80 characters") as caught:
        check_session_name("x" * 81, [])
    assert caught.value.where == repr("x" * 80)


@pytest.mark.parametrize("name", ["last", "0af", "ABC", "a-1"])
def test_a_name_that_looks_like_an_id_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="looks like a session id"):
        check_session_name(name, [])


def test_a_used_name_is_refused_with_the_id_of_its_session() -> None:
    names = [("other", "bb"), ("my work", "0123456789")]
    check_session_name("my work", names, "0123456789")
    check_session_name("", [("", "bb")])
    with pytest.raises(UsageError, match="session 01234567 has the name 'my work' already"):
        check_session_name("my work", names, "bb")
