"""Output of a one-shot run: its events and report, on stdout and stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import msgspec

from ..._adapters.models.pricing import calculate_cost
from ..._core.agents import Mode
from ..._core.events import AnyEvent, PermissionDecided, StoredEvent, TurnFailed, WorkMerged
from ..._core.listings import count_noun
from ..._core.runs import Reason, Report, find_root_id, is_child_id
from ..._projections.ledger import LedgerBuilder, describe_ledger
from ..._projections.run_tree import RunTree
from ..._session.config import Settings
from ..._session.session import Session
from .notices.start import OFFLINE_LINE, describe_sandbox, select_new_notices
from .plain_progress import PlainProgress
from .progress import Progress, print_ledger, print_notice, should_color, supports_cursor
from .standard_output import StandardOutput
from .text import choose_glyphs

if TYPE_CHECKING:
    from ..._projections.stream_json import StreamJson
    from .answer_stream import AnswerStream

# The provider is unreachable or overloaded: try again later (EX_TEMPFAIL of sysexits.h).
EXIT_TRY_LATER = 75
# With `--strict-merges`: the run succeeded, but a child's work did not land.
EXIT_NOT_LANDED = 3


class ExitCodeRule:
    def __init__(self, *, strict_merges: bool = False) -> None:
        self._strict_merges = strict_merges
        self._merges: list[WorkMerged] = []
        # True if a retry may succeed after the root run's last failure.
        self._is_transient = False

    def apply(self, event: AnyEvent) -> None:
        if isinstance(event, WorkMerged):
            self._merges.append(event)
        if isinstance(event, TurnFailed) and not is_child_id(event.run):
            self._is_transient = event.transient

    def apply_past(self, event: StoredEvent) -> None:
        """Handle an earlier process's event: the outcome of its work still counts."""
        if isinstance(event, WorkMerged):
            self._merges.append(event)

    def exit_code(self, report: Report, signals: list[int]) -> int:
        if signals:
            return 128 + signals[0]
        if report.reason is Reason.ERROR and self._is_transient:
            return EXIT_TRY_LATER
        if not report.ok:
            return 1
        if not self._strict_merges:
            return 0
        from ..._core.events import count_merges

        merges = count_merges(self._merges)
        if merges is None:
            return 0
        return EXIT_NOT_LANDED if merges.landed < merges.works or merges.only_in_git else 0


def open_progress(color: str, *, verbose: bool, quiet: bool, plain: bool) -> Progress:
    """Open a live tree on a terminal, plain lines elsewhere, nothing in quiet mode."""
    if quiet:
        return Progress(RunTree())
    if supports_cursor(sys.stderr) and not plain:
        from .live_tree import LiveTree

        return LiveTree(sys.stderr, RunTree(), color=should_color(sys.stderr, color))
    return PlainProgress(sys.stderr, RunTree(), verbose=verbose)


class RunReporter:
    """Prints one run: its events and its report.

    On a terminal, a text answer is rendered while it streams. Elsewhere its source text is written
    at the end of the run, without control characters. `denial_hint` is printed if calls were
    refused.
    """

    def __init__(
        self,
        session: Session,
        settings: Settings,
        *,
        mode: Mode,
        verbose: bool,
        quiet: bool,
        as_json: bool = False,
        denial_hint: str = "",
    ) -> None:
        self._format = settings.output_format
        self._color = should_color(sys.stderr, settings.color)
        self._quiet = quiet
        self._as_json = as_json
        self._annotated = session.id if settings.annotate else ""
        self._denial_hint = denial_hint
        self._denial_count = 0
        self._ledger = LedgerBuilder()
        self._exit_code_rule = ExitCodeRule(strict_merges=settings.strict_merges)
        is_offline = session.model.startswith("offline:") and self._format == "text"
        self._model_line = OFFLINE_LINE if is_offline and not quiet else ""
        streams_json = self._format == "stream-json"
        # If the reader of events is gone, nobody wants the rest of the run.
        self._output = StandardOutput(session.runs.cancel) if streams_json else StandardOutput()
        # On one terminal, a drawn tree and JSON lines would overwrite each other.
        plain = settings.screen == "plain" or (streams_json and sys.stdout.isatty())
        self.screen = open_progress(settings.color, verbose=verbose, quiet=quiet, plain=plain)
        self._answer: AnswerStream | None = None
        if self._format == "text" and not as_json and sys.stdout.isatty():
            self._stream_answer(should_color(sys.stdout, settings.color))
        self._lines = self._open_lines(session, mode)
        notices = select_new_notices(settings.home, session.cwd, session.notices)
        texts = [notice.text for notice in notices]
        if verbose or session.sandbox.tier != "full":
            texts.insert(0, describe_sandbox(session, network=settings.allow_net))
        for text in texts:
            if text and not quiet:
                print_notice(text)
        if self._lines and streams_json:
            self._write_line(self._lines.make_init_line())
        session.watch(self._apply)

    def add_past_events(self, events: Iterable[StoredEvent], roots: Collection[str]) -> None:
        """Count an earlier process's events without printing a line for each.

        Of root runs outside `roots`, which do not continue, only the named children matter.
        """
        for event in events:
            if find_root_id(event.run) not in roots:
                self.screen.tree.roster.apply(event)
                continue
            self._ledger.apply(event)
            self._exit_code_rule.apply_past(event)
            self.screen.tree.apply(event)
            if self._lines:
                list(self._lines.make_event_lines(event))

    def print_notice(self, text: str) -> None:
        if not self._quiet:
            self.screen.print_above(lambda: print_notice(text))

    def print_report(self, report: Report, signals: list[int]) -> int:
        # Not needed until the end of the run.
        from .report import describe_changed_files, encode_answer, explain_failure

        ledger = self._ledger.ledger
        if self._lines:
            result = self._lines.make_result_line(
                report, msgspec.to_builtins(ledger), has_value=self._as_json
            )
            self._write_line(result)
        elif not self._answer:
            self._output.write(encode_answer(report, as_json=self._as_json))
        if failure := explain_failure(report):
            print_notice(failure)
        if self._denial_hint and self._denial_count:
            calls = count_noun(self._denial_count, "tool call")
            print_notice(f"{calls} refused. {self._denial_hint}")
        if (changes := describe_changed_files(report)) and not self._quiet:
            print_notice(changes)
        if ledger.children and not self._quiet:
            print_ledger(describe_ledger(ledger), color=self._color)
        if self._model_line and report.ok:  # A failure names the offline model.
            print_notice(self._model_line, prefix="")
        if self._annotated:
            from .github_actions import write_annotations

            write_annotations(report, ledger, os.environ, session=self._annotated)
        if self._output.error:
            print_notice(f"stdout cannot be written: {self._output.error}")
        exit_code = self._exit_code_rule.exit_code(report, signals)
        return exit_code or int(bool(self._output.error))

    def _stream_answer(self, color: bool) -> None:
        from .answer_stream import AnswerStream  # slow to import, as is the next one
        from .markdown import format_unfinished, render_markdown

        def write(markdown: str, ends: bool = True) -> None:
            columns = get_terminal_size().columns
            text = render_markdown(markdown, columns=columns, color=color, ends=ends)
            data = text.encode("utf-8", "replace")
            self.screen.print_answer(lambda: self._output.write(data))

        answer = AnswerStream(write, lambda: write("(the answer was cut off here)"))
        self._answer = answer
        glyphs = choose_glyphs(sys.stdout.encoding)
        self.screen.format_pending = lambda columns, height: format_unfinished(
            answer.pending, columns=columns, height=height, color=color, glyphs=glyphs
        )

    def _apply(self, event: AnyEvent) -> None:
        self._ledger.apply(event)
        self._exit_code_rule.apply(event)
        self._denial_count += isinstance(event, PermissionDecided) and not event.allowed
        self.screen.on_event(event)
        if self._answer:
            self._answer.apply(event)
        if self._lines:
            for line in self._lines.make_event_lines(event):
                if self._format == "stream-json":
                    self._write_line(line)

    def _open_lines(self, session: Session, mode: Mode) -> StreamJson | None:
        if self._format == "text":
            return None
        from ..._projections.stream_json import StreamJson

        return StreamJson.of_session(session, cost=calculate_cost, mode=mode)

    def _write_line(self, line: dict[str, Any]) -> None:
        from .json_output import encode_line

        self._output.write(encode_line(line))
