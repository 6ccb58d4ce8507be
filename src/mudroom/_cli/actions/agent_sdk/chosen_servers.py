"""Choice of the MCP servers of a session: those of files and flags, and those of the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mudroom_hosts.agent_sdk.setup import ChosenServers, SdkSessionPlan

if TYPE_CHECKING:
    from ...._adapters.integrations.config_files import Finding
    from ...._adapters.integrations.mcp_servers.spec import ServerSpec

_IN_INITIALIZE = "initialize of the SDK"
_IN_REQUEST = "mcp_set_servers"


def choose_servers(
    plan: SdkSessionPlan,
    configured: Iterable[ServerSpec],
    *,
    folder: str,
    environ: Mapping[str, str],
) -> ChosenServers:
    """Return the servers of the session of a plan. Start nothing.

    A server of the host has precedence over one of a file or flag with the same name.

    Arguments:
        configured: those of files and flags. folder: of the session.
        environ: values of the variables in the entries of the host.
    """
    notices: list[str] = []
    errors: dict[str, str] = {}
    servers: dict[str, ServerSpec] = {}
    for name, entry in plan.setup.process_servers.items():
        if name not in plan.replaced_servers:
            loaded = _parse(name, entry, _IN_INITIALIZE, folder, environ)
            servers |= loaded[0]
            notices += [_describe(finding, _IN_INITIALIZE) for finding in loaded[1]]
    for name, entry in plan.servers.items():
        loaded = _parse(name, entry, _IN_REQUEST, folder, environ)
        servers |= loaded[0]
        if not loaded[0]:
            reasons = [_describe(finding, "") for finding in loaded[1]]
            errors[name] = " ".join(reasons) or "it is turned off"
    taken = {*servers, *plan.replaced_servers}
    others = [spec for spec in configured if spec.agent or spec.name not in taken]
    known = [*servers.values(), *others]
    return ChosenServers(
        used=[each for each in known if each.agent or each.name not in plan.disabled_servers],
        scopes={spec.name: spec.scope for spec in known if not spec.agent},
        errors=errors,
        notices=notices,
    )


def _parse(
    name: str, entry: object, origin: str, folder: str, environ: Mapping[str, str]
) -> tuple[dict[str, ServerSpec], Sequence[Finding]]:
    """Return the server of an entry by its name, and the findings about it."""
    from ...._adapters.integrations.mcp_servers.load import parse_servers  # slow to import

    loaded = parse_servers({name: entry}, origin=origin, folder=folder, environ=environ)
    return {server.name: server for server in loaded.servers}, loaded.findings


def _describe(finding: Finding, origin: str) -> str:
    place = f" ({origin})" if origin else ""
    return f"{finding.text}{place}. {finding.remedy}".strip()
