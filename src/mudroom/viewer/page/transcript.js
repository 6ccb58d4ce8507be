// One run as its model lived it: prompt, turns, words, calls with their results, report.
"use strict";

const runFigures = (run, now) => {
  const took = (run.finished || (app.live ? now : run.lastAt)) - run.started;
  const below = total(run.below) ? ` (+${tokens(total(run.below))} below)` : "";
  return [plural(run.tools, "tool use"), `${tokens(total(run.usage))} tokens${below}`, run.usd === null ? "" : money(run.usd), seconds(Math.max(0, took))].filter(Boolean);
};

const outcome = (run) => {
  const state = stateOf(run, app.live);
  if (!run.report) return state;
  return run.report.recovered ? `${run.report.reason}, recovered` : run.report.reason;
};

const mark = (run) => h("i", { class: `dot ${stateOf(run, app.live)}`, title: outcome(run) });

const badge = (run) => h("span", { class: `badge ${stateOf(run, app.live)}` }, outcome(run));

const copyLink = (link) =>
  h("button", { class: "link", title: "Copy a link to this", "aria-label": "Copy a link", click: (event) => app.copy(event.currentTarget, link) }, "#");

const ITEMS = {
  prompt: (item) => h("div", { class: "prompt" }, h("h4", null, item.run.depth ? "what went in" : "prompt"), box(item, "text", item.text, { kind: "words" }), goesOn(item.run)),

  told: (item) => h("div", { class: "told" }, h("b", null, item.origin === "person" ? "you" : item.origin), h("span", null, clean(item.text))),

  resumed: () => h("div", { class: "told" }, h("b", null, "resumed"), h("span", null, "another process went on from here")),

  turn: (item) =>
    h(
      "div",
      { class: "turn" },
      h("b", null, `turn ${item.turn}`),
      item.grace && h("span", { class: "word grace" }, `grace: ${item.grace}`),
      item.usage && h("span", { class: "figure", title: "tokens the provider counted: read (of these from its cache), written" }, `${tokens(item.usage.input)} in${item.usage.cached ? ` (${share(item.usage.cached, item.usage.input)} cached)` : ""} · ${tokens(item.usage.output)} out · ${seconds(item.seconds)}`),
      !item.usage && !item.error && h("span", { class: "figure" }, app.live && !item.run.report ? "thinking…" : "no answer recorded"),
      copyLink({ run: item.run.id, turn: item.turn, call: "" }),
      item.retries.map((each) => h("div", { class: "retry" }, `retry ${each.attempt} after ${seconds(each.delay)}: ${each.status ? `HTTP ${each.status}` : "connection lost"} ${oneLine(each.error ?? "", 160)}`)),
      item.error && h("div", { class: "broken" }, clean(item.error)),
    ),

  thinking: (item) =>
    h("details", { class: "thinking", open: item.unfolded, toggle: (event) => (item.unfolded = event.currentTarget.open) }, h("summary", null, item.text ? `thinking · ${oneLine(item.text, 90)}` : "thinking, withheld by the provider"), h("div", null, clean(item.text))),

  text: (item) => h("div", { class: "answer" }, prose(item.text)),

  call: callCard,

  report: (item) => {
    const { report, run } = item;
    const files = (name, paths) => (paths?.length ? [h("dt", null, name), h("dd", null, paths.slice(0, 40).map((path) => h("code", null, oneLine(path))), paths.length > 40 ? ` and ${grouped(paths.length - 40)} more` : "")] : null);
    return h(
      "article",
      { class: `report ${run.state}` },
      h("div", { class: "callhead" }, badge(run), h("b", null, "report"), h("span", { class: "figure" }, runFigures(run, run.finished).join(" · "))),
      report.error && h("div", { class: "broken" }, clean(report.error)),
      run.depth || !lastWords(run, report.text) ? prose(report.text || "(no summary)") : null,
      h(
        "dl",
        { class: "given" },
        report.outputs && Object.keys(report.outputs).length ? [h("dt", null, "outputs"), h("dd", null, box(item, "outputs", JSON.stringify(report.outputs, null, 2)))] : null,
        files("files read", report.files_read),
        files("files changed", report.files_changed),
        Object.keys(report.calls ?? {}).length ? [h("dt", null, "calls"), h("dd", null, Object.entries(report.calls).map(([name, times]) => `${name} ${times}`).join(", ") + (report.failed ? `; ${report.failed} failed` : ""))] : null,
      ),
    );
  },
};

/** Whether the report says again what stands right above it. */
const lastWords = (run, text) => {
  const words = run.items.findLast((item) => item.kind === "text");
  return words !== undefined && words.text.trim() === text.trim();
};

const goesOn = (run) => run.continues && h("button", { class: "more", click: () => app.go({ run: run.continues, turn: 0, call: "" }) }, `goes on from run ${run.continues}`);

const GUESSES = { prompt: 110, told: 40, resumed: 40, turn: 34, thinking: 34, text: 90, call: 130, report: 220 };

const drawItem = (item) => h("div", { class: `item ${item.kind}-item${isChosen(item) ? " chosen" : ""}` }, ITEMS[item.kind](item));

const isChosen = (item) => (app.at.call ? item.kind === "call" && item.id === app.at.call : app.at.turn > 0 && item.kind === "turn" && item.turn === app.at.turn);

/** Where in the items a link points; the beginning when it points at nothing. */
const placeOf = (items, { turn, call }) => {
  const at = items.findIndex((item) => (call ? item.id === call : item.kind === "turn" && item.turn === turn));
  return at >= 0 ? at : 0;
};

const matches = (item, filter) => {
  if (filter.tool && !(item.kind === "call" && item.tool === filter.tool)) return false;
  const failed = (item.kind === "call" && item.result?.error && !item.refused) || Boolean(item.error) || item.retries?.length > 0 || (item.kind === "report" && item.run.state === "failed");
  const refused = Boolean(item.refused);
  if (filter.errors && filter.refused) return failed || refused;
  return (!filter.errors || failed) && (!filter.refused || refused);
};
const filtering = (filter) => filter.errors || filter.refused || Boolean(filter.tool);

/** The head of the reader: whose transcript it is, where it stands, what it cost. */
const drawHead = (fold, run) =>
  h(
    "div",
    { class: "runhead" },
    h(
      "div",
      { class: "path" },
      ancestors(fold, run).map((above) => [h("button", { click: () => app.go({ run: above.id, turn: 0, call: "" }) }, `${above.agent} ${above.id}`), " › "]),
      h("span", null, `run ${run.id}`),
      copyLink({ run: run.id, turn: 0, call: "" }),
    ),
    h("h2", null, h("b", { class: "agent", style: { "--hue": String(hueOf(run.agent)) } }, run.agent), oneLine(titleOf(run), 160), badge(run), leftBehind(fold, run) && h("span", { class: "badge left", title: "The conversation does not go on from here: somebody went back to before it, or it failed to tell the rest in short" }, "left behind")),
    h("div", { class: "figures" }, [...runFigures(run, app.now()), plural(run.turns, "turn"), run.model, budgetOf(run)].filter(Boolean).map((each) => h("span", null, each))),
  );

const LIMITS = { turns: (n) => plural(n, "turn"), seconds: (n) => seconds(n), usd: money, input_tokens: (n) => `${tokens(n)} in`, output_tokens: (n) => `${tokens(n)} out`, total_tokens: (n) => `${tokens(n)} in and out` };
const budgetOf = (run) => {
  const limits = Object.entries(run.brief.budget ?? {}).filter(([name, value]) => name in LIMITS && value !== null);
  return limits.length ? `limits: ${limits.map(([name, value]) => LIMITS[name](value)).join(", ")}` : "";
};
