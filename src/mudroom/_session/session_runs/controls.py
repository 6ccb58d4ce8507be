"""RunControls: the methods of a session that act on running runs."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod

from ..._core.ports import RunHandle
from ..._core.run_ids import find_parent_id
from ..._core.runs import InboxMessage
from ..._core.type_checks import check_type
from ..._engine.team_registry import TeamRequest, add_answer
from ..._projections.open_work import OpenWork, list_open_work
from ..._projections.run_tree import RunTree
from ..._projections.team import Teammate, normalize_name
from ...errors import UnknownName
from .runner import SessionRunner


class RunControls(ABC):
    """Messages to the running runs of a session, and ways to stop them."""

    # None before the session is open and after it is closed.
    _runner: SessionRunner | None

    def send(self, run_id: str, message: str) -> bool:
        """Send a message to a running run; its model reads it with the next tool results.

        `run_id` may be the name of a named child. Returns False if it is not running. The message
        is in the record before the model reads it, but perhaps not yet when this call returns;
        `send_durably` waits for that. Raises UnknownName if no child of the session has had the
        name.
        """
        check_type("message", message, str, "send")
        handle = self._find_run(run_id)
        return handle is not None and handle.send(InboxMessage(uuid.uuid4().hex, message))

    async def send_durably(
        self, run_id: str, message: str = "", *, approve: bool | None = None
    ) -> bool:
        """Send a message like `send`, and return when the record has it.

        From then on the model reads it exactly once, even after a crash. Returns False if the run
        is not running, or ends without the message. Raises UnknownName, JournalError.

        An idle named child works again with the message. If no prompt runs, it does so when the
        next one begins, even in a later process; then this returns True.

        Arguments:
            approve: answer to a named child that waits for approval of its plan. True: it works
                with the mode that it has without a plan. False: it plans again. If no plan waits,
                nothing is sent and this returns False.

        Example:
            await session.send_durably("alice", "Look at the tests, too.")
            await session.send_durably("bob", approve=True)
        """
        check_type("run_id", run_id, str, "send_durably")
        check_type("message", message, str, "send_durably")
        check_type("approve", approve, bool | None, "send_durably")
        message = add_answer(message, approve)
        self._find_run_id(run_id)  # Raises for a wrong name.
        teams = self._require_open().resources.services.teams
        if parent := teams.find_parent(run_id):
            request = TeamRequest(parent, "user", uuid.uuid4().hex, run_id, message, approve)
            return not (await teams.send(request)).is_error
        from .team_messages import send_between_prompts  # most sessions need no such module

        sent = InboxMessage(uuid.uuid4().hex, message, approve=approve)
        runner = self._require_open()
        services = runner.resources.services
        if await send_between_prompts(services, runner.latest_run, run_id, sent):
            return True
        if approve is not None:
            return False
        handle = self._find_run(run_id)
        return handle is not None and handle.send(sent) and await handle.wait_until_stored(sent.id)

    def wrap_up(self, run_id: str) -> bool:
        """Ask a running run to stop and summarise its work.

        Its report has the reason CANCELLED and `recovered`. Returns False if it is not running.
        """
        handle = self._find_run(run_id)
        return handle is not None and handle.wrap_up()

    def detach(self, run_id: str | None = None) -> bool:
        """Let a call return that waits for a child or command; that continues in the background.

        The parent reads its result in a notification. Returns False if no call waits for it. If the
        parent works in a worker process, the result only states whether it works.

        Arguments:
            run_id: the child, or the place of the call of a command: run, turn and position.
                None for all children and commands that root runs wait for.

        Example:
            session.detach("1.2.1")
        """
        if run_id is None:
            return self._require_open().detach_all()
        run_id = self._find_run_id(run_id)
        handle = self._find_parent(run_id)
        return handle is not None and handle.detach(run_id)

    async def list_open_work(self) -> list[OpenWork]:
        """List the runs and background commands that work now, each after its parent.

        Example:
            for work in await session.list_open_work():
                print(work.id, work.title, work.seconds)
        """
        resources = self._require_open().resources
        tree = RunTree()
        async for event in resources.services.journal.read():
            tree.apply(event)
        find = resources.worker.find
        return [
            work
            for work in list_open_work(tree, now=resources.services.clock.now())
            # The record says what has not ended; what was lost with a process no longer works.
            if find(work.id if work.kind == "run" else work.parent)
        ]

    def cancel(self, run_id: str | None = None) -> bool:
        """Stop a run and all runs below it, with reason CANCELLED.

        Without an id, stop everything: prompts, tasks, `map` and scopes, including those that wait
            for
        their start. The id of a background command stops the command. Returns False if nothing is
        running.
        """
        if run_id is None:
            return self._require_open().cancel_all()
        if handle := self._find_run(run_id):
            return handle.cancel()
        parent = self._find_parent(run_id)
        return parent is not None and parent.stop_command(run_id)

    def pause(self) -> bool:
        """Stop all work so that a later process continues it. Returns False if nothing is running.

        Commands and open requests are stopped as by `cancel`, but no end of a run is recorded: a
        session that resumes this one continues each run, including those in the background. From
        now on the session starts nothing, and the calls that wait for a run raise SessionPaused.
        Call this when the program is asked to end, for example by SIGTERM, which may also come
        before the session is open or after it is closed: then nothing is running.

        Example:
            loop.add_signal_handler(signal.SIGTERM, session.pause)
        """
        return self._runner is not None and self._runner.pause()

    def interrupt(self) -> bool:
        """Stop the prompt's current turn; its background work continues.

        The call that runs the prompt returns a report with `is_interrupted`. The next prompt
        continues the same run, which then reads the reports of its background work. A prompt
        without background work ends as by `cancel`. Returns False if no prompt works.

        Example:
            session.interrupt()
            await session.run("First tell me what you have.")
        """
        return self._require_open().interrupt()

    @property
    def interrupted_run(self) -> str:
        """Id of the prompt that was interrupted and has not ended, "" if there is none.

        Example:
            if session.interrupted_run:
                print(len(await session.list_open_work()), "runs and commands continue")
        """
        return self._require_open().interrupted_run

    @property
    def teammates(self) -> tuple[Teammate, ...]:
        """The session's named children, oldest first. A new one may have an earlier one's name.

        Example:
            for teammate in session.teammates:
                print(teammate.name, teammate.state, len(teammate.unread))
        """
        return tuple(self._require_open().resources.services.teams.roster.teammates)

    def _find_run(self, run_id: str) -> RunHandle | None:
        return self._require_open().resources.worker.find(self._find_run_id(run_id))

    def _find_run_id(self, name: str) -> str:
        """Return the id of a named child's last run, or an id as it is. Raises UnknownName."""
        check_type("run_id", name, str)
        teams = self._require_open().resources.services.teams
        known = {teammate.name for teammate in teams.roster.teammates}
        wanted = normalize_name(name)
        # Ids of runs begin with a digit.
        if wanted[:1].isalpha() and wanted not in known:
            raise UnknownName("teammate", name, known)
        return teams.find_run_id(name)

    def _find_parent(self, work_id: str) -> RunHandle | None:
        """Return the handle of the run that started a child or a command, if it works."""
        parent = find_parent_id(work_id)
        return self._find_run(parent) if parent else None

    @abstractmethod
    def _require_open(self) -> SessionRunner:
        """Return the session's runner. Raises UsageError if the session is not open."""
