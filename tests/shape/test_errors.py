"""What an exception says: the message, the place, the remedy, as sentences."""

from __future__ import annotations

import pytest

from mudroom import MudroomError


@pytest.mark.parametrize(
    ("message", "where", "expected"),
    [
        ("no such directory", "/x", "no such directory (/x). Name another."),
        ("no such directory", "", "no such directory. Name another."),
        ("no answer (pause_turn)", "run 1", "no answer (pause_turn; run 1). Name another."),
        ("no call run()", "/x", "no call run() (/x). Name another."),
        ("It is gone.", "", "It is gone. Name another."),
        ("它不见了。", "", "它不见了。 Name another."),
        ("It can:\n- read\n", "", "It can:\n- read\nName another."),
    ],
)
def test_a_message_and_its_remedy_are_sentences(message: str, where: str, expected: str) -> None:
    assert str(MudroomError(message, where=where, remedy="Name another.")) == expected
    assert str(MudroomError(message)) == message
