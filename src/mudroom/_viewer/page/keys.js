// Keyboard and pointer input: maps keys to functions of the page, and moves the divider.
"use strict";

const SESSION_KEYS = {
  ArrowDown: () => selectRun(app.waterfall.neighbour(1)),
  ArrowUp: () => selectRun(app.waterfall.neighbour(-1)),
  ArrowRight: () =>
    app.run && (app.waterfall.toggle(app.run, false) || selectRun(app.run.children[0])),
  ArrowLeft: () =>
    app.run &&
    (app.waterfall.toggle(app.run, true) || selectRun(app.fold.runs.get(app.run.parent))),
  j: () => app.selectStep(1),
  k: () => app.selectStep(-1),
  e: () => app.selectNextError(),
  Enter: () => openSelectedChild(),
  1: () => app.navigate({ tab: "summary" }),
  2: () => app.navigate({ tab: "transcript" }),
  3: () => app.navigate({ tab: "context" }),
  4: () => app.navigate({ tab: "ledger" }),
  5: () => hasWork(app.fold) && app.navigate({ tab: "work" }),
  n: () => app.search.step(1),
  N: () => app.search.step(-1),
  "+": () => app.waterfall.zoom(0.5),
  "=": () => app.waterfall.zoom(0.5),
  "-": () => app.waterfall.zoom(2),
  0: () => app.waterfall.pan(0, Infinity),
  "[": () => app.setDivider($("runs").offsetWidth - 40),
  "]": () => app.setDivider($("runs").offsetWidth + 40),
};

const GLOBAL_KEYS = {
  "/": () => ($("list-query") && !$("list").hidden ? $("list-query") : $("query")).focus(),
  "?": () => showHelp(),
  t: () =>
    app.setTheme(
      { "": "light", light: "dark", dark: "" }[document.documentElement.dataset.theme ?? ""],
    ),
  Escape: () => clearSelection(),
};

const selectRun = (run) => run && app.navigate({ run: run.id, turn: 0, call: "", tab: runTab() });

/** Return the tab that shows a run that was selected now. */
const runTab = () => (SESSION_TABS.has(app.selection.tab) ? "transcript" : app.selection.tab);

/** Select the tab `step` places further, and focus it. */
const moveTab = (step) => {
  const names = listTabs(app.fold);
  const at = names.indexOf(app.selection.tab);
  app.navigate({ tab: names[(at + step + names.length) % names.length] });
  $("tabs").querySelector("[aria-selected=true]").focus();
};

const openSelectedChild = () => {
  const child = app.run?.calls.get(app.selection.call)?.child;
  if (child) selectRun(child);
  else $("body").focus();
};

const clearSelection = () => {
  if (!app.fold) return;
  if (isFiltering(app.filter)) {
    Object.assign(app.filter, { errors: false, refused: false, tool: "" });
    return app.draw({ seek: true });
  }
  if ($("query").value) return app.search.clear();
  $("rows").focus();
};

const showHelp = () => {
  const dialog = $("help");
  const close = () => dialog.close();
  setChildren(
    dialog,
    h("h2", null, "Keys"),
    h(
      "dl",
      null,
      KEY_HELP.map(([keys, words]) => [
        h(
          "dt",
          null,
          keys.split(" ").map((key) => h("kbd", null, key)),
        ),
        h("dd", null, words),
      ]),
    ),
    h("button", { class: "more", click: close }, "close"),
  );
  dialog.showModal();
};

const installListeners = () => {
  document.addEventListener("keydown", (event) => {
    const at = event.target instanceof Element ? event.target : document.body;
    if ($("help").open && event.key === "Escape") return $("help").close();
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      $("help").open ||
      at.matches("input, select, textarea")
    )
      return;
    const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (sideways && at.closest("#tabs")) return moveTab(sideways);
    const arrows = event.key.startsWith("Arrow");
    if (
      (arrows && at.closest("#body, #split, #list, #versus")) ||
      (event.key === "Enter" && at.matches("button, a, summary"))
    )
      return;
    const act = GLOBAL_KEYS[event.key] ?? (app.fold ? SESSION_KEYS[event.key] : null);
    if (!act) return;
    event.preventDefault();
    act();
  });
  window.addEventListener("hashchange", () => app.showAddress());
  window.addEventListener("popstate", () => app.showAddress());
  document.addEventListener(
    "pointerdown",
    (event) => event.target.closest("#hits, #find") || app.search.open(false),
  );
  $("theme").addEventListener("click", GLOBAL_KEYS.t);
  $("keys").addEventListener("click", showHelp);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    app.waterfall.redraw(),
  );
  installDivider();
  const views = { reader: "Session", runs: "Runs", time: "Timeline" };
  setChildren(
    $("views"),
    Object.entries(views).map(([name, words]) =>
      h(
        "button",
        {
          "data-view": name,
          "aria-current": String(name === "reader"),
          click: () => app.showPane(name),
        },
        words,
      ),
    ),
  );
  if (app.embedded) $("brand").removeAttribute("href");
};

const installDivider = () => {
  const split = $("split");
  split.addEventListener("pointerdown", (event) => {
    split.setPointerCapture(event.pointerId);
    const move = (at) => app.setDivider(at.clientX);
    split.addEventListener("pointermove", move);
    split.addEventListener("pointerup", () => split.removeEventListener("pointermove", move), {
      once: true,
    });
  });
  split.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -24, ArrowRight: 24 }[event.key];
    if (by) app.setDivider($("runs").offsetWidth + by);
  });
};

const CONTROLS = "button, select, input, a";

/** Draw, and give the focus back to the place where a control that has it is drawn again. */
const keepFocus = (draw) => {
  const control = document.activeElement;
  const place = control?.closest("#tabs, #head, #filters, #body");
  const index = place ? [...place.querySelectorAll(CONTROLS)].indexOf(control) : -1;
  draw();
  if (!place || document.activeElement !== document.body) return;
  const drawn = place.querySelectorAll(CONTROLS);
  const next = place.id === "tabs" ? place.querySelector("[aria-selected=true]") : drawn[index];
  (place.id === "body" || !next ? $("body") : next).focus({ preventScroll: true });
};
