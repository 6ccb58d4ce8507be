"""The table of all paths."""

from __future__ import annotations

from typing import Any

from .event_stream import KINDS, EventRoutes
from .information_routes import InformationRoutes
from .openai.chat import ChatRoutes
from .openai.requests import ChatRequest, ResponseRequest
from .openai.responses import ResponseRoutes
from .request_bodies import ClientEvent, NewSession
from .response_bodies import (
    AgentPage,
    Deleted,
    EventPage,
    Health,
    InputView,
    ModelPage,
    ModelView,
    SessionCreated,
    SessionPage,
    SessionView,
)
from .route import Parameter, Route
from .session_routes import SessionRoutes

_SESSION = "/v1/sessions/{session}"
_AFTER = Parameter(name="after", description="Cursor: begin after it.")
_KEY = Parameter(
    name="Idempotency-Key",
    description="A request that is repeated with the same key has its effect once.",
    place="header",
)
_KINDS = Parameter(
    name="kinds", description=f"Types of events, with commas: {', '.join(sorted(KINDS))}."
)
_RUN = Parameter(name="run", description="Only events of this run and of those below it.")


def _limit(maximum: int) -> Parameter:
    schema = {"type": "integer", "minimum": 1, "maximum": maximum}
    return Parameter(name="limit", description="Longest page.", schema=schema)


def make_session_routes(sessions: SessionRoutes) -> list[Route]:
    return [
        Route(
            method="POST",
            path="/v1/sessions",
            summary="Create a session, and start its first prompt if it has one.",
            action=sessions.create,
            scope="run",
            body=NewSession,
            answer=SessionCreated,
            status=201,
            more_statuses={200: "The session of an earlier request with the same key."},
            parameters=(_KEY,),
        ),
        Route(
            path="/v1/sessions",
            summary="List your sessions, the newest first.",
            action=sessions.list,
            answer=SessionPage,
            parameters=(_AFTER, _limit(500)),
        ),
        Route(
            path=_SESSION,
            summary="Return a session.",
            action=sessions.read,
            answer=SessionView,
        ),
        Route(
            method="DELETE",
            path=_SESSION,
            summary="Stop the work of a session and delete it.",
            action=sessions.delete,
            scope="run",
            answer=Deleted,
        ),
    ]


def make_event_routes(sessions: SessionRoutes, events: EventRoutes) -> list[Route]:
    return [
        Route(
            method="POST",
            path=f"{_SESSION}/events",
            summary="Send an event to a session. It needs the scope run, or answer for an answer.",
            action=sessions.add_event,
            body=ClientEvent,
            answer=InputView,
            status=202,
            parameters=(_KEY,),
        ),
        Route(
            path=f"{_SESSION}/events",
            summary="Return recorded events.",
            action=events.list,
            answer=EventPage,
            parameters=(_AFTER, _KINDS, _RUN, _limit(1000)),
        ),
        Route(
            path=f"{_SESSION}/stream",
            summary="Stream recorded events, and new ones as they come.",
            action=events.stream,
            media="text/event-stream",
            parameters=(
                _AFTER,
                _KINDS,
                _RUN,
                Parameter(
                    name="deltas",
                    description="1: streamed text, too, while it comes.",
                    schema={"enum": ["0", "1"]},
                ),
                Parameter(
                    name="Last-Event-ID", description="Cursor: begin after it.", place="header"
                ),
            ),
        ),
    ]


def make_openai_routes(chat: ChatRoutes, responses: ResponseRoutes) -> list[Route]:
    return [
        Route(
            method="POST",
            path="/v1/chat/completions",
            summary="Run a prompt as a chat completion of OpenAI's API; `model` is an agent.",
            action=chat.complete,
            scope="run",
            body=ChatRequest,
            answer=dict[str, Any],
            media="text/event-stream",
            parameters=(_KEY,),
        ),
        Route(
            method="POST",
            path="/v1/responses",
            summary="Run a prompt as a response of OpenAI's API; `model` is an agent.",
            action=responses.create,
            scope="run",
            body=ResponseRequest,
            answer=dict[str, Any],
            media="text/event-stream",
            parameters=(_KEY,),
        ),
        Route(
            path="/v1/responses/{response}",
            summary="Return a response again, or its state.",
            action=responses.read,
            answer=dict[str, Any],
        ),
    ]


def make_information_routes(information: InformationRoutes) -> list[Route]:
    return [
        Route(
            path="/v1/agents",
            summary="List the agents, workspaces and modes that you may choose.",
            action=information.list_agents,
            answer=AgentPage,
            parameters=(Parameter(name="workspace", description="Name of a workspace."),),
        ),
        Route(
            path="/v1/models",
            summary="List the agents as models of OpenAI's API.",
            action=information.list_models,
            answer=ModelPage,
        ),
        Route(
            path="/v1/models/{model}",
            summary="Return an agent as a model of OpenAI's API.",
            action=information.read_model,
            answer=ModelView,
        ),
        Route(
            path="/health",
            summary="Return the state of the server.",
            action=information.send_health,
            scope=None,
            answer=Health,
            more_statuses={503: "The server stops."},
        ),
        Route(
            path="/ready",
            summary="Return whether the server can record prompts.",
            action=information.send_readiness,
            scope=None,
            answer=Health,
            more_statuses={503: "The server stops, or its store cannot be used."},
        ),
        Route(
            path="/metrics",
            summary="Return metrics for Prometheus.",
            action=information.send_metrics,
            scope="admin",
            media="text/plain",
        ),
        Route(
            path="/openapi.json",
            summary="Return this description.",
            action=information.send_description,
            scope=None,
            answer=dict[str, Any],
        ),
    ]
