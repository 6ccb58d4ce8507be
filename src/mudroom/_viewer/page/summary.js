// The tab "Summary": the saved context, costs, time, errors, the answer and the slowest runs.
"use strict";

const MAX_ANSWER_LINES = 40; // lines of the answer before "show all"
const MAX_PROMPTS = 12; // newest prompts before "show all"
const ORDERS = {
  time: { words: "slowest", value: (run) => runSeconds(run), format: formatSeconds },
  tokens: { words: "most tokens", value: (run) => totalTokens(run.usage), format: formatTokens },
  cost: { words: "most expensive", value: (run) => run.usd ?? 0, format: formatMoney },
};

/** Return the duration of a run in seconds. */
const runSeconds = (run) =>
  Math.max(0, (run.finished || (app.live ? app.now() : run.lastAt)) - run.started);

/** Return the items of the tab; they stay the same as the session grows. */
const summaryItems = (fold) => {
  fold.summary ??= ["saved", "tiles", "attention", "prompts", "team", "slowest", "files"].map((pane) => ({
    pane,
    fold,
  }));
  for (const item of fold.summary)
    item.version = `${fold.events} ${app.live ? Math.floor(app.now()) : ""} ${item.order ?? ""}${item.all ?? ""}`;
  return fold.summary;
};

const drawSection = (name, words, ...content) =>
  h("section", { class: `part ${name}` }, h("h2", null, words), ...content);

const goButton = (go, props, ...content) =>
  h("button", { ...props, click: () => app.navigate(go) }, ...content);

/** Return the share of the context that children saved, 0 to 1. */
const savedShare = (ledger) => (ledger.without ? 1 - ledger.parent / ledger.without : 0);

const drawSaved = ({ fold }) => {
  const ledger = computeLedger(fold);
  const share = savedShare(ledger);
  if (!ledger.children)
    return h(
      "section",
      { class: "saved none" },
      h(
        "p",
        { class: "lead" },
        `No child ran. The context has ${formatTokens(ledger.parent)} tokens.`,
      ),
    );
  const children = ledger.children === 1 ? "1 child" : `${formatCount(ledger.children)} children`;
  const read = `${children} read ${plural(ledger.readLines, "line")} and returned ${formatCount(ledger.returnedLines)}.`;
  if (share <= 0) {
    const compared = "The reports are no shorter than what the children read.";
    const words = ledger.parent ? `${read} ${compared}` : read;
    return h("section", { class: "saved none" }, h("p", { class: "lead" }, words));
  }
  return h(
    "section",
    { class: "saved" },
    goButton(
      { tab: "ledger" },
      { class: "share-saved", title: "Show how" },
      h("b", null, formatShare(share, 1)),
      h("span", null, "less context in the parent than without children"),
    ),
    h(
      "p",
      { class: "lead" },
      "The parent's context has ",
      h("b", null, formatTokens(ledger.parent)),
      " tokens; without children it would have about ",
      h("b", null, formatTokens(ledger.without)),
      `. ${read}`,
    ),
    h(
      "div",
      {
        class: "savedbar",
        role: "img",
        "aria-label": `${formatShare(share, 1)} less context in the parent than without children`,
      },
      h("i", { style: { width: `${Math.min(99.4, 100 * share)}%` } }),
    ),
  );
};

const drawTiles = ({ fold }) => {
  const sums = sumSession(fold);
  const slowest = [...fold.runs.values()]
    .filter((run) => run.depth)
    .sort((a, b) => runSeconds(b) - runSeconds(a))[0];
  const failure = findAttention(fold).find(
    (line) => line.tone === "failed" || line.tone === "refused",
  );
  const tile = (figure, words, more, go, kind = "") =>
    (go ? goButton : (_, props, ...content) => h("div", props, ...content))(
      go,
      { class: `tile ${kind}` },
      h("b", null, figure),
      h("span", null, words),
      h("em", null, more),
    );
  return h(
    "section",
    { class: "tiles", "aria-label": "Figures" },
    tile(
      formatSeconds(sums.seconds),
      "time",
      slowest ? `children: ${formatSeconds(sums.childSeconds)} added up, many at once` : "",
      slowest && place(slowest),
    ),
    tile(
      sums.usd === null ? "–" : formatMoney(sums.usd),
      "cost",
      sums.usd === null ? "prices are not in the record" : sums.usd ? "" : "the model is free",
      null,
    ),
    tile(
      formatTokens(totalTokens(sums.usage)),
      "tokens",
      `${formatTokens(sums.usage.output)} written${sums.usage.cached ? `, ${formatShare(sums.usage.cached, sums.usage.input)} cached` : ""}`,
      { tab: "ledger" },
    ),
    tile(
      formatCount(fold.runs.size),
      fold.runs.size === 1 ? "run" : "runs",
      `${formatCount(sums.calls)} tool uses`,
      null,
    ),
    tile(
      formatCount(fold.errors),
      fold.errors === 1 ? "error" : "errors",
      fold.refused ? `${formatCount(fold.refused)} refused` : fold.errors ? "" : "nothing refused",
      failure?.go,
      fold.errors ? "bad" : "good",
    ),
  );
};

/** Return the sums of all runs. */
const sumSession = (fold) => {
  const runs = [...fold.runs.values()];
  const add = (value, some = runs) => some.reduce((sum, run) => sum + value(run), 0);
  const isPriced = fold.roots.length > 0 && fold.roots.every((run) => run.usd !== null);
  return {
    usage: runs.reduce((sum, run) => addUsage(sum, run.usage), NO_USAGE),
    usd: isPriced ? add((run) => run.usd, fold.roots) : null,
    seconds: add(runSeconds, fold.roots),
    childSeconds: add(
      runSeconds,
      runs.filter((run) => run.depth > 0),
    ),
    calls: add((run) => run.tools),
  };
};

const drawAttention = ({ fold }) => {
  const lines = findAttention(fold);
  return drawSection(
    "attention",
    "Look at first",
    lines.length
      ? h(
          "ul",
          { class: "lines" },
          lines.map((line) =>
            h(
              "li",
              null,
              goButton(
                line.go,
                { class: "line" },
                h("i", { class: `mark ${line.tone}` }),
                h("b", null, oneLine(line.words, 120)),
                h("span", null, oneLine(line.more, 160)),
              ),
            ),
          ),
        )
      : h(
          "p",
          { class: "calm" },
          h("i", { class: "mark done" }),
          app.live ? "Nothing failed so far." : "Nothing failed, nothing was refused.",
        ),
  );
};

/** Return the prompts with the answer to the last one. */
const drawPrompts = (item) => {
  const roots = item.fold.roots.filter(
    (run) => !run.depth && !run.brief.compacts && !run.abandoned,
  );
  const last = roots.at(-1) ?? item.fold.roots.at(-1);
  if (!last) return h("span");
  const text = last.report?.text ?? "";
  const listed = item.all ? roots : roots.slice(-MAX_PROMPTS);
  const showAll = () =>
    app.redraw(Object.assign(item, { all: true, version: `${item.version} all` }));
  return drawSection(
    "prompts",
    roots.length > 1 ? "Prompts" : "Prompt",
    listed.length < roots.length &&
      h(
        "p",
        { class: "note" },
        `The newest ${listed.length} of ${formatCount(roots.length)} prompts. `,
        h("button", { class: "more", click: showAll }, "show all"),
      ),
    h(
      "ul",
      { class: "lines" },
      (roots.length ? listed : [last]).map((run) => drawPromptLine(item.fold, run, roots.length)),
    ),
    text &&
      h(
        "div",
        { class: "answerhead" },
        h("h3", null, "Answer"),
        drawCopyButton(() => text, "the answer"),
      ),
    text && drawMarkdownBox(item, "answer", text, MAX_ANSWER_LINES),
  );
};

/** Return the line of a prompt; with several prompts each has the share that its children saved. */
const drawPromptLine = (fold, run, count) => {
  const share = count > 1 ? savedShare(computePromptLedger(fold, run)) : 0;
  return h(
    "li",
    null,
    goButton(
      place(run),
      { class: "line" },
      h("i", { class: `mark ${displayState(run, app.live)}` }),
      h("b", null, oneLine(runTitle(run), 300)),
      h(
        "em",
        null,
        [
          runOutcome(run),
          formatSeconds(runSeconds(run)),
          run.usd ? formatMoney(run.usd) : "",
          share > 0 ? `${formatShare(share, 1)} less context` : "",
        ]
          .filter(Boolean)
          .join(" · "),
      ),
    ),
  );
};

const drawSlowest = (item) => {
  const runs = [...item.fold.runs.values()].filter((run) => run.depth || !run.children.length);
  if (runs.length < 2) return h("span");
  const orders = Object.entries(ORDERS).filter(
    ([name]) => name !== "cost" || runs.some((run) => run.usd),
  );
  const name = item.order ?? "time";
  const order = ORDERS[name];
  const sorted = runs.sort((a, b) => order.value(b) - order.value(a)).slice(0, 8);
  const maximum = Math.max(order.value(sorted[0]), 1e-9);
  return drawSection(
    "slowest",
    "Runs",
    h(
      "div",
      { class: "switch", role: "group", "aria-label": "Order" },
      orders.map(([each, { words }]) =>
        h(
          "button",
          {
            "aria-pressed": String(each === name),
            click: () =>
              app.redraw(Object.assign(item, { order: each, version: `${item.version} ${each}` })),
          },
          words,
        ),
      ),
    ),
    h(
      "ul",
      { class: "lines" },
      sorted.map((run) =>
        h(
          "li",
          null,
          goButton(
            place(run),
            { class: "line ranked" },
            h("i", { class: `mark ${displayState(run, app.live)}` }),
            h(
              "b",
              { class: "who-name", style: { "--hue": String(agentHue(run.agent)) } },
              runLabel(run),
            ),
            h("span", null, oneLine(distinctTitle(item.fold, run), 120)),
            h(
              "span",
              { class: "meter" },
              h("i", { style: { width: `${(100 * order.value(run)) / maximum}%` } }),
            ),
            h("em", null, order.format(order.value(run))),
          ),
        ),
      ),
    ),
    item.fold.runs.size > 8 &&
      h("p", { class: "note" }, `The tree has all ${formatCount(item.fold.runs.size)} runs.`),
  );
};

/** Return the changed files with the run that changed each last. */
const drawFiles = ({ fold }) => {
  const files = new Map(surveyItems(fold).changedFiles);
  for (const run of fold.runs.values())
    for (const path of run.report?.files_changed ?? [])
      if (!files.has(path)) files.set(path, run.items.at(-1));
  if (!files.size) return h("span");
  const listed = [...files].slice(0, 60);
  return drawSection(
    "files",
    plural(files.size, "changed file"),
    h(
      "ul",
      { class: "paths" },
      listed.map(([path, item]) =>
        h(
          "li",
          null,
          goButton(place(item.run, item), { title: `run ${item.run.id}` }, oneLine(path, 160)),
        ),
      ),
    ),
    files.size > listed.length &&
      h("p", { class: "note" }, `and ${formatCount(files.size - listed.length)} more`),
  );
};

Object.assign(PANES, {
  saved: drawSaved,
  tiles: drawTiles,
  attention: drawAttention,
  prompts: drawPrompts,
  slowest: drawSlowest,
  files: drawFiles,
});
Object.assign(PANE_HEIGHTS, {
  saved: 150,
  tiles: 100,
  attention: 120,
  prompts: 300,
  slowest: 300,
  files: 80,
});
