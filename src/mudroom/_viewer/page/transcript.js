// The transcript of one run: prompt, turns, texts, tool calls with results, report.
"use strict";

const runFigures = (run, now) => {
  const took = (run.finished || (app.live ? now : run.lastAt)) - run.started;
  const below = totalTokens(run.below) ? ` (+${formatTokens(totalTokens(run.below))} below)` : "";
  return [
    plural(run.tools, "tool use"),
    `${formatTokens(totalTokens(run.usage))} tokens${below}`,
    run.usd === null ? "" : formatMoney(run.usd),
    formatSeconds(Math.max(0, took)),
  ].filter(Boolean);
};

/** Words for the reason why a run ended: alone, and after the name of the run. */
const reasonWords = (reason) => REASON_WORDS[reason]?.[0] ?? reason;
const reasonPredicate = (reason) => REASON_WORDS[reason]?.[1] ?? `ended with ${reason}`;

const runOutcome = (run) => {
  const state = displayState(run, app.live);
  if (!run.report) return state;
  const reason = reasonWords(run.report.reason);
  const outcome = reason[0].toUpperCase() + reason.slice(1);
  const parts = [outcome, run.report.recovered && "with a summary", describeMerge(run)];
  return parts.filter(Boolean).join(", ");
};

const drawStateDot = (run) =>
  h("i", { class: `dot ${displayState(run, app.live)}`, title: runOutcome(run) });

const drawStateBadge = (run) =>
  h(
    "span",
    {
      class: `badge ${displayState(run, app.live)}`,
      title: run.report ? `reason ${run.report.reason}` : "",
    },
    runOutcome(run),
  );

const drawLinkButton = (link) =>
  h(
    "button",
    {
      class: "link",
      title: "Copy a link to this",
      "aria-label": "Copy a link",
      click: (event) => app.copyLink(event.currentTarget, link),
    },
    "#",
  );

const drawFoldedText = (item, summary) =>
  h(
    "details",
    {
      class: "thinking",
      open: item.unfolded,
      toggle: (event) => (item.unfolded = event.currentTarget.open),
    },
    h("summary", null, summary),
    h("div", null, sanitize(item.text)),
  );

const ITEM_RENDERERS = {
  prompt: (item) =>
    h(
      "div",
      { class: "prompt" },
      h("h3", null, item.run.depth ? "brief" : "prompt"),
      drawTextBox(item, "text", item.text, { kind: "words" }),
      drawPromptImages(item.run),
      drawContinuesButton(item.run),
    ),

  note: (item) => drawNote(item),

  resumed: () => drawNotice("resumed", "another process continued the run from here"),

  cleared: (item) =>
    drawNotice(
      "cleared",
      `${plural(Object.keys(item.texts).length, "old result")}, ${formatTokens(item.tokens)} tokens`,
    ),

  compacted: (item) => drawCompaction(item),

  turn: (item) =>
    h(
      "div",
      { class: "turn" },
      h("b", null, `turn ${item.turn}`),
      item.grace && h("span", { class: "word grace" }, `grace: ${item.grace}`),
      item.usage &&
        h(
          "span",
          {
            class: "figure",
            title: "tokens the provider counted: read (of these from its cache), written",
          },
          `${formatTokens(item.usage.input)} in${item.miss ? ` (${formatTokens(item.miss.tokens)} missed the cache: ${item.miss.reason})` : ""}${item.usage.cached ? ` (${formatShare(item.usage.cached, item.usage.input)} cached)` : ""} · ${formatTokens(item.usage.output)} out · ${formatSeconds(item.seconds)}`,
        ),
      !item.usage &&
        !item.error &&
        h(
          "span",
          { class: "figure" },
          app.live && !item.run.report ? "thinking…" : "no answer recorded",
        ),
      drawLinkButton({ run: item.run.id, turn: item.turn, call: "" }),
      item.retries.map((each) =>
        h(
          "div",
          { class: "retry" },
          `retry ${each.attempt} after ${formatSeconds(each.delay)}: ${each.status ? `HTTP ${each.status}` : "connection lost"} ${oneLine(each.error ?? "", 160)}`,
        ),
      ),
      item.partial && drawTextBox(item, "partial", item.partial, { kind: "words" }),
      item.error && h("div", { class: "broken" }, sanitize(item.error)),
    ),

  thinking: (item) =>
    drawFoldedText(
      item,
      item.text ? `thinking · ${oneLine(item.text, 90)}` : "thinking, withheld by the provider",
    ),

  provider: (item) => drawFoldedText(item, oneLine(item.text, 90)),

  text: (item) =>
    h(
      "div",
      { class: "answer" },
      drawCopyButton(() => item.text, "the text"),
      renderMarkdown(item.text),
    ),

  waiting: (item) =>
    drawNotice(
      item.interrupted ? "interrupted" : "waits",
      item.interrupted
        ? `by the user; waits for the next prompt, ${item.runs.length} in the background continue`
        : `for ${plural(item.runs.length, "background run")}, without a request`,
    ),

  merged: (item) => {
    const child = app.fold.runs.get(item.child);
    return drawNotice("merge", `${item.child}: ${child ? describeMerge(child) : "ended"}`);
  },

  check: (item) => {
    const work = item.children.length ? ` with the work of ${item.children.join(", ")}` : "";
    const text = `${oneLine(item.command, 200)}${work}: ${describeCheck(item)}`;
    return item.text ? drawFoldedText(item, `check ${text}`) : drawNotice("check", text);
  },

  call: drawCall,

  report: (item) => {
    const { report, run } = item;
    return h(
      "article",
      { class: `report ${run.state}` },
      h(
        "div",
        { class: "callhead" },
        drawStateBadge(run),
        h("b", null, "report"),
        report.text && drawCopyButton(() => report.text, "the report"),
        h("span", { class: "figure" }, runFigures(run, run.finished).join(" · ")),
      ),
      report.error && h("div", { class: "broken" }, sanitize(report.error)),
      run.depth || !repeatsLastText(run, report.text)
        ? renderMarkdown(report.text || "(no summary)")
        : null,
      drawReportFacts(item, report),
    );
  },
};

/** Return what the engine saw a run do. It comes from the report's fields, never from a text. */
const drawReportFacts = (item, report) => {
  const files = (name, paths) =>
    paths?.length
      ? [
          h("dt", null, name),
          h(
            "dd",
            null,
            paths.slice(0, 40).map((path) => h("code", null, oneLine(path))),
            paths.length > 40 ? ` and ${formatCount(paths.length - 40)} more` : "",
          ),
        ]
      : null;
  const calls = Object.entries(report.calls ?? {});
  return h(
    "dl",
    { class: "arguments" },
    report.outputs && Object.keys(report.outputs).length
      ? [
          h("dt", null, "outputs"),
          h("dd", null, drawTextBox(item, "outputs", JSON.stringify(report.outputs, null, 2))),
        ]
      : null,
    files("files read", report.files_read),
    files("files changed", report.files_changed),
    files("of these, while commands ran", report.observed_changes),
    report.unknown_changes
      ? [h("dt", null, "not known"), h("dd", null, sanitize(report.unknown_changes))]
      : null,
    calls.length
      ? [
          h("dt", null, "calls"),
          h(
            "dd",
            null,
            calls.map(([name, times]) => `${oneLine(name, 60)} ${times}`).join(", ") +
              (report.failed ? `; ${report.failed} failed` : ""),
          ),
        ]
      : null,
  );
};

/** Return true if the report repeats the last text of the run. */
const repeatsLastText = (run, text) => {
  const words = run.items.findLast((item) => item.kind === "text");
  return words !== undefined && words.text.trim() === text.trim();
};

const drawPromptImages = (run) => {
  const images = (run.brief.content ?? []).filter((block) => block.type === "image");
  return images.length > 0 && drawImages(images);
};

const drawContinuesButton = (run) =>
  run.continues &&
  h(
    "button",
    { class: "more", click: () => app.navigate({ run: run.continues, turn: 0, call: "" }) },
    `continues run ${run.continues}`,
  );

const ITEM_HEIGHTS = {
  prompt: 110,
  note: 40,
  resumed: 40,
  cleared: 40,
  waiting: 40,
  merged: 40,
  check: 40,
  compacted: 190,
  turn: 34,
  thinking: 34,
  provider: 34,
  text: 90,
  call: 130,
  report: 220,
};

const drawItem = (item) =>
  h(
    "div",
    { class: `item ${item.kind}-item${isSelected(item) ? " chosen" : ""}` },
    ITEM_RENDERERS[item.kind](item),
  );

const isSelected = (item) =>
  app.selection.call
    ? item.kind === "call" && item.id === app.selection.call
    : app.selection.turn > 0 && item.kind === "turn" && item.turn === app.selection.turn;

/** Return the index of the item that a link names, 0 if there is none. */
const findItemIndex = (items, { turn, call }) => {
  const at = items.findIndex((item) =>
    call ? item.id === call : item.kind === "turn" && item.turn === turn,
  );
  return at >= 0 ? at : 0;
};

const matchesFilter = (item, filter) => {
  if (filter.tool && !(item.kind === "call" && item.tool === filter.tool)) return false;
  const failed =
    (item.kind === "call" && item.result?.error && !item.refused) ||
    Boolean(item.error) ||
    item.retries?.length > 0 ||
    (item.kind === "report" && item.run.state === "failed");
  const refused = Boolean(item.refused);
  if (filter.errors && filter.refused) return failed || refused;
  return (!filter.errors || failed) && (!filter.refused || refused);
};
const isFiltering = (filter) => filter.errors || filter.refused || Boolean(filter.tool);

/** Return the header of a run: its path, state and figures. */
const drawRunHead = (fold, run) =>
  h(
    "div",
    { class: "runhead" },
    h(
      "div",
      { class: "path" },
      ancestors(fold, run).map((above) => [
        h(
          "button",
          { click: () => app.navigate({ run: above.id, turn: 0, call: "" }) },
          `${above.agent} ${above.id}`,
        ),
        " › ",
      ]),
      h("span", null, `run ${run.id}`),
      drawCopyButton(() => run.id, "the run id"),
      drawLinkButton({ run: run.id, turn: 0, call: "" }),
      drawCompareButton(run),
    ),
    h(
      "h2",
      null,
      h("b", { class: "agent", style: { "--hue": String(agentHue(run.agent)) } }, runName(run)),
      oneLine(runTitle(run), 160),
      drawStateBadge(run),
      isAbandoned(fold, run) &&
        h(
          "span",
          {
            class: "badge left",
            title:
              "The conversation does not continue after this run: the user rewound it, or it was a summary that failed",
          },
          "abandoned",
        ),
    ),
    drawLaneLinks(run),
    h(
      "div",
      { class: "figures" },
      [
        ...runFigures(run, app.now()),
        plural(run.turns, "turn"),
        run.name && `agent ${run.agent}`,
        run.model,
        formatBudget(run),
      ]
        .filter(Boolean)
        .map((each) => h("span", null, each)),
    ),
  );

const BUDGET_FORMATS = {
  turns: (n) => plural(n, "turn"),
  seconds: (n) => formatSeconds(n),
  usd: formatMoney,
  input_tokens: (n) => `${formatTokens(n)} in`,
  output_tokens: (n) => `${formatTokens(n)} out`,
  total_tokens: (n) => `${formatTokens(n)} in and out`,
};
const formatBudget = (run) => {
  const limits = Object.entries(run.brief.budget ?? {}).filter(
    ([name, value]) => name in BUDGET_FORMATS && value !== null,
  );
  return limits.length
    ? `limits: ${limits.map(([name, value]) => BUDGET_FORMATS[name](value)).join(", ")}`
    : "";
};
