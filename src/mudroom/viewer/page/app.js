// The page as a whole: what is chosen, what is shown, and the ways to change it.
"use strict";

const TABS = { transcript: "Transcript", context: "Context at this step", ledger: "What stayed, what came back" };
const KEYS = [
  ["↑ ↓", "the run above, below"],
  ["← →", "close, open the runs below; to the parent, to the first child"],
  ["j k", "the step after, before"],
  ["Enter", "into the child of the chosen task; or to the transcript"],
  ["e", "the next error or refusal, in any run"],
  ["1 2 3", "transcript, context at this step, what stayed"],
  ["/", "search; Enter and ↑ ↓ go from place to place"],
  ["n N", "the next place found, the one before"],
  ["+ − 0", "time: closer, wider, all of it; Ctrl and wheel on a lane"],
  ["[ ]", "panes: more room for the reader, for the runs"],
  ["t", "light, dark, as the system has it"],
  ["? Esc", "these keys; close what is open, clear filters"],
];

const kept = {
  get: (name) => {
    try {
      return localStorage.getItem(`mudroom ${name}`);
    } catch {
      return null; // a file may not be allowed to keep anything
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
  at: { session: "", run: "", turn: 0, call: "", tab: "transcript" },
  filter: { errors: false, refused: false, tool: "" },
  feed: null,
  whole: false, // all that was recorded when the session was opened is in the fold
  given: null,

  now: () => (app.live ? Math.max(Date.now() / 1000, app.fold.ended) : app.fold.ended),

  start() {
    app.given = given();
    app.theme(kept.get("theme") ?? "");
    if (kept.get("left")) app.divide(Number(kept.get("left")));
    app.waterfall = new Waterfall();
    app.reader = new VirtualList($("body"), {
      render: (item) => (item.pane ? h("div", { class: `item pane-${item.pane}` }, PANES[item.pane](item)) : drawItem(item)),
      guess: (item) => (item.pane ? PANE_GUESSES[item.pane] : GUESSES[item.kind]),
    });
    app.search = new Search();
    listen();
    app.follow();
    setInterval(() => app.tick(), 1000);
  },

  /** Read the address, and show what it names. */
  follow() {
    const link = new URLSearchParams(location.hash.slice(1));
    const session = app.given?.session ?? link.get("session") ?? "";
    const tab = link.get("tab") in TABS ? link.get("tab") : "transcript";
    const changed = session !== app.at.session || !app.fold;
    app.at = { session, run: link.get("run") ?? "", turn: Number(link.get("turn")) || 0, call: link.get("call") ?? "", tab };
    if (!session) return app.sessions();
    if (changed) app.open(session);
    else app.draw({ seek: true });
  },

  /** Begin to show a session. */
  open(session) {
    app.feed?.close();
    Object.assign(app, { fold: new Fold(), live: false, whole: false, filter: { errors: false, refused: false, tool: "" } });
    app.waterfall.known.clear();
    app.waterfall.folded.clear();
    app.trouble("");
    $("list").hidden = true;
    $("main").hidden = false;
    const events = (some) => {
      for (const [number, event] of some) app.fold.apply(number, event);
      if (app.whole) app.alive(!app.given && !app.fold.closed);
      app.later(app.whole ? {} : { seek: true });
    };
    if (app.given) {
      app.whole = true;
      events(app.given.events);
      if (app.given.error) app.trouble(app.given.error);
      return;
    }
    const ready = async () => {
      app.whole = true;
      await app.check();
      app.later({ seek: true });
    };
    app.feed = new Feed(session, { events, ready, trouble: app.trouble, line: (up) => document.body.classList.toggle("offline", !up) });
  },

  /** Ask whether the session is still written. */
  async check() {
    try {
      const listed = (await sessionsThere()).find((each) => each.id === app.at.session);
      app.alive(Boolean(listed?.live) && !app.fold.closed);
    } catch {
      app.alive(false);
    }
  },

  /** Note whether somebody is writing; what was drawn for the other case is drawn anew. */
  alive(live) {
    if (live === app.live) return;
    app.live = live;
    app.waterfall.redraw();
    app.reader.renew();
  },

  async sessions() {
    app.feed?.close();
    Object.assign(app, { fold: null, feed: null, live: false });
    document.title = "mudroom";
    $("main").hidden = true;
    $("list").hidden = false;
    fill($("title"), "Sessions");
    for (const id of ["about", "totals", "head", "tabs"]) fill($(id));
    try {
      drawSessions(await sessionsThere());
    } catch (error) {
      app.trouble(String(error.message ?? error));
    }
  },

  /** Choose a run, a turn, a call or a tab. `quiet`: the reader stays where it is; `item`: bring this one into view. */
  go(change, { quiet = false, item = null } = {}) {
    const before = app.at;
    app.at = { ...before, ...change };
    const link = new URLSearchParams(Object.entries(app.at).filter(([name, value]) => value && !(name === "tab" && value === "transcript")).map(([name, value]) => [name, String(value)]));
    history[before.run === app.at.run && before.tab === app.at.tab ? "replaceState" : "pushState"](null, "", `#${link}`);
    app.view("reader", { only: "runs" });
    app.draw({ seek: !quiet, item });
  },

  /** Draw with the next frame, however often it is asked for. */
  later(how = {}) {
    app.pending = { ...app.pending, ...how };
    app.frame ??= requestAnimationFrame(() => {
      const asked = app.pending;
      app.frame = app.pending = null;
      app.draw(asked);
    });
  },

  draw({ seek = false, item = null } = {}) {
    const { fold } = app;
    if (!fold) return;
    const run = fold.runs.get(app.at.run) ?? fold.roots.at(-1);
    if (app.whole && run) app.at.run = run.id;
    drawTop(fold);
    drawFilters(fold);
    app.waterfall.draw();
    if (!run) return drawNothing();
    if (seek) app.waterfall.show(run);
    fill($("head"), drawHead(fold, run));
    drawTabs(fold);
    app.read(run, { seek, item });
  },

  /** Fill the reader. */
  read(run, { seek, item }) {
    const { tab } = app.at;
    const stamp = tab === "transcript" ? "" : `${run.id} ${app.at.turn} ${tab === "ledger" ? app.fold.events : run.version}`;
    let items = app.shown;
    if (tab === "transcript") items = filtering(app.filter) ? run.items.filter((each) => matches(each, app.filter)) : run.items.slice();
    else if (!app.shown || stamp !== app.stamp) items = tab === "context" ? contextItems(app.fold, run) : ledgerItems(app.fold);
    if (tab === "transcript" && !items.length) items = [{ pane: "empty", words: "Nothing in this run fits the filter." }];
    const moved = tab !== app.tab || (tab !== "ledger" && run !== app.run);
    Object.assign(app, { shown: items, stamp, tab, run });
    const found = item || app.at.turn || app.at.call;
    app.reader.set(items, { follow: app.live && !moved, top: moved || (tab === "transcript" && seek && !found) });
    if (tab === "transcript" && (moved || seek) && found) app.reader.show(item ? items.indexOf(item) : placeOf(items, app.at));
    for (const [each, node] of app.reader.nodes) if (!each.pane) node.classList.toggle("chosen", each === item || isChosen(each));
  },

  redraw: (item) => app.reader.renew(app.shown.includes(item) ? item : null),

  tick() {
    if (document.hidden) return;
    if (app.live) {
      for (const [item] of app.reader.nodes) if (item.child && !item.child.report) item.version++; // its seconds go on
      app.later();
    }
    app.ticks = (app.ticks ?? 0) + 1;
    if (app.live && app.ticks % 5 === 0) app.check();
    if (!app.fold && !app.given && app.ticks % 5 === 0) sessionsThere().then(drawSessions, () => null);
  },

  theme(name) {
    document.documentElement.dataset.theme = name;
    kept.set("theme", name);
    fill($("theme"), { "": "◐", light: "☀", dark: "☾" }[name]);
    app.waterfall?.redraw();
  },

  divide(left) {
    const most = Math.max(360, window.innerWidth - 380);
    const width = Math.round(Math.max(280, Math.min(left, most)));
    document.documentElement.style.setProperty("--left", `${width}px`);
    kept.set("left", String(width));
  },

  /** Which pane a narrow screen shows. `only`: change it only from that one. */
  view(name, { only = "" } = {}) {
    const main = $("main");
    if (only && main.dataset.view !== only) return;
    main.dataset.view = name;
    for (const button of $("views").children) button.setAttribute("aria-current", String(button.dataset.view === name));
    app.waterfall.redraw();
  },

  trouble(words) {
    $("trouble").hidden = !words;
    $("trouble").textContent = words;
  },

  tip(event, words = "") {
    const tip = $("tip");
    tip.hidden = !event;
    if (!event) return;
    tip.textContent = words;
    tip.style.left = `${Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
  },

  copy(button, change) {
    const link = new URLSearchParams(Object.entries({ session: app.at.session, ...change }).filter(([, value]) => value).map(([name, value]) => [name, String(value)]));
    navigator.clipboard?.writeText(`${location.href.split("#")[0]}#${link}`).then(
      () => {
        button.classList.add("copied");
        setTimeout(() => button.classList.remove("copied"), 900);
      },
      () => app.go(change),
    );
  },

  /** The next step of this run, or the one before. */
  step(by) {
    const steps = app.run.items.filter((item) => item.kind === "call" || item.kind === "turn").filter((item) => app.at.tab === "transcript" || item.kind === "turn");
    const here = steps.findIndex((item) => (app.at.call && app.at.tab === "transcript" ? item.id === app.at.call : item.kind === "turn" && item.turn === app.at.turn));
    const next = steps[Math.max(0, Math.min(steps.length - 1, here + by))];
    if (next) app.go({ turn: next.turn, call: next.id ?? "" });
  },

  /** The next error or refusal after the chosen place, in the order of the tree, round and round. */
  nextError() {
    const wanted = { errors: true, refused: true, tool: "" };
    const all = [...app.fold.runs.values()].flatMap((run) => run.items.filter((item) => item.kind !== "report" && matches(item, wanted)));
    if (!all.length) return;
    const here = all.findIndex((item) => item.run.id === app.at.run && (app.at.call ? item.id === app.at.call : item.turn === app.at.turn && item.kind === "turn"));
    const next = all[(here + 1) % all.length];
    app.go({ run: next.run.id, turn: next.turn, call: next.id ?? "", tab: "transcript" });
  },
};

const drawTop = (fold) => {
  const first = fold.roots[0];
  const usage = fold.roots.reduce((sum, run) => added(sum, added(run.usage, run.below)), NO_TOKENS);
  const spent = fold.roots.length && fold.roots.every((run) => run.usd !== null) ? fold.roots.reduce((sum, run) => sum + run.usd, 0) : null;
  document.title = first ? `${oneLine(first.prompt, 60)} · mudroom` : "mudroom";
  fill($("title"), app.live && h("span", { class: "pulse" }, "live"), first ? oneLine(first.prompt, 200) : "An empty session");
  fill($("about"), [fold.cwd, first?.model, first && clock(first.started), fold.session.slice(0, 8)].filter(Boolean).map((each) => h("span", { title: each }, oneLine(each, 80))));
  const figure = (value, words, kind = "") => h("span", { class: kind }, h("b", null, value), words);
  fill($("totals"), figure(grouped(fold.runs.size), fold.runs.size === 1 ? "run" : "runs"), figure(tokens(total(usage)), "tokens"), spent !== null && spent > 0 && figure(money(spent), "spent"), fold.errors > 0 && figure(grouped(fold.errors), fold.errors === 1 ? "error" : "errors", "bad"));
};

const drawFilters = (fold) => {
  const key = `${fold.errors} ${fold.refused} ${[...fold.tools].join()} ${Object.values(app.filter).join()}`;
  if ($("filters").dataset.key === key) return;
  $("filters").dataset.key = key;
  const set = (change) => {
    Object.assign(app.filter, change);
    app.draw({ seek: true });
  };
  const chip = (name, words, amount) => h("button", { class: `chip ${name}`, "aria-pressed": String(app.filter[name]), disabled: !amount && !app.filter[name], click: () => set({ [name]: !app.filter[name] }) }, words, h("b", null, grouped(amount)));
  const names = [...fold.tools].sort((a, b) => b[1] - a[1]);
  const choose = h("select", { "aria-label": "Tool", change: (event) => set({ tool: event.currentTarget.value }) }, h("option", { value: "" }, "all tools"), names.map(([name, times]) => h("option", { value: name, selected: app.filter.tool === name }, `${name} (${grouped(times)})`)));
  const clear = filtering(app.filter) && h("button", { class: "chip clear", click: () => set({ errors: false, refused: false, tool: "" }) }, "clear");
  const legend = h("span", { class: "key" }, h("i", { class: "model" }), "model", h("i", { class: "tool" }), "tools", h("i", { class: "bad" }), "error");
  fill($("filters"), chip("errors", "errors", fold.errors), chip("refused", "refused", fold.refused), choose, clear, legend);
};

const drawTabs = (fold) => {
  const count = { transcript: "", context: app.at.turn ? ` · ${app.at.turn}` : "", ledger: fold.runs.size > fold.roots.length ? ` · ~${tokens(fold.taken.bytes / BYTES_PER_TOKEN)}` : "" };
  fill($("tabs"), Object.entries(TABS).map(([name, words]) => h("button", { role: "tab", "aria-selected": String(app.at.tab === name), "data-tab": name, click: () => app.go({ tab: name }) }, words, h("em", null, count[name]))));
  if (narrow()) $("tabs").querySelector("[aria-selected=true]").scrollIntoView({ block: "nearest", inline: "nearest" });
};

const narrow = () => $("views").offsetHeight > 0;

const drawNothing = () => {
  fill($("head"));
  fill($("tabs"));
  app.reader.set([{ pane: "empty", words: app.live ? "Nothing has been recorded yet." : "No run is recorded in this session." }]);
};

const drawSessions = (sessions) => {
  if (app.fold) return;
  const row = (each) =>
    h(
      "a",
      { class: "session", href: `#session=${encodeURIComponent(each.id)}` },
      h("span", { class: "when" }, clock(each.when)),
      h("span", { class: "asked" }, h("b", null, each.error ? "This record cannot be read" : oneLine(each.prompt, 160) || "no prompt yet"), h("em", null, each.error ? oneLine(each.error, 200) : [each.folder, each.model, each.id.slice(0, 8)].filter(Boolean).join(" · "))),
      h("span", { class: "figure" }, each.children ? (each.children === 1 ? "1 child" : `${grouped(each.children)} children`) : ""),
      h("span", { class: "figure" }, each.tokens ? `${tokens(each.tokens)} tokens` : ""),
      h("span", { class: `badge ${each.live && !each.reason ? "running" : each.reason === "GOAL" ? "done" : STOPPED.has(each.reason) ? "stopped" : each.reason ? "failed" : "unfinished"}` }, each.live && !each.reason ? "running" : each.reason || "unfinished"),
    );
  const nothing = h("div", { class: "empty" }, h("h2", null, "No sessions yet"), h("p", null, "Everything mudroom does is recorded, and can be looked at here. Begin with"), h("pre", { class: "code" }, 'mudroom -p "use a subtask to find which testing framework this project uses"'));
  fill($("list"), sessions.length ? [h("h2", null, plural(sessions.length, "session")), h("div", { class: "sessions" }, sessions.map(row))] : nothing);
};

app.start();
