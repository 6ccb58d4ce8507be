// The tab with the ledger: the context that children saved.
"use strict";

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
  // Reports of a small project are often longer than what was read.
  const maximum = children.reduce((all, { read, back }) => Math.max(all, read.bytes, back.bytes), 1);
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
          describeWithout(ledger),
        ),
    ),
    computeGrowth(fold).length > 0 && drawGrowthChart(computeGrowth(fold)),
    ledger.cached > 0 && h("p", { class: "note" }, describeCache(ledger)),
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

const describeCache = ({ cached, sent, misses }) => {
  const share = `${formatShare(cached, sent)} of the prompts (${formatTokens(sent)} tokens) came from the providers' caches`;
  const reasons = Object.entries(misses).map(([name, n]) => `${formatTokens(n)} ${name}`);
  return reasons.length ? `${share}; missed: ${reasons.join(", ")}.` : `${share}.`;
};

/** Return how much the parent's context would have had without children. */
const describeWithout = ({ parent, without }) => {
  const about = `without children about ${formatTokens(without)}`;
  return without > parent
    ? `${about}: ${(without / Math.max(1, parent)).toFixed(1)}× as much`
    : `${about}: ${formatTokens(parent - without)} less`;
};

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
  const wide = Math.max(300, Math.min(860, $("body").clientWidth - 44)); // pixels of the pane
  const [high, left, right, low] = [Math.round(100 + wide * 0.18), 36, 110, 22];
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
    ...drawEndLabels(end, { x: wide - right + 8, y, lowest: high - low - 10 }),
    svgText(
      (left + wide - right) / 2,
      high - 4,
      `${plural(growth.length, "model call")} of the parent →`,
      "tick middle",
    ),
  );
};

const LABEL_HEIGHT = 36; // pixels of a figure and the words below it

/** Return the labels of both curves at their end, the larger value above, never over each other. */
const drawEndLabels = (end, { x, y, lowest }) => {
  const labels = [
    { value: end.without, figure: `~${formatTokens(end.without)}`, words: "without children", kind: "stayedword" },
    { value: end.with, figure: formatTokens(end.with), words: "as it was", kind: "keptword" },
  ].sort((a, b) => b.value - a.value);
  const [above, below] = labels.map(({ value }) => y(value) + 4);
  const missing = Math.max(0, LABEL_HEIGHT - (below - above)) / 2;
  const first = Math.max(12, Math.min(above - missing, lowest - LABEL_HEIGHT));
  const places = [first, Math.max(first + LABEL_HEIGHT, Math.min(below + missing, lowest))];
  return labels.flatMap(({ figure, words, kind }, n) => [
    svgText(x, places[n], figure, `big ${kind}`),
    svgText(x, places[n] + 15, words, "tick"),
  ]);
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
      h("b", { style: { "--hue": String(agentHue(run.agent)) } }, runLabel(run)),
      " ",
      oneLine(distinctTitle(app.fold, run), 120),
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
