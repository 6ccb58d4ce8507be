// Two tabs no transcript can give: what the model saw at a step, and what stayed outside of the parent's context.
"use strict";

const KINDS = {
  system: "instructions",
  tools: "tools",
  prompt: "prompts",
  told: "words of the engine",
  thinking: "thinking",
  answer: "own words",
  call: "calls",
  result: "tool results",
  report: "children's reports",
  rest: "not in the record",
};

/** Items of the tab "context at this step". */
const contextItems = (fold, run) => {
  const turns = run.items.filter((item) => item.kind === "turn");
  if (!turns.length) return [{ pane: "empty", words: "This run has not asked its model yet." }];
  const step = turns.find((item) => item.turn === app.at.turn) ?? turns.at(-1);
  const blocks = contextAt(fold, run, step.turn);
  const sum = blocks.reduce((all, each) => all + each.bytes, 0);
  const estimate = sum / BYTES_PER_TOKEN;
  const counted = step.usage?.input ?? 0;
  const whole = Math.max(estimate, counted);
  return [{ pane: "gauge", run, step, turns, blocks, estimate, counted, whole }, ...blocks.map((each) => ({ pane: "block", run, block: each, whole, version: 0 }))];
};

const gauge = ({ run, step, turns, blocks, estimate, counted, whole }) => {
  const sums = new Map();
  for (const each of blocks) sums.set(each.kind, (sums.get(each.kind) ?? 0) + each.bytes / BYTES_PER_TOKEN);
  if (counted > estimate) sums.set("rest", counted - estimate);
  const parts = [...sums].filter(([, amount]) => amount > 0);
  const at = turns.indexOf(step);
  const move = (by) => app.go({ run: run.id, turn: turns[at + by].turn, call: "" }, { quiet: true });
  return h(
    "div",
    { class: "gauge" },
    h(
      "div",
      { class: "stepper" },
      h("button", { disabled: at === 0, "aria-label": "Turn before", click: () => move(-1) }, "‹"),
      h("b", null, `turn ${step.turn}`),
      h("span", null, `of ${turns.at(-1).turn}`),
      h("button", { disabled: at === turns.length - 1, "aria-label": "Next turn", click: () => move(1) }, "›"),
      h("span", { class: "sum" }, counted ? [h("b", null, tokens(counted)), " tokens counted by the provider"] : [h("b", null, `~${tokens(estimate)}`), " tokens, estimated"]),
    ),
    sparkline(turns, step, (turn) => app.go({ run: run.id, turn, call: "" }, { quiet: true })),
    h("div", { class: "stack", role: "img", "aria-label": "Shares of the context" }, parts.map(([kind, amount]) => h("i", { class: `k-${kind}`, title: `${KINDS[kind]}: ~${tokens(amount)} tokens`, style: { "flex-grow": String(amount / whole) } }))),
    h("div", { class: "legend" }, parts.map(([kind, amount]) => h("span", null, h("i", { class: `k-${kind}` }), KINDS[kind], h("b", null, tokens(amount)), h("em", null, share(amount, whole))))),
    sums.has("rest") && h("p", { class: "note" }, "Sizes are estimates (bytes / 3.5). What the provider counted beyond them is what the record does not keep: the tools' schemas, context files and environment of the system prompt, the wire's own words."),
  );
};

/** Tokens of the prompt at each turn, as bars to click. */
const sparkline = (turns, step, choose) => {
  const most = Math.max(1, ...turns.map((each) => each.usage?.input ?? 0));
  const few = turns.length > 120 ? turns.filter((each, n) => each === step || n % Math.ceil(turns.length / 120) === 0) : turns;
  return h("div", { class: "spark" }, few.map((each) => h("button", { class: each === step ? "here" : "", title: `turn ${each.turn}: ${tokens(each.usage?.input ?? 0)} tokens`, "aria-label": `turn ${each.turn}`, click: () => choose(each.turn) }, h("i", { style: { height: `${Math.max(3, (100 * (each.usage?.input ?? 0)) / most)}%` } }))));
};

const contextBlock = (item) => {
  const { block: each, whole } = item;
  const estimate = each.bytes / BYTES_PER_TOKEN;
  const text = each.text.length > 20000 && !item.all ? each.text.slice(0, 20000) : each.text;
  return h(
    "div",
    { class: `block${item.unfolded ? " open" : ""}${each.past ? " past" : ""}` },
    h(
      "button",
      { class: "blockhead", "aria-expanded": String(Boolean(item.unfolded)), click: () => app.redraw(Object.assign(item, { unfolded: !item.unfolded })) },
      h("i", { class: `k-${each.kind}` }),
      h("b", null, each.kind === "answer" ? "assistant" : each.kind),
      h("span", null, oneLine(each.label, 120)),
      h("em", { class: "bar" }, h("i", { class: `k-${each.kind}`, style: { width: `${Math.min(100, (100 * estimate) / whole)}%` } })),
      h("span", { class: "figure" }, `${bytes(each.bytes)} · ~${tokens(estimate)} · ${share(estimate, whole)}`),
    ),
    item.unfolded ? h("pre", { class: "code" }, clean(text)) : h("div", { class: "peek" }, oneLine(each.text, 240)),
    item.unfolded && text.length < each.text.length && h("button", { class: "more", click: () => app.redraw(Object.assign(item, { all: true })) }, `show all ${bytes(each.bytes)}`),
    item.unfolded && each.item && h("button", { class: "more", click: () => app.go({ run: each.item.run.id, turn: each.item.turn, call: each.item.id ?? "", tab: "transcript" }) }, "see it in the transcript"),
  );
};

/** Items of the tab "what came back, what stayed". */
const ledgerItems = (fold) => {
  const book = ledgerOf(fold);
  if (!book.children) return [{ pane: "empty", words: `No children ran: all that was read is in the one context, ${tokens(book.parent)} tokens at its largest.` }];
  const children = [...fold.runs.values()].filter((run) => run.depth > 0).sort((a, b) => b.taken.bytes - a.taken.bytes);
  const most = Math.max(1, children[0].taken.bytes);
  return [{ pane: "picture", fold, book, version: fold.last }, ...children.map((run) => ({ pane: "share", run, most, version: run.version }))];
};

const picture = ({ fold, book }) =>
  h(
    "div",
    { class: "picture" },
    h(
      "div",
      { class: "claims" },
      claim("stayed", `~${tokens(book.taken)}`, "stayed outside", `${grouped(book.takenLines)} lines, ${bytes(book.takenBytes)} read by ${book.children === 1 ? "1 child" : `${grouped(book.children)} children`}`),
      claim("came", `~${tokens(book.returned)}`, "came back", `${grouped(book.returnedLines)} lines, ${bytes(book.returnedBytes)} of reports`),
      book.parent > 0 && claim("parent", tokens(book.parent), "in the parent's context", `without children about ${tokens(book.without)}: ${(book.without / Math.max(1, book.parent)).toFixed(1)}× as much`),
    ),
    growthOf(fold).length > 0 && chart(growthOf(fold)),
    h("p", { class: "note" }, `Figures with ~ are estimates (bytes / 3.5); a context's size is what its provider counted. The children's own model calls read and wrote ${tokens(book.childTokens)} tokens.`),
    h("div", { class: "sharehead" }, h("span", null, "child"), h("span", null, "took in"), h("span", null, "came back")),
  );

const claim = (kind, figure, words, more) => h("div", { class: `claim ${kind}` }, h("b", null, figure), h("span", null, words), h("em", null, more));

/** Growth of the parent's context over its model calls: as it was, and as it would have been. */
const chart = (growth) => {
  const [wide, high, left, right, low] = [640, 190, 44, narrow() ? 112 : 96, 22];
  const most = Math.max(1, ...growth.map((each) => Math.max(each.with, each.without))) * 1.06;
  const x = (n) => left + ((wide - left - right) * n) / growth.length;
  const y = (value) => (high - low) * (1 - value / most) + 4;
  const steps = (key) => growth.map((each, n) => `L${x(n)},${y(each[key])} L${x(n + 1)},${y(each[key])}`).join(" ").slice(1);
  const back = growth.map((each, n) => [`L${x(n + 1)},${y(each.with)}`, `L${x(n)},${y(each.with)}`]).reverse().flat().join(" ");
  const end = growth.at(-1);
  const ticks = round(most);
  const gap = Math.abs(y(end.with) - y(end.without)) < 26;
  return s(
    "svg",
    { class: "growth", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `The parent's context: ${tokens(end.with)} tokens, without children about ${tokens(end.without)}` },
    s("defs", {}, hatch()),
    ...ticks.flatMap((value) => [s("line", { class: "rule", x1: left, x2: wide - right, y1: y(value), y2: y(value) }), text(left - 6, y(value) + 3.5, roundTokens(value), "tick end")]),
    s("path", { class: "stayed", d: `M${steps("without")} ${back} Z` }),
    s("path", { class: "stayedline", d: `M${steps("without")}` }),
    s("path", { class: "kept", d: `M${x(0)},${y(0)} L${steps("with")} L${x(growth.length)},${y(0)} Z` }),
    s("path", { class: "keptline", d: `M${steps("with")}` }),
    text(wide - right + 8, y(end.without) + (gap ? -6 : 4), `~${tokens(end.without)}`, "big stayedword"),
    text(wide - right + 8, y(end.without) + (gap ? 6 : 17), "without children", "tick"),
    text(wide - right + 8, Math.min(y(end.with) + (gap ? 20 : 0), high - low - 10), tokens(end.with), "big keptword"),
    text(wide - right + 8, Math.min(y(end.with) + (gap ? 32 : 13), high - low + 3), "as it was", "tick"),
    text((left + wide - right) / 2, high - 4, `${plural(growth.length, "model call")} of the parent →`, "tick middle"),
  );
};

/** Three to six round figures up to the most. */
const round = (most) => {
  const power = 10 ** Math.floor(Math.log10(most / 3));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => most / each < 6.01);
  return Array.from({ length: Math.floor(most / step) }, (_, n) => (n + 1) * step);
};

const hatch = () =>
  s("pattern", { id: "mud", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { class: "mudground", width: 6, height: 6 }), s("line", { class: "mudline", x1: 0, y1: 0, x2: 0, y2: 6 }));

const text = (x, y, words, kind) => s("text", { x, y, class: kind }, words);

const shareRow = ({ run, most }) => {
  const factor = run.back.bytes ? run.taken.bytes / run.back.bytes : 0;
  return h(
    "button",
    { class: "share", click: () => app.go({ run: run.id, turn: 0, call: "", tab: "transcript" }) },
    h("span", { class: "who" }, mark(run), h("b", { style: { "--hue": String(hueOf(run.agent)) } }, run.agent), " ", oneLine(run.description || run.prompt, 80)),
    h("span", { class: "bars" }, h("i", { class: "stayed", style: { width: `${(100 * run.taken.bytes) / most}%` } }), h("i", { class: "came", style: { width: `${(100 * run.back.bytes) / most}%` } })),
    h("span", { class: "figure" }, `~${tokens(run.taken.bytes / BYTES_PER_TOKEN)}`),
    h("span", { class: "figure came" }, `~${tokens(run.back.bytes / BYTES_PER_TOKEN)}`, factor >= 2 && h("em", null, `${factor.toFixed(factor < 10 ? 1 : 0)}× less`)),
  );
};

const PANES = { gauge, block: contextBlock, picture, share: shareRow, empty: ({ words }) => h("div", { class: "empty" }, h("p", null, words)) };
const PANE_GUESSES = { gauge: 210, block: 52, picture: 420, share: 34, empty: 120 };
