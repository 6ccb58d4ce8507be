"""SessionFeed: a stream gets each event once, whatever it has read from the journal meanwhile."""

from __future__ import annotations

from mudroom._core.events import Delta, NoteInjected
from mudroom_serve.feed import SessionFeed


def make_feed() -> SessionFeed:
    feed = SessionFeed("11111111")
    feed.streams = 1
    return feed


def show(feed: SessionFeed, first: int, *texts: str) -> None:
    """Show durable events; `first`: position of the first one."""
    feed.observe(first, [NoteInjected(at=0, run="1", text=text) for text in texts])


def join(feed: SessionFeed, position: int) -> int:
    """Return the start of a stream that has the events up to a position."""
    start = feed.find_start(position)
    assert start is not None
    return start


def list_positions(feed: SessionFeed, number: int) -> list[int] | None:
    frames = feed.list_after(number)
    return None if frames is None else [frame.position for frame in frames]


def test_a_stream_joins_after_the_event_that_it_has() -> None:
    feed = make_feed()
    show(feed, 5, "five", "six")
    assert feed.find_start(3) is None
    assert list_positions(feed, join(feed, 4)) == [5, 6]
    assert list_positions(feed, join(feed, 5)) == [6]


def test_an_event_read_from_the_journal_before_it_is_shown_is_not_sent_again() -> None:
    feed = make_feed()
    show(feed, 5, "five")
    assert feed.find_start(6) is None  # the stream has read event 6, which is not shown yet
    show(feed, 6, "six")
    start = join(feed, 6)
    assert list_positions(feed, start) == []
    show(feed, 7, "seven")
    assert list_positions(feed, start) == [7]


def test_streamed_text_after_the_last_event_of_a_stream_is_sent() -> None:
    feed = make_feed()
    show(feed, 5, "five")
    feed.show_delta(Delta(at=0, run="1", kind="text", text="a"))
    start = join(feed, 5)
    frames = feed.list_after(start)
    assert frames
    assert [frame.kind for frame in frames] == ["delta"]


def test_a_stream_reads_the_journal_after_events_that_were_not_shown() -> None:
    feed = make_feed()
    show(feed, 5, "five")
    start = join(feed, 5)
    feed.forget()  # event 6 is durable, but its append was cancelled
    show(feed, 7, "seven")
    assert list_positions(feed, start) is None
    assert feed.find_start(5) is None
    start = join(feed, 6)
    assert list_positions(feed, start) == [7]


def test_a_stream_reads_the_journal_after_a_gap_in_what_is_shown() -> None:
    feed = make_feed()
    show(feed, 5, "five")
    start = join(feed, 5)
    show(feed, 7, "seven")
    assert list_positions(feed, start) is None
    show(feed, 6, "six")
    assert list_positions(feed, start) is None
