// The page: its state (selection, filter, session) and the functions that change and draw it.
"use strict";

const TABS = {
  summary: "Summary",
  transcript: "Transcript",
  context: "Context",
  ledger: "Context saved",
  work: "Changes",
};
const SESSION_TABS = new Set(["summary", "ledger"]); // the others show one run
const KEY_HELP = [
  ["↑ ↓", "previous, next run"],
  ["← →", "collapse, expand a run; go to its parent, to its first child"],
  ["j k", "next, previous step"],
  ["Enter", "open the child of the selected task; or focus the transcript"],
  ["e", "next error or refusal in any run"],
  ["1 2 3 4 5", "summary, transcript, context at this step, context saved, changes"],
  ["/", "search; Enter and ↑ ↓ move between matches"],
  ["n N", "next, previous match"],
  ["+ − 0", "time: zoom in, zoom out, show all; Ctrl and wheel on a lane"],
  ["[ ]", "panes: more room for the transcript, for the runs"],
  ["t", "light theme, dark theme, theme of the system"],
  ["? Esc", "show these keys; close a panel, clear the filters"],
];

const storage = {
  get: (name) => {
    try {
      return localStorage.getItem(`mudroom ${name}`);
    } catch {
      return null; // a page opened from a file may have no storage
    }
  },
  set: (name, value) => {
    try {
      localStorage.setItem(`mudroom ${name}`, value);
    } catch {
      return;
    }
  },
};

const app = {
  fold: null,
  live: false,
  selection: { session: "", run: "", turn: 0, call: "", tab: "summary" },
  filter: { errors: false, refused: false, tool: "" },
  feed: null,
  isLoaded: false, // the fold contains all events recorded before the session was opened
  embedded: null,

  now: () => (app.live ? Math.max(Date.now() / 1000, app.fold.ended) : app.fold.ended),

  start() {
    app.embedded = readEmbeddedSession();
    app.setTheme(storage.get("theme") ?? "");
    if (storage.get("left")) app.setDivider(Number(storage.get("left")));
    app.waterfall = new Waterfall();
    app.reader = new VirtualList($("body"), {
      render: (item) =>
        item.pane
          ? h("div", { class: `item pane-${item.pane}` }, PANES[item.pane](item))
          : drawItem(item),
      estimateHeight: (item) => (item.pane ? PANE_HEIGHTS[item.pane] : ITEM_HEIGHTS[item.kind]),
    });
    app.search = new Search();
    installListeners();
    app.showAddress();
    setInterval(() => app.tick(), 1000);
  },

  /** Show the session and the selection that the address names. */
  showAddress() {
    const link = new URLSearchParams(location.hash.slice(1));
    if (link.get("compare")) return app.showPage("versus", () => showComparison(link));
    const session = app.embedded?.session ?? link.get("session") ?? "";
    const tab =
      link.get("tab") in TABS ? link.get("tab") : link.get("run") ? "transcript" : "summary";
    const changed = session !== app.selection.session || !app.fold;
    app.selection = {
      session,
      run: link.get("run") ?? "",
      turn: Number(link.get("turn")) || 0,
      call: link.get("call") ?? "",
      tab,
    };
    if (!session) return app.showSessions();
    if (changed) app.openSession(session);
    else app.draw({ seek: true });
  },

  /** Load and show a session. */
  openSession(session) {
    app.feed?.close();
    Object.assign(app, {
      fold: new Fold(),
      live: false,
      isLoaded: false,
      filter: { errors: false, refused: false, tool: "" },
    });
    app.waterfall.rowsById.clear();
    app.waterfall.collapsed.clear();
    app.showError("");
    app.showOnly("main");
    const events = (pairs) => {
      for (const [number, event] of pairs) app.fold.apply(number, event);
      if (app.isLoaded) app.setLive(!app.embedded && !app.fold.closed);
      app.scheduleDraw(app.isLoaded ? {} : { seek: true });
    };
    if (app.embedded) {
      app.isLoaded = true;
      events(app.embedded.events);
      if (app.embedded.error) app.showError(app.embedded.error);
      return;
    }
    const ready = async () => {
      await app.checkLive();
      if (app.selection.session !== session) return; // another session was opened meanwhile
      app.isLoaded = true;
      app.scheduleDraw({ seek: true });
    };
    app.draw(); // "Loading", until the first events are here
    app.feed = new Feed(session, {
      events,
      ready,
      failure: (text) => (app.fold.events ? app.showError(text) : app.openByStart(session, text)),
      connection: (up) => document.body.classList.toggle("offline", !up),
    });
  },

  /** Open the one session whose id begins with an incomplete id; show the error if there is none. */
  async openByStart(session, error) {
    const matches = await findSessions(session).catch(() => []);
    if (app.selection.session !== session) return; // another session was opened meanwhile
    if (matches.length !== 1 || matches[0].id === session) return app.showError(error);
    const link = new URLSearchParams(location.hash.slice(1));
    link.set("session", matches[0].id);
    location.replace(`#${link}`);
  },

  /** Ask the server whether the session is still being written. */
  async checkLive() {
    try {
      const { session } = app.selection;
      const listed = (await findSessions(session)).find((each) => each.id === session);
      app.setLive(listed?.state === "live" && !app.fold.closed);
    } catch {
      app.setLive(false);
    }
  },

  /** Set whether the session is being written; redraw if that changed. */
  setLive(live) {
    if (live === app.live) return;
    app.live = live;
    app.waterfall.redraw();
    app.reader.redraw();
  },

  /** Show one of the three pages: a session ("main"), the list, or the comparison ("versus"). */
  showOnly(page) {
    for (const id of ["main", "list", "versus"]) $(id).hidden = id !== page;
  },

  /** Leave the session and show another page, which `draw` draws. */
  showPage(page, draw) {
    app.feed?.close();
    Object.assign(app, { fold: null, feed: null, live: false });
    document.title = "mudroom";
    app.showOnly(page);
    for (const id of ["title", "about", "totals", "head", "tabs"]) setChildren($(id));
    app.showError("");
    return draw();
  },

  showSessions: () =>
    app.showPage("list", async () => {
      setChildren($("title"), "Sessions");
      try {
        drawSessions(await fetchSessions(sessionList.limit));
      } catch (error) {
        app.showError(String(error.message ?? error));
      }
    }),

  /** Select a run, turn, call or tab.
   *
   * `quiet`: do not scroll the reader; `item`: scroll to this item.
   */
  navigate(change, { quiet = false, item = null } = {}) {
    const before = app.selection;
    app.selection = { ...before, ...change };
    const link = new URLSearchParams(
      Object.entries(app.selection)
        .filter(([name, value]) => value && !(name === "tab" && value === "transcript"))
        .map(([name, value]) => [name, String(value)]),
    );
    history[
      before.run === app.selection.run && before.tab === app.selection.tab
        ? "replaceState"
        : "pushState"
    ](null, "", `#${link}`);
    app.showPane("reader", { only: "runs" });
    app.draw({ seek: !quiet, item });
  },

  /** Draw once in the next animation frame. */
  scheduleDraw(how = {}) {
    app.pending = { ...app.pending, ...how };
    app.frame ??= requestAnimationFrame(() => {
      const asked = app.pending;
      app.frame = app.pending = null;
      app.draw(asked);
    });
  },

  draw(how) {
    keepFocus(() => app.drawPanes(how));
  },

  drawPanes({ seek = false, item = null } = {}) {
    const { fold } = app;
    if (!fold) return;
    const run = fold.runs.get(app.selection.run) ?? fold.roots.at(-1);
    if (app.isLoaded && run) app.selection.run = run.id;
    drawHeader(fold);
    drawFilters(fold);
    app.waterfall.draw();
    if (!run) return drawEmpty();
    if (seek) app.waterfall.show(run);
    const isOfSession = SESSION_TABS.has(app.selection.tab);
    setChildren($("head"), isOfSession ? null : drawRunHead(fold, run));
    drawTabs(fold);
    app.drawReader(run, { seek, item });
  },

  /** Draw the items of the selected tab. */
  drawReader(run, { seek, item }) {
    const { tab } = app.selection;
    const versions = { ledger: () => app.fold.events, work: () => workVersion(run) };
    const stamp =
      tab === "transcript" || tab === "summary"
        ? ""
        : `${run.id} ${app.selection.turn} ${versions[tab]?.() ?? run.version}`;
    let items = app.shown;
    if (tab === "transcript")
      items = isFiltering(app.filter)
        ? run.items.filter((each) => matchesFilter(each, app.filter))
        : run.items.slice();
    else if (tab === "summary") items = summaryItems(app.fold);
    else if (!app.shown || stamp !== app.stamp)
      items = {
        context: () => contextItems(app.fold, run),
        ledger: () => ledgerItems(app.fold),
        work: () => workItems(run),
      }[tab]();
    if (tab === "transcript" && !items.length)
      items = [{ pane: "empty", words: "Nothing in this run matches the filter." }];
    const moved = tab !== app.tab || (!SESSION_TABS.has(tab) && run !== app.run);
    Object.assign(app, { shown: items, stamp, tab, run });
    const target = item || app.selection.turn || app.selection.call;
    app.reader.set(items, {
      follow: app.live && !moved,
      top: moved || (tab === "transcript" && seek && !target),
    });
    if (tab === "transcript" && (moved || seek) && target)
      app.reader.show(item ? items.indexOf(item) : findItemIndex(items, app.selection));
    for (const [each, node] of app.reader.nodes)
      if (!each.pane) node.classList.toggle("chosen", each === item || isSelected(each));
  },

  redraw: (item) => app.reader.redraw(app.shown.includes(item) ? item : null),

  tick() {
    if (document.hidden) return;
    if (app.live) {
      // The duration of a running child grows.
      for (const [item] of app.reader.nodes) if (item.child && !item.child.report) item.version++;
      app.scheduleDraw();
    }
    app.ticks = (app.ticks ?? 0) + 1;
    if (app.live && app.ticks % 5 === 0) app.checkLive();
    if (!$("list").hidden && !app.embedded && app.ticks % 5 === 0)
      fetchSessions(sessionList.limit).then(drawSessions, () => null);
  },

  setTheme(name) {
    document.documentElement.dataset.theme = name;
    storage.set("theme", name);
    setChildren($("theme"), { "": "◐", light: "☀", dark: "☾" }[name]);
    app.waterfall?.redraw();
  },

  setDivider(left) {
    const maximum = Math.max(360, window.innerWidth - 380);
    const width = Math.round(Math.max(280, Math.min(left, maximum)));
    document.documentElement.style.setProperty("--left", `${width}px`);
    $("split").setAttribute("aria-valuenow", String(Math.round((100 * width) / window.innerWidth)));
    storage.set("left", String(width));
  },

  /** Show a pane on a narrow screen. `only`: only if this pane is shown now. */
  showPane(name, { only = "" } = {}) {
    const main = $("main");
    if (only && main.dataset.view !== only) return;
    main.dataset.view = name;
    for (const button of $("views").children)
      button.setAttribute("aria-current", String(button.dataset.view === name));
    app.waterfall.redraw();
  },

  showError(words) {
    $("trouble").hidden = !words;
    $("trouble").textContent = words;
  },

  showTooltip(event, words = "") {
    const tip = $("tip");
    tip.hidden = !event;
    if (!event) return;
    tip.textContent = words;
    tip.style.left = `${Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
  },

  copyLink(button, change) {
    const link = new URLSearchParams(
      Object.entries({ session: app.selection.session, ...change })
        .filter(([, value]) => value)
        .map(([name, value]) => [name, String(value)]),
    );
    navigator.clipboard?.writeText(`${location.href.split("#")[0]}#${link}`).then(
      () => {
        button.classList.add("copied");
        setTimeout(() => button.classList.remove("copied"), 900);
      },
      () => app.navigate(change),
    );
  },

  /** Select the step `by` places further in this run. */
  selectStep(by) {
    const steps = app.run.items
      .filter((item) => item.kind === "call" || item.kind === "turn")
      .filter((item) => app.selection.tab === "transcript" || item.kind === "turn");
    const here = steps.findIndex((item) =>
      app.selection.call && app.selection.tab === "transcript"
        ? item.id === app.selection.call
        : item.kind === "turn" && item.turn === app.selection.turn,
    );
    const next = steps[Math.max(0, Math.min(steps.length - 1, here + by))];
    if (next) app.navigate({ turn: next.turn, call: next.id ?? "" });
  },

  /** Select the next error or refusal in tree order; after the last comes the first. */
  selectNextError() {
    const wanted = { errors: true, refused: true, tool: "" };
    const all = [...app.fold.runs.values()].flatMap((run) =>
      run.items.filter((item) => item.kind !== "report" && matchesFilter(item, wanted)),
    );
    if (!all.length) return;
    const here = all.findIndex(
      (item) =>
        item.run.id === app.selection.run &&
        (app.selection.call
          ? item.id === app.selection.call
          : item.turn === app.selection.turn && item.kind === "turn"),
    );
    const next = all[(here + 1) % all.length];
    app.navigate({ run: next.run.id, turn: next.turn, call: next.id ?? "", tab: "transcript" });
  },
};

app.start();
