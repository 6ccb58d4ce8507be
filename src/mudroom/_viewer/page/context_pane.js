// The tab with the context of a model call.
"use strict";

const BLOCK_KINDS = {
  system: "instructions",
  files: "context files",
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

/** Return the items of the tab "Context". */
const contextItems = (fold, run) => {
  const turns = run.items.filter((item) => item.kind === "turn");
  if (!turns.length) return [{ pane: "empty", words: "This run has not called its model yet." }];
  const step = turns.findLast((item) => item.turn === app.selection.turn) ?? turns.at(-1);
  const blocks = contextBlocks(fold, run, step.turn);
  const bytes = blocks.reduce((sum, each) => sum + each.bytes, 0);
  const counted = step.usage?.input ?? 0;
  const isComplete = resolveHead(fold, step.head) !== null;
  const estimate = bytes / BYTES_PER_TOKEN;
  const whole = isComplete && counted ? counted : Math.max(estimate, counted);
  // Where the record has the whole request, the parts share the tokens that the provider counted.
  const perByte = isComplete && bytes ? whole / bytes : 1 / BYTES_PER_TOKEN;
  const parts = blocks.map((each) => ({ ...each, tokens: each.bytes * perByte }));
  return [
    { pane: "gauge", run, step, turns, parts, counted, whole, isComplete },
    ...parts.map((each) => ({ pane: "block", run, block: each, whole, version: 0 })),
  ];
};

/** Return kind of block -> tokens. */
const sumByKind = (blocks) => {
  const sums = new Map();
  for (const each of blocks) sums.set(each.kind, (sums.get(each.kind) ?? 0) + each.tokens);
  return [...sums].filter(([, amount]) => amount > 0);
};

/** Return a bar of shares and its legend. `whole`: tokens of the full width. */
const drawShares = (sums, whole, words) => [
  h(
    "div",
    { class: "stack", role: "img", "aria-label": words },
    sums.map(([kind, amount]) =>
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
    sums.map(([kind, amount]) =>
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
];

const drawGauge = ({ run, step, turns, parts, counted, whole, isComplete }) => {
  const sums = sumByKind(parts);
  const known = sums.reduce((sum, [, amount]) => sum + amount, 0);
  if (whole - known > 1) sums.push(["rest", whole - known]);
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
          : [h("b", null, `~${formatTokens(whole)}`), " tokens, estimated"],
      ),
    ),
    drawSparkline(turns, step, (turn) =>
      app.navigate({ run: run.id, turn, call: "" }, { quiet: true }),
    ),
    drawShares(sums, whole, "Shares of the context"),
    h(
      "p",
      { class: "note" },
      isComplete
        ? "This is the whole request. Its parts share the counted tokens by their size in bytes."
        : "This record has no tool schemas and no context files: an older version or another program wrote it. Sizes of parts are estimates (bytes / 4).",
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
        h("i", {
          style: { height: `${Math.max(3, (100 * (each.usage?.input ?? 0)) / maximum)}%` },
        }),
      ),
    ),
  );
};

const drawContextBlock = (item) => {
  const { block: each, whole } = item;
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
          style: { width: `${Math.min(100, (100 * each.tokens) / whole)}%` },
        }),
      ),
      h(
        "span",
        { class: "figure" },
        `${formatBytes(each.bytes)} · ~${formatTokens(each.tokens)} · ${formatShare(each.tokens, whole)}`,
      ),
    ),
    item.unfolded && drawCopyButton(() => each.text, "this part"),
    item.unfolded
      ? h("pre", { class: "code", tabindex: "0" }, sanitize(text))
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
