"""Selects the programs a session may use: trusted ones, each only once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..._core.listings import count_noun
from .config_files import Finding
from .hook_programs.events import explain_never_fires
from .hook_programs.load import load_hooks
from .hook_programs.spec import HookSpec
from .mcp_servers.files import ServerEntry
from .mcp_servers.load import load_servers
from .mcp_servers.spec import ServerSpec
from .plugins.load import load_plugins
from .plugins.programs import list_plugin_hooks, list_plugin_servers
from .plugins.spec import ListedPlugin, Plugin
from .program_trust import PROMPT_PREFIX, PromptRights, load_trusted_programs, trust_programs

Program = ServerSpec | HookSpec | PromptRights


_P = TypeVar("_P", bound=Program)


class Listed(Struct, Generic[_P], frozen=True):
    """A program, and the reason it is not used; "" if it is."""

    spec: _P
    reason: str = ""
    lacks_trust: bool = False


def _make_untrusted(spec: _P) -> Listed[_P]:
    return Listed(spec, "not trusted", lacks_trust=True)


class UsablePrograms(Struct, frozen=True):
    """All servers, hooks and plugins declared in files, and which of them a session uses."""

    listed_servers: tuple[Listed[ServerSpec], ...] = ()
    listed_hooks: tuple[Listed[HookSpec], ...] = ()
    server_findings: tuple[Finding, ...] = ()
    hook_findings: tuple[Finding, ...] = ()
    listed_plugins: tuple[ListedPlugin, ...] = ()
    plugin_findings: tuple[Finding, ...] = ()
    listed_prompts: tuple[Listed[PromptRights], ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        findings = (*self.server_findings, *self.hook_findings, *self.plugin_findings)
        return tuple(dict.fromkeys(findings))

    @property
    def servers(self) -> tuple[ServerSpec, ...]:
        return tuple(item.spec for item in self.listed_servers if not item.reason)

    @property
    def hooks(self) -> tuple[HookSpec, ...]:
        return tuple(item.spec for item in self.listed_hooks if not item.reason)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        return tuple(item.plugin for item in self.listed_plugins if item.plugin)

    @property
    def untrusted(self) -> tuple[Program, ...]:
        """Programs that are unused because the user has not trusted them."""
        items = (*self.listed_servers, *self.listed_hooks, *self.listed_prompts)
        return tuple(item.spec for item in items if item.lacks_trust)

    @property
    def trusted_prompts(self) -> frozenset[str]:
        """Digests of rights the user trusts."""
        return frozenset(item.spec.digest for item in self.listed_prompts if not item.reason)

    def trust_all(self) -> UsablePrograms:
        """Make a copy with all of the folder's programs trusted."""
        return replace(
            self,
            listed_servers=tuple(_judge_servers((item.spec for item in self.listed_servers), None)),
            listed_hooks=tuple(_judge_hooks((item.spec for item in self.listed_hooks), None)),
            listed_prompts=tuple(Listed(item.spec) for item in self.listed_prompts),
        )

    def select(self, *, reads_project: bool, reads_local: bool) -> UsablePrograms:
        """Leave out programs declared in the project's files, or in the user's own files there."""
        local_plugins = [
            f"{item.plugin.root}/"
            for item in self.listed_plugins
            if item.plugin and item.plugin.place and ".local." in item.plugin.origin
        ]

        def is_used(spec: Program) -> bool:
            is_local = not isinstance(spec, PromptRights) and (
                spec.scope == "local" or any(map(spec.origin.startswith, local_plugins))
            )
            return reads_local if is_local else reads_project or not spec.place

        programs = (*self.listed_servers, *self.listed_hooks)
        trusted = {item.spec.place for item in programs if not item.lacks_trust}
        servers = [item.spec for item in self.listed_servers if is_used(item.spec)]
        hooks = [item.spec for item in self.listed_hooks if is_used(item.spec)]
        plugins = [
            item
            for item in self.listed_plugins
            if item.plugin is None
            or not item.plugin.place
            or (reads_local if f"{item.plugin.root}/" in local_plugins else reads_project)
        ]
        return replace(
            self,
            listed_servers=tuple(_judge_servers(servers, trusted)),
            listed_hooks=tuple(_judge_hooks(hooks, trusted)),
            listed_plugins=tuple(plugins),
            listed_prompts=tuple(item for item in self.listed_prompts if is_used(item.spec)),
        )

    def add_prompts(
        self, prompts: Iterable[PromptRights], home: str, *, trusts_all: bool = False
    ) -> UsablePrograms:
        # Each file is judged on its own: editing one command does not stop the folder's hooks.
        rights = tuple(prompts)
        trusted = load_trusted_programs(home) if rights and not trusts_all else {}
        listed = tuple(
            Listed(each)
            if trusts_all or each.digest in trusted.get(each.place, ())
            else _make_untrusted(each)
            for each in rights
        )
        return replace(self, listed_prompts=listed)

    @property
    def programs_of_folder(self) -> tuple[Program, ...]:
        """Programs that need trust, including those that have it."""
        hooks = _select_running(item.spec for item in self.listed_hooks)
        prompts = (item.spec for item in self.listed_prompts)
        programs = (*(item.spec for item in self.listed_servers), *hooks, *prompts)
        return tuple(program for program in programs if program.place)

    def remember_trust(self, home: str) -> None:
        """Also trust the folder's present programs in later sessions."""
        for place, digests in _group_by_place(self.programs_of_folder).items():
            trust_programs(home, place, digests)

    @property
    def notices(self) -> tuple[str, ...]:
        """A line about untrusted programs and one about problems in files, if any."""
        lines: list[str] = []
        # A slash command says so itself when called; here it would be noise.
        if untrusted := [each for each in self.untrusted if not isinstance(each, PromptRights)]:
            lines.append(
                f"not used: {describe_count(untrusted)} of this folder, which are not trusted."
                " See them: mudroom trust. Use them: mudroom trust add, or --trust for one run."
            )
        if problems := [finding for finding in self.findings if finding.is_problem]:
            more = f" ({count_noun(len(problems) - 1, 'more problem')}: mudroom doctor)"
            lines.append(f"{problems[0]}{more if len(problems) > 1 else ''}")
        return tuple(lines)


def load_usable_programs(
    folder: str,
    *,
    home: str = "",
    user_home: str = "",
    environ: Mapping[str, str] | None = None,
    own_file: str = "",
    plugin_dirs: Iterable[str] = (),
    agent_servers: Iterable[ServerEntry] = (),
    trusts_all: bool = False,
) -> UsablePrograms:
    """Load the MCP servers, hooks and plugins declared for a folder, without starting any.

    Those in the user's files need no trust. A folder's are used if the user has trusted exactly its
    present set of programs. `servers`, `hooks` and `plugins` of the result are session options;
    `notices` says which are not used.

    Arguments:
        folder: the folder; its parents up to the root of the repository are also read.
        home: mudroom's state folder, with the list of trusted programs; "" for no list.
        user_home: the user's home folder, "" to leave out the user's files.
        environ: values of variables in the files; default: this process's.
        own_file: an additional file of the user's, in the format of `.mcp.json`.
        plugin_dirs: folders of additional plugins, whose programs need no trust.
        agent_servers: servers declared by agent files for their agents.
        trusts_all: trust the folder's programs without the list.

    Example:
        programs = load_usable_programs(".", trusts_all=True)
        session = Session(
            integrations=Integrations(
                mcp_servers=programs.servers, hook_programs=programs.hooks
            )
        )
    """
    environ = os.environ if environ is None else environ
    loaded = load_servers(
        folder,
        user_home=user_home,
        environ=environ,
        own_file=own_file,
        agent_servers=agent_servers,
    )
    of_files = load_hooks(folder, user_home=user_home)
    plugins = load_plugins(
        folder,
        user_home=user_home,
        plugin_dirs=plugin_dirs,
        data_home=os.path.join(home, "plugins") if home else "",
    )
    findings = [*plugins.findings]
    servers = [*loaded.servers, *list_plugin_servers(plugins.plugins, environ, findings)]
    are_on = [plugin for plugin in plugins.plugins if not of_files.are_off(plugin.place)]
    hooks = [*of_files.hooks, *list_plugin_hooks(are_on, findings)]
    trusted: set[str] | None = None
    if not trusts_all:
        trusted = _list_trusted_places(home, [*servers, *_select_running(hooks)])
    return UsablePrograms(
        tuple(_judge_servers(servers, trusted)),
        tuple(_judge_hooks(hooks, trusted)),
        tuple(dict.fromkeys(loaded.findings)),
        tuple(dict.fromkeys(of_files.findings)),
        tuple(plugins.listed),
        tuple(dict.fromkeys(findings)),
    )


def _select_running(hooks: Iterable[HookSpec]) -> list[HookSpec]:
    return [hook for hook in hooks if not explain_never_fires(hook.event, hook.kind)]


def _group_by_place(programs: Iterable[Program]) -> dict[str, set[str]]:
    digests: dict[str, set[str]] = {}
    for program in programs:
        if program.place:
            digests.setdefault(program.place, set()).add(program.digest)
    return digests


def describe_count(programs: Iterable[Program]) -> str:
    """Count the programs by kind, such as "1 MCP server and 2 hooks"."""
    listed = list(programs)
    kinds = ((ServerSpec, "MCP server"), (HookSpec, "hook"), (PromptRights, "slash command"))
    counts = [(sum(isinstance(each, kind) for each in listed), noun) for kind, noun in kinds]
    parts = [count_noun(count, noun) for count, noun in counts if count]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def describe_program(program: Program) -> str:
    if isinstance(program, PromptRights):
        return f"slash command {program.name}"
    if isinstance(program, ServerSpec):
        owner = f" of agent {program.agent}" if program.agent else ""
        return f"MCP server {program.name}{owner}"
    event = program.file_event or program.event
    return f"hook {event}" + (f" for {program.matcher}" if program.matcher else "")


def _list_trusted_places(home: str, programs: Iterable[Program]) -> set[str]:
    # Places whose present servers and hooks are exactly those the user has trusted.
    digests = _group_by_place(programs)
    trusted = load_trusted_programs(home) if digests and home else {}
    return {
        place
        for place, present in digests.items()
        if {each for each in trusted.get(place, ()) if not each.startswith(PROMPT_PREFIX)}
        == present
    }


def _is_untrusted(program: Program, trusted: set[str] | None) -> bool:
    return bool(program.place) and trusted is not None and program.place not in trusted


def _judge_servers(
    servers: Iterable[ServerSpec], trusted: set[str] | None
) -> Iterator[Listed[ServerSpec]]:
    """Judge the servers; among servers of one name, only the first trusted one is used."""
    used: dict[tuple[str, str], ServerSpec] = {}
    for server in servers:
        if _is_untrusted(server, trusted):
            yield _make_untrusted(server)
        elif server.transport == "sse":
            yield Listed(server, 'the transport sse is not supported; use its "http" address')
        elif first := used.get((server.agent, server.name)):
            yield Listed(server, f"{first.origin} has the same name and takes precedence")
        else:
            used[server.agent, server.name] = server
            yield Listed(server)


def _judge_hooks(hooks: Iterable[HookSpec], trusted: set[str] | None) -> Iterator[Listed[HookSpec]]:
    """Judge the hooks; among identical ones, only the first is used."""
    used: dict[str, HookSpec] = {}
    for hook in hooks:
        if never := explain_never_fires(hook.event, hook.kind):
            yield Listed(hook, never)
        elif _is_untrusted(hook, trusted):
            yield _make_untrusted(hook)
        elif first := used.get(hook.digest):
            yield Listed(hook, f"the same hook is in {first.origin}")
        else:
            used[hook.digest] = hook
            yield Listed(hook)
