// How each tool's calls look: a change as a diff, a command as a terminal, a list as a list, a child as a card.
"use strict";

const SHOWN = 16; // lines of a block until it is opened

/** Lines of text in a box; long ones are folded, and `item` remembers whether it was opened. */
const box = (item, part, text, { kind = "code", line = (each) => each } = {}) => {
  const lines = clean(text).replace(/\n$/, "").split("\n");
  const open = item.opened?.has(part);
  const shown = open || lines.length <= SHOWN + 4 ? lines : lines.slice(0, SHOWN);
  return [
    h("pre", { class: kind, tabindex: shown.length > 40 ? "0" : null }, shown.flatMap((each, n) => [n ? "\n" : "", line(each, n)])),
    more(item, part, lines.length, shown.length, open),
  ];
};

const more = (item, part, all, shown, open) => {
  if (all <= SHOWN + 4) return null;
  const toggle = () => {
    item.opened ??= new Set();
    if (!item.opened.delete(part)) item.opened.add(part);
    app.redraw(item);
  };
  return h("button", { class: "more", click: toggle }, open ? "show less" : `show ${plural(all - shown, "more line")}`);
};

const numbered = (line) => {
  const found = /^(\s*\d+)\t(.*)$/.exec(line);
  return found ? [h("span", { class: "no" }, found[1].padStart(5)), found[2]] : line;
};

/** Lines that went and lines that came, in order: [sign, line]. */
const diff = (before, after) => {
  if (before.endsWith("\n") && after.endsWith("\n")) [before, after] = [before.slice(0, -1), after.slice(0, -1)];
  const a = before === "" ? [] : before.split("\n");
  const b = after === "" ? [] : after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const middle = between(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return [...a.slice(0, head).map((line) => [" ", line]), ...middle, ...a.slice(a.length - tail).map((line) => [" ", line])];
};

/** The longest common lines stay; without room to compare, everything goes and everything comes. */
const between = (a, b) => {
  if (a.length * b.length > 250000) return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  const wide = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * wide + j] = a[i] === b[j] ? longest[(i + 1) * wide + j + 1] + 1 : Math.max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push([" ", a[i]]);
      i++;
      j++;
    } else if (i < a.length && (j >= b.length || longest[(i + 1) * wide + j] >= longest[i * wide + j + 1])) out.push(["-", a[i++]]);
    else out.push(["+", b[j++]]);
  }
  return out;
};

const SIGNS = { "+": "came", "-": "went", " ": "kept" };
const changes = (item, part, pairs) => {
  const open = item.opened?.has(part);
  const shown = open || pairs.length <= SHOWN + 4 ? pairs : pairs.slice(0, SHOWN);
  return [
    h("div", { class: "diff" }, shown.map(([sign, line]) => h("div", { class: SIGNS[sign] }, h("span", { class: "sign" }, sign), clean(line) || " "))),
    more(item, part, pairs.length, shown.length, open),
  ];
};

const said = (item) => (item.result ? box(item, "result", item.result.text, { kind: item.result.error ? "code error" : "code" }) : null);
const argument = (item, ...names) => {
  for (const name of names) if (typeof item.call.arguments?.[name] === "string") return item.call.arguments[name];
  return "";
};

const TOOLS = {
  bash: (item) => {
    const out = item.result ? item.result.text : "";
    return h(
      "div",
      { class: `terminal${item.result?.error ? " error" : ""}` },
      h("div", { class: "command" }, h("span", { class: "dollar" }, "$"), clean(argument(item, "command", "cmd", "script"))),
      out ? box(item, "result", out, { kind: "output" }) : null,
    );
  },

  edit: (item) => {
    const given = item.call.arguments ?? {};
    const edits = Array.isArray(given.edits) ? given.edits : [given];
    const pairs = edits.flatMap((each) => diff(String(each.old_string ?? each.old_text ?? ""), String(each.new_string ?? each.new_text ?? "")));
    return [changes(item, "diff", pairs), item.result?.error ? said(item) : null];
  },

  write: (item) => [
    changes(item, "diff", argument(item, "content", "text").replace(/\n$/, "").split("\n").map((line) => ["+", line])),
    item.result?.error ? said(item) : null,
  ],

  read: (item) => (item.result ? box(item, "result", item.result.text, { kind: item.result.error ? "code error" : "code", line: numbered }) : null),

  todo: (item) => {
    const todos = item.call.arguments?.todos ?? item.call.arguments?.items ?? item.call.arguments?.plan;
    if (!Array.isArray(todos)) return generic(item);
    const rows = todos.map((each) => {
      const status = String(each?.status ?? "pending");
      const mark = status === "completed" ? "✓" : status === "in_progress" ? "▸" : "";
      return h("li", { class: status }, h("i", null, mark), h("span", null, oneLine(each?.content ?? each?.text ?? each?.step ?? "", 300)));
    });
    return [h("ul", { class: "todos" }, rows), item.result?.error ? said(item) : null];
  },

  task: (item) => {
    const child = item.child;
    const figures = child ? runFigures(child, app.now()) : [];
    return h(
      "div",
      { class: "child" },
      h("div", { class: "brief" }, h("h4", null, "went in"), box(item, "brief", argument(item, "prompt", "message"), { kind: "words" })),
      child &&
        h(
          "button",
          { class: "goto", click: () => app.go({ run: child.id, turn: 0, call: "" }) },
          mark(child),
          h("b", { style: { "--hue": String(hueOf(child.agent)) } }, child.agent),
          h("span", null, oneLine(child.description)),
          h("em", null, figures.join(" · ")),
          h("u", null, "open →"),
        ),
      item.result && h("div", { class: "back" }, h("h4", null, `came back · ${bytes(size(item.result.text))} · ~${tokens(size(item.result.text) / BYTES_PER_TOKEN)} tokens`), box(item, "result", item.result.text, { kind: "words" })),
    );
  },
};

const generic = (item) => {
  const given = Object.entries(item.call.arguments ?? {});
  const simple = ([, value]) => typeof value !== "string" || (value.length < 160 && !value.includes("\n"));
  return [
    given.length > 0 &&
      h("dl", { class: "given" }, given.map((pair) => [h("dt", null, oneLine(pair[0])), h("dd", null, simple(pair) ? oneLine(typeof pair[1] === "string" ? pair[1] : JSON.stringify(pair[1]), 400) : box(item, `given ${pair[0]}`, pair[1]))])),
    item.call.malformed ? [h("h4", null, "not a JSON object"), box(item, "malformed", item.call.malformed)] : null,
    said(item),
  ];
};

/** The head of a call: how it went, what it is, how long it took. */
const callHead = (item) => {
  const tone = item.refused ? "refused" : item.result?.error ? "failed" : item.result ? "ok" : item.run.report || !app.live ? "lost" : "busy";
  const word = { refused: "refused", failed: "error", ok: "", lost: item.started ? "no result" : "not begun", busy: item.started ? "running" : "waiting" }[tone];
  return h(
    "div",
    { class: "callhead" },
    h("i", { class: `dot ${tone}` }),
    h("b", null, item.call.name),
    h("span", { class: "telling" }, telling(item.call)),
    word && h("span", { class: `word ${tone}` }, word),
    h("span", { class: "figure" }, item.result ? [`${bytes(size(item.result.text))}`, " · ", seconds(item.seconds)] : ""),
  );
};

const callCard = (item) =>
  h(
    "article",
    { class: `call tool-${item.tool in TOOLS ? item.tool : "other"}` },
    callHead(item),
    h("div", { class: "callbody" }, item.call.malformed ? generic(item) : (TOOLS[item.tool] ?? generic)(item)),
    item.result?.spill && h("div", { class: "aside" }, `the whole is in ${oneLine(item.result.spill)}`),
  );
