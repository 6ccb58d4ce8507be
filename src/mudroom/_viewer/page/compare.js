// Two runs side by side: prompt, report, costs, tools, time. The runs may be of two sessions.
"use strict";

/** The comparison: its two sides {session, run}, and the folds of their sessions by id. */
const comparison = { sides: [], folds: new Map(), sessions: [], diff: false };

const compareLink = (a, b) => {
  const side = ({ session, run }) => `${session}/${run ?? ""}`;
  return `#${new URLSearchParams({ compare: side(a), with: side(b) })}`;
};

/** Return the side that a link names as "session/run". */
const parseSide = (text) => {
  const at = text.lastIndexOf("/");
  return at < 0
    ? { session: text, run: "" }
    : { session: text.slice(0, at), run: text.slice(at + 1) };
};

/** Return a button that compares a run with another one of its session. */
const drawCompareButton = (run) => {
  const others = [...app.fold.runs.values()].filter((each) => each !== run);
  const other =
    others.find((each) => each.agent === run.agent && each.depth === run.depth) ?? others[0] ?? run;
  const { session } = app.selection;
  return h(
    "a",
    {
      class: "link",
      href: compareLink({ session, run: run.id }, { session, run: other.id }),
      title: "Compare this run with another one",
    },
    "compare",
  );
};

/** Show the two runs that the address names. */
const showComparison = async (link) => {
  const sides = [link.get("compare"), link.get("with") || link.get("compare")].map(parseSide);
  comparison.sides = sides;
  app.showError("");
  try {
    if (!app.embedded) comparison.sessions = (await fetchSessions(sessionList.limit)).sessions;
    for (const { session } of sides)
      if (!comparison.folds.has(session)) comparison.folds.set(session, await loadFold(session));
  } catch (error) {
    app.showError(String(error.message ?? error));
    return;
  }
  if (comparison.sides !== sides) return; // the user chose other runs meanwhile
  for (const side of sides) {
    side.fold = comparison.folds.get(side.session);
    const runs = [...side.fold.runs.values()];
    side.runs = runs;
    side.shown =
      side.fold.runs.get(side.run) ?? side.fold.roots.filter((run) => !run.depth).at(-1) ?? runs[0];
  }
  drawComparison();
};

/** Return the fold of all recorded events of a session. */
const loadFold = async (session) => {
  const fold = new Fold();
  if (app.embedded) {
    for (const [number, event] of app.embedded.events) fold.apply(number, event);
    return fold;
  }
  for (let more = true; more;) {
    const path = `api/sessions/${encodeURIComponent(session)}/events?after=${fold.last}`;
    const page = await fetchJson(path);
    for (const [number, event] of page.events) fold.apply(number, event);
    if (page.error) throw new Error(page.error);
    more = page.more;
  }
  return fold;
};

const withDescendants = (run) => [run, ...run.children.flatMap(withDescendants)];

const FIGURES = [
  ["outcome", runOutcome, String],
  ["time", (run) => (run.finished || run.lastAt) - run.started, formatSeconds],
  ["cost", (run) => run.usd, (usd) => (usd === null ? "–" : formatMoney(usd))],
  ["tokens read", (run) => run.usage.input + run.below.input, formatTokens],
  ["of these cached", (run) => run.usage.cached + run.below.cached, formatTokens],
  ["tokens written", (run) => run.usage.output + run.below.output, formatTokens],
  [
    "largest context",
    (run) => Math.max(0, ...turnsOf(run).map((step) => step.usage?.input ?? 0)),
    formatTokens,
  ],
  ["turns", (run) => run.turns, formatCount],
  ["child runs", (run) => withDescendants(run).length - 1, formatCount],
  ["tool uses", (run) => sumRuns(run, (each) => each.tools), formatCount],
  ["errors", (run) => sumRuns(run, (each) => each.failed - each.refused), formatCount],
  ["refused", (run) => sumRuns(run, (each) => each.refused), formatCount],
  ["files changed", (run) => run.report?.files_changed?.length ?? 0, formatCount],
];
const turnsOf = (run) => run.items.filter((item) => item.kind === "turn");
const sumRuns = (run, value) => withDescendants(run).reduce((sum, each) => sum + value(each), 0);

const drawComparison = () => {
  const [a, b] = comparison.sides;
  if (!a.shown || !b.shown)
    return setChildren($("versus"), h("p", { class: "empty" }, "One of the sessions has no run."));
  document.title = "Comparison · mudroom";
  setChildren($("title"), "Comparison of two runs");
  setChildren(
    $("versus"),
    h(
      "div",
      { class: "pair" },
      [a, b].map((side, n) => drawSide(side, n)),
    ),
    drawSection(
      "numbers",
      "Figures",
      drawFigureTable(a.shown, b.shown),
      h("p", { class: "note" }, "With all runs below, except turns, context and time."),
    ),
    drawSection("tools", "Tools", drawToolTable(a.shown, b.shown)),
    drawTexts("Prompt", a.shown.prompt, b.shown.prompt),
    drawTexts("Report", a.shown.report?.text ?? "", b.shown.report?.text ?? ""),
  );
};

const drawSide = (side, n) => {
  const choose = (change) => {
    const sides = comparison.sides.map(({ session, run }) => ({ session, run }));
    sides[n] = { ...sides[n], ...change };
    location.hash = compareLink(...sides);
  };
  const name = n ? "B" : "A";
  return h(
    "div",
    { class: "side" },
    h("span", { class: "letter", "aria-hidden": "true" }, name),
    h(
      "div",
      { class: "pickers" },
      comparison.sessions.length > 0 &&
        drawPicker(
          `Session ${name}`,
          side.session,
          comparison.sessions.map((each) => [
            each.id,
            `${formatDate(each.when)} · ${oneLine(each.name || each.prompt, 60)}`,
          ]),
          (session) => choose({ session, run: "" }),
        ),
      drawPicker(
        `Run ${name}`,
        side.shown.id,
        side.runs.map((run) => [
          run.id,
          `${run.id} · ${run.agent} · ${oneLine(runTitle(run), 60)}`,
        ]),
        (run) => choose({ run }),
      ),
    ),
    h(
      "a",
      {
        class: "more",
        href: `#${new URLSearchParams({ session: side.session, run: side.shown.id })}`,
      },
      "open",
    ),
    drawStateBadge(side.shown),
  );
};

const drawPicker = (words, value, options, choose) =>
  h(
    "select",
    { "aria-label": words, change: (event) => choose(event.currentTarget.value) },
    options.map(([each, text]) => h("option", { value: each, selected: each === value }, text)),
  );

/** Return "+35 %" for a figure of B relative to A, "" where that says nothing. */
const formatChange = (a, b) => {
  if (typeof a !== "number" || typeof b !== "number" || a === b) return "";
  if (!a) return "";
  const change = Math.round((100 * (b - a)) / a);
  if (!change) return "";
  return Math.abs(change) > 999
    ? `×${formatCount(b / a)}`
    : `${change > 0 ? "+" : "−"}${Math.abs(change)}%`;
};

const drawCompareTable = (caption, rows) =>
  h(
    "table",
    { class: "versus-table" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        [caption, "A", "B", "B against A"].map((words, n) =>
          h("th", { scope: "col", class: n ? "right" : null }, words),
        ),
      ),
    ),
    h(
      "tbody",
      null,
      rows.map(([words, a, b, change]) =>
        h(
          "tr",
          { class: a === b ? "equal" : null },
          h("th", { scope: "row" }, words),
          h("td", { class: "right" }, a),
          h("td", { class: "right" }, b),
          h("td", { class: "right" }, change),
        ),
      ),
    ),
  );

const drawFigureTable = (a, b) =>
  drawCompareTable(
    "figure",
    FIGURES.map(([words, value, format]) => [
      words,
      format(value(a)),
      format(value(b)),
      formatChange(value(a), value(b)),
    ]),
  );

/** Return name of tool -> number of its calls in a run and the runs below it. */
const countTools = (run) => {
  const counts = new Map();
  for (const each of withDescendants(run))
    for (const item of each.calls.values())
      if (item.result) counts.set(item.tool, (counts.get(item.tool) ?? 0) + 1);
  return counts;
};

const drawToolTable = (a, b) => {
  const [inA, inB] = [countTools(a), countTools(b)];
  const names = [...new Set([...inA.keys(), ...inB.keys()])].sort();
  if (!names.length) return h("p", { class: "calm" }, "Neither run used a tool.");
  return drawCompareTable(
    "tool",
    names.map((name) => {
      const [x, y] = [inA.get(name) ?? 0, inB.get(name) ?? 0];
      return [name, formatCount(x), formatCount(y), formatChange(x, y)];
    }),
  );
};

/** Return two texts side by side, once if they are equal, or their differences. */
const drawTexts = (words, a, b) => {
  if (a === b) return drawSection("texts", `${words}: the same`, renderMarkdown(a || "(none)"));
  const toggle = () => {
    comparison.diff = !comparison.diff;
    drawComparison();
  };
  return drawSection(
    "texts",
    words,
    h(
      "button",
      { class: "more", "aria-pressed": String(comparison.diff), click: toggle },
      "show differences",
    ),
    comparison.diff
      ? drawDiffLines(computeDiff(a, b))
      : h(
          "div",
          { class: "pair" },
          [a, b].map((text) =>
            h(
              "div",
              { class: "side text" },
              drawCopyButton(() => text, words.toLowerCase()),
              h("h3", null, words),
              renderMarkdown(text || "(none)"),
            ),
          ),
        ),
  );
};
