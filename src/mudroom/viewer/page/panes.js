// The tabs besides the transcript: the context at a step, and the ledger.
"use strict";

const BLOCK_KINDS = {
  system: "instructions",
  tools: "tools",
  prompt: "prompts",
  note: "notes",
  thinking: "thinking",
  provider: "web searches",
  answer: "answers",
  call: "calls",
  result: "tool results",
  report: "children's reports",
  rest: "not recorded",
};

/** Return the items of the tab "Context at this step". */
const contextItems = (fold, run) => {
  const turns = run.items.filter((item) => item.kind === "turn");
  if (!turns.length) return [{ pane: "empty", words: "This run has not called its model yet." }];
  const step = turns.findLast((item) => item.turn === app.selection.turn) ?? turns.at(-1);
  const blocks = contextBlocks(fold, run, step.turn);
  const sum = blocks.reduce((all, each) => all + each.bytes, 0);
  const estimate = sum / BYTES_PER_TOKEN;
  const counted = step.usage?.input ?? 0;
  const whole = Math.max(estimate, counted);
  return [
    { pane: "gauge", run, step, turns, blocks, estimate, counted, whole },
    ...blocks.map((each) => ({ pane: "block", run, block: each, whole, version: 0 })),
  ];
};

const drawGauge = ({ run, step, turns, blocks, estimate, counted, whole }) => {
  const sums = new Map();
  for (const each of blocks)
    sums.set(each.kind, (sums.get(each.kind) ?? 0) + each.bytes / BYTES_PER_TOKEN);
  if (counted > estimate) sums.set("rest", counted - estimate);
  const parts = [...sums].filter(([, amount]) => amount > 0);
  const at = turns.indexOf(step);
  const move = (by) =>
    app.navigate({ run: run.id, turn: turns[at + by].turn, call: "" }, { quiet: true });
  return h(
    "div",
    { class: "gauge" },
    h(
      "div",
      { class: "stepper" },
      h("button", { disabled: at === 0, "aria-label": "Turn before", click: () => move(-1) }, "‹"),
      h("b", null, `turn ${step.turn}`),
      h("span", null, `of ${turns.at(-1).turn}`),
      h(
        "button",
        { disabled: at === turns.length - 1, "aria-label": "Next turn", click: () => move(1) },
        "›",
      ),
      h(
        "span",
        { class: "sum" },
        counted
          ? [h("b", null, formatTokens(counted)), " tokens counted by the provider"]
          : [h("b", null, `~${formatTokens(estimate)}`), " tokens, estimated"],
      ),
    ),
    drawSparkline(turns, step, (turn) =>
      app.navigate({ run: run.id, turn, call: "" }, { quiet: true }),
    ),
    h(
      "div",
      { class: "stack", role: "img", "aria-label": "Shares of the context" },
      parts.map(([kind, amount]) =>
        h("i", {
          class: `k-${kind}`,
          title: `${BLOCK_KINDS[kind]}: ~${formatTokens(amount)} tokens`,
          style: { "flex-grow": String(amount / whole) },
        }),
      ),
    ),
    h(
      "div",
      { class: "legend" },
      parts.map(([kind, amount]) =>
        h(
          "span",
          null,
          h("i", { class: `k-${kind}` }),
          BLOCK_KINDS[kind],
          h("b", null, formatTokens(amount)),
          h("em", null, formatShare(amount, whole)),
        ),
      ),
    ),
    sums.has("rest") &&
      h(
        "p",
        { class: "note" },
        "Sizes are estimates (bytes / 4). The provider counts more, because the record does not contain tool schemas, the context files and environment of the system prompt, and the provider's own additions.",
      ),
  );
};

/** Return clickable bars with the prompt's tokens at each turn. */
const drawSparkline = (turns, step, choose) => {
  const maximum = Math.max(1, ...turns.map((each) => each.usage?.input ?? 0));
  const few =
    turns.length > 120
      ? turns.filter((each, n) => each === step || n % Math.ceil(turns.length / 120) === 0)
      : turns;
  return h(
    "div",
    { class: "spark" },
    few.map((each) =>
      h(
        "button",
        {
          class: each === step ? "here" : "",
          title: `turn ${each.turn}: ${formatTokens(each.usage?.input ?? 0)} tokens`,
          "aria-label": `turn ${each.turn}`,
          click: () => choose(each.turn),
        },
        h("i", { style: { height: `${Math.max(3, (100 * (each.usage?.input ?? 0)) / maximum)}%` } }),
      ),
    ),
  );
};

const drawContextBlock = (item) => {
  const { block: each, whole } = item;
  const estimate = each.bytes / BYTES_PER_TOKEN;
  const text = each.text.length > 20000 && !item.all ? each.text.slice(0, 20000) : each.text;
  return h(
    "div",
    { class: `block${item.unfolded ? " open" : ""}${each.past ? " past" : ""}` },
    h(
      "button",
      {
        class: "blockhead",
        "aria-expanded": String(Boolean(item.unfolded)),
        click: () => app.redraw(Object.assign(item, { unfolded: !item.unfolded })),
      },
      h("i", { class: `k-${each.kind}` }),
      h("b", null, each.kind === "answer" ? "assistant" : each.kind),
      h("span", null, oneLine(each.label, 120)),
      h(
        "em",
        { class: "bar" },
        h("i", {
          class: `k-${each.kind}`,
          style: { width: `${Math.min(100, (100 * estimate) / whole)}%` },
        }),
      ),
      h(
        "span",
        { class: "figure" },
        `${formatBytes(each.bytes)} · ~${formatTokens(estimate)} · ${formatShare(estimate, whole)}`,
      ),
    ),
    item.unfolded
      ? h("pre", { class: "code" }, sanitize(text))
      : h("div", { class: "peek" }, oneLine(each.text, 240)),
    item.unfolded &&
      text.length < each.text.length &&
      h(
        "button",
        { class: "more", click: () => app.redraw(Object.assign(item, { all: true })) },
        `show all ${formatBytes(each.bytes)}`,
      ),
    item.unfolded &&
      each.item &&
      h(
        "button",
        {
          class: "more",
          click: () =>
            app.navigate({
              run: each.item.run.id,
              turn: each.item.turn,
              call: each.item.id ?? "",
              tab: "transcript",
            }),
        },
        "show in transcript",
      ),
  );
};

/** Return the items of the ledger's tab. */
const ledgerItems = (fold) => {
  const ledger = computeLedger(fold);
  if (!ledger.children)
    return [
      {
        pane: "empty",
        words: `No child ran: everything that was read is in one context, ${formatTokens(ledger.parent)} tokens at its largest.`,
      },
    ];
  const children = [...fold.runs.values()]
    .filter((run) => run.depth > 0)
    .sort((a, b) => b.read.bytes - a.read.bytes);
  const maximum = Math.max(1, children[0].read.bytes);
  return [
    { pane: "picture", fold, ledger, version: fold.last },
    ...children.map((run) => ({ pane: "share", run, maximum, version: run.version })),
  ];
};

const drawLedger = ({ fold, ledger }) =>
  h(
    "div",
    { class: "picture" },
    h(
      "div",
      { class: "claims" },
      drawClaim(
        "stayed",
        `~${formatTokens(ledger.read)}`,
        "stayed out of the parent",
        `${formatCount(ledger.readLines)} lines, ${formatBytes(ledger.readBytes)} read by ${ledger.children === 1 ? "1 child" : `${formatCount(ledger.children)} children`}`,
      ),
      drawClaim(
        "came",
        `~${formatTokens(ledger.returned)}`,
        "came back",
        `${formatCount(ledger.returnedLines)} lines, ${formatBytes(ledger.returnedBytes)} of reports`,
      ),
      ledger.parent > 0 &&
        drawClaim(
          "parent",
          formatTokens(ledger.parent),
          "in the parent's context",
          `without children about ${formatTokens(ledger.without)}: ${(ledger.without / Math.max(1, ledger.parent)).toFixed(1)}× as much`,
        ),
    ),
    computeGrowth(fold).length > 0 && drawGrowthChart(computeGrowth(fold)),
    h(
      "p",
      { class: "note" },
      `Figures with ~ are estimates (bytes / 4); a context's size is what its provider counted. The children's own model calls read and wrote ${formatTokens(ledger.childTokens)} tokens.`,
    ),
    h(
      "div",
      { class: "sharehead" },
      h("span", null, "child"),
      h("span", null, "read"),
      h("span", null, "came back"),
    ),
  );

const drawClaim = (kind, figure, words, more) =>
  h(
    "div",
    { class: `claim ${kind}` },
    h("b", null, figure),
    h("span", null, words),
    h("em", null, more),
  );

/** Return a chart of the parent's context over its model calls, with and without children. */
const drawGrowthChart = (growth) => {
  const [wide, high, left, right, low] = [640, 190, 44, isNarrow() ? 112 : 96, 22];
  const maximum = Math.max(1, ...growth.map((each) => Math.max(each.with, each.without))) * 1.06;
  const x = (n) => left + ((wide - left - right) * n) / growth.length;
  const y = (value) => (high - low) * (1 - value / maximum) + 4;
  const steps = (key) =>
    growth
      .map((each, n) => `L${x(n)},${y(each[key])} L${x(n + 1)},${y(each[key])}`)
      .join(" ")
      .slice(1);
  const back = growth
    .map((each, n) => [`L${x(n + 1)},${y(each.with)}`, `L${x(n)},${y(each.with)}`])
    .reverse()
    .flat()
    .join(" ");
  const end = growth.at(-1);
  const ticks = axisTicks(maximum);
  const gap = Math.abs(y(end.with) - y(end.without)) < 26;
  return svg(
    "svg",
    {
      class: "growth",
      viewBox: `0 0 ${wide} ${high}`,
      role: "img",
      "aria-label": `The parent's context: ${formatTokens(end.with)} tokens, without children about ${formatTokens(end.without)}`,
    },
    svg("defs", {}, drawHatch()),
    ...ticks.flatMap((value) => [
      svg("line", { class: "rule", x1: left, x2: wide - right, y1: y(value), y2: y(value) }),
      svgText(left - 6, y(value) + 3.5, formatAxisTokens(value), "tick end"),
    ]),
    svg("path", { class: "stayed", d: `M${steps("without")} ${back} Z` }),
    svg("path", { class: "stayedline", d: `M${steps("without")}` }),
    svg("path", {
      class: "kept",
      d: `M${x(0)},${y(0)} L${steps("with")} L${x(growth.length)},${y(0)} Z`,
    }),
    svg("path", { class: "keptline", d: `M${steps("with")}` }),
    svgText(
      wide - right + 8,
      y(end.without) + (gap ? -6 : 4),
      `~${formatTokens(end.without)}`,
      "big stayedword",
    ),
    svgText(wide - right + 8, y(end.without) + (gap ? 6 : 17), "without children", "tick"),
    svgText(
      wide - right + 8,
      Math.min(y(end.with) + (gap ? 20 : 0), high - low - 10),
      formatTokens(end.with),
      "big keptword",
    ),
    svgText(
      wide - right + 8,
      Math.min(y(end.with) + (gap ? 32 : 13), high - low + 3),
      "as it was",
      "tick",
    ),
    svgText(
      (left + wide - right) / 2,
      high - 4,
      `${plural(growth.length, "model call")} of the parent →`,
      "tick middle",
    ),
  );
};

/** Return three to six round numbers up to `maximum`. */
const axisTicks = (maximum) => {
  const power = 10 ** Math.floor(Math.log10(maximum / 3));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => maximum / each < 6.01);
  return Array.from({ length: Math.floor(maximum / step) }, (_, n) => (n + 1) * step);
};

const drawHatch = () =>
  svg(
    "pattern",
    {
      id: "mud",
      width: 6,
      height: 6,
      patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)",
    },
    svg("rect", { class: "mudground", width: 6, height: 6 }),
    svg("line", { class: "mudline", x1: 0, y1: 0, x2: 0, y2: 6 }),
  );

const svgText = (x, y, words, kind) => svg("text", { x, y, class: kind }, words);

const drawChildShare = ({ run, maximum }) => {
  const factor = run.back.bytes ? run.read.bytes / run.back.bytes : 0;
  return h(
    "button",
    {
      class: "share",
      click: () => app.navigate({ run: run.id, turn: 0, call: "", tab: "transcript" }),
    },
    h(
      "span",
      { class: "who" },
      drawStateDot(run),
      h("b", { style: { "--hue": String(agentHue(run.agent)) } }, run.agent),
      " ",
      oneLine(run.description || run.prompt, 80),
    ),
    h(
      "span",
      { class: "bars" },
      h("i", { class: "stayed", style: { width: `${(100 * run.read.bytes) / maximum}%` } }),
      h("i", { class: "came", style: { width: `${(100 * run.back.bytes) / maximum}%` } }),
    ),
    h("span", { class: "figure" }, `~${formatTokens(run.read.bytes / BYTES_PER_TOKEN)}`),
    h(
      "span",
      { class: "figure came" },
      `~${formatTokens(run.back.bytes / BYTES_PER_TOKEN)}`,
      factor >= 2 && h("em", null, `${factor.toFixed(factor < 10 ? 1 : 0)}× less`),
    ),
  );
};

const PANES = {
  gauge: drawGauge,
  block: drawContextBlock,
  picture: drawLedger,
  share: drawChildShare,
  empty: ({ words }) => h("div", { class: "empty" }, h("p", null, words)),
};
const PANE_HEIGHTS = { gauge: 210, block: 52, picture: 420, share: 34, empty: 120 };
