// Keys, pointers and the size of the window: what a person does, as intents of the page.
"use strict";

const PRESSED = {
  ArrowDown: () => choose(app.waterfall.beside(1)),
  ArrowUp: () => choose(app.waterfall.beside(-1)),
  ArrowRight: () => app.run && (app.waterfall.toggle(app.run, false) || choose(app.run.children[0])),
  ArrowLeft: () => app.run && (app.waterfall.toggle(app.run, true) || choose(app.fold.runs.get(app.run.parent))),
  j: () => app.step(1),
  k: () => app.step(-1),
  e: () => app.nextError(),
  Enter: () => enter(),
  1: () => app.go({ tab: "transcript" }),
  2: () => app.go({ tab: "context" }),
  3: () => app.go({ tab: "ledger" }),
  n: () => app.search.step(1),
  N: () => app.search.step(-1),
  "+": () => app.waterfall.zoom(0.5),
  "=": () => app.waterfall.zoom(0.5),
  "-": () => app.waterfall.zoom(2),
  0: () => app.waterfall.pan(0, Infinity),
  "[": () => app.divide($("runs").offsetWidth - 40),
  "]": () => app.divide($("runs").offsetWidth + 40),
};

const EVERYWHERE = {
  "/": () => $("query").focus(),
  "?": () => help(),
  t: () => app.theme({ "": "light", light: "dark", dark: "" }[document.documentElement.dataset.theme ?? ""]),
  Escape: () => escape(),
};

const choose = (run) => run && app.go({ run: run.id, turn: 0, call: "" });

const enter = () => {
  const child = app.run?.calls.get(app.at.call)?.child;
  if (child) choose(child);
  else $("body").focus();
};

const escape = () => {
  if (!app.fold) return;
  if (filtering(app.filter)) {
    Object.assign(app.filter, { errors: false, refused: false, tool: "" });
    return app.draw({ seek: true });
  }
  if ($("query").value) return app.search.clear();
  $("rows").focus();
};

const help = () => {
  const dialog = $("help");
  const close = () => dialog.close();
  fill(dialog, h("h2", null, "Keys"), h("dl", null, KEYS.map(([keys, words]) => [h("dt", null, keys.split(" ").map((key) => h("kbd", null, key))), h("dd", null, words)])), h("button", { class: "more", click: close }, "close"));
  dialog.showModal();
};

const listen = () => {
  document.addEventListener("keydown", (event) => {
    const at = event.target instanceof Element ? event.target : document.body;
    if ($("help").open && event.key === "Escape") return $("help").close();
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open || at.matches("input, select, textarea")) return;
    const arrows = event.key.startsWith("Arrow");
    if ((arrows && at.closest("#body, #split")) || (event.key === "Enter" && at.matches("button, a, summary"))) return;
    const act = EVERYWHERE[event.key] ?? (app.fold ? PRESSED[event.key] : null);
    if (!act) return;
    event.preventDefault();
    act();
  });
  window.addEventListener("hashchange", () => app.follow());
  window.addEventListener("popstate", () => app.follow());
  document.addEventListener("pointerdown", (event) => event.target.closest("#hits, #find") || app.search.open(false));
  $("theme").addEventListener("click", EVERYWHERE.t);
  $("keys").addEventListener("click", help);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app.waterfall.redraw());
  divider();
  const views = { runs: "Runs", time: "Timeline", reader: "Transcript" };
  fill($("views"), Object.entries(views).map(([name, words]) => h("button", { "data-view": name, "aria-current": String(name === "runs"), click: () => app.view(name) }, words)));
  if (app.given) $("brand").removeAttribute("href");
};

const divider = () => {
  const split = $("split");
  split.addEventListener("pointerdown", (event) => {
    split.setPointerCapture(event.pointerId);
    const move = (at) => app.divide(at.clientX);
    split.addEventListener("pointermove", move);
    split.addEventListener("pointerup", () => split.removeEventListener("pointermove", move), { once: true });
  });
  split.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -24, ArrowRight: 24 }[event.key];
    if (by) app.divide($("runs").offsetWidth + by);
  });
};
