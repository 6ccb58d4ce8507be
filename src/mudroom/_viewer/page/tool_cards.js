// Cards of tool calls: edits as a diff, commands as a terminal, todos as a list, child runs as a
// link.
"use strict";

const FOLDED_LINES = 16; // lines of a folded text

/** Return a box of text lines. A long text is folded; `item` remembers whether `part` is open. */
const drawTextBox = (item, part, text, { kind = "code", line = (each) => each } = {}) => {
  const lines = sanitize(text).replace(/\n$/, "").split("\n");
  const open = item.opened?.has(part);
  const shown = open || lines.length <= FOLDED_LINES + 4 ? lines : lines.slice(0, FOLDED_LINES);
  return [
    h(
      "pre",
      { class: kind, tabindex: shown.length > 40 ? "0" : null },
      shown.flatMap((each, n) => [n ? "\n" : "", line(each, n)]),
    ),
    drawMoreButton(item, part, lines.length, shown.length, open),
  ];
};

const drawMoreButton = (item, part, all, shown, open) => {
  if (all === shown && !open) return null;
  const toggle = () => {
    item.opened ??= new Set();
    if (!item.opened.delete(part)) item.opened.add(part);
    app.redraw(item);
  };
  return h(
    "button",
    { class: "more", click: toggle },
    open ? "show less" : `show ${plural(all - shown, "more line")}`,
  );
};

const drawNumberedLine = (line) => {
  const found = /^(\s*\d+)\t(.*)$/.exec(line);
  return found ? [h("span", { class: "no" }, found[1].padStart(5)), found[2]] : line;
};

/** Return removed, added and unchanged lines in order, as [sign, line]. */
const computeDiff = (before, after) => {
  if (before.endsWith("\n") && after.endsWith("\n"))
    [before, after] = [before.slice(0, -1), after.slice(0, -1)];
  const a = before === "" ? [] : before.split("\n");
  const b = after === "" ? [] : after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (
    tail < a.length - head &&
    tail < b.length - head &&
    a[a.length - 1 - tail] === b[b.length - 1 - tail]
  )
    tail++;
  const middle = computeMiddleDiff(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return [
    ...a.slice(0, head).map((line) => [" ", line]),
    ...middle,
    ...a.slice(a.length - tail).map((line) => [" ", line]),
  ];
};

/** Keep the longest common lines. Very large changes are not compared: all lines are replaced. */
const computeMiddleDiff = (a, b) => {
  if (a.length * b.length > 250000)
    return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  const wide = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * wide + j] =
        a[i] === b[j]
          ? longest[(i + 1) * wide + j + 1] + 1
          : Math.max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push([" ", a[i]]);
      i++;
      j++;
    } else if (
      i < a.length &&
      (j >= b.length || longest[(i + 1) * wide + j] >= longest[i * wide + j + 1])
    )
      out.push(["-", a[i++]]);
    else out.push(["+", b[j++]]);
  }
  return out;
};

const DIFF_CLASSES = { "+": "came", "-": "went", " ": "kept" };
const drawDiffLines = (pairs) =>
  h(
    "div",
    { class: "diff" },
    pairs.map(([sign, line]) =>
      h(
        "div",
        { class: DIFF_CLASSES[sign] },
        h("span", { class: "sign" }, sign),
        sanitize(line) || " ",
      ),
    ),
  );

const drawDiff = (item, part, pairs) => {
  const open = item.opened?.has(part);
  const shown = open || pairs.length <= FOLDED_LINES + 4 ? pairs : pairs.slice(0, FOLDED_LINES);
  return [drawDiffLines(shown), drawMoreButton(item, part, pairs.length, shown.length, open)];
};

const drawResult = (item) =>
  item.result
    ? drawTextBox(item, "result", item.result.text, {
        kind: item.result.error ? "code error" : "code",
      })
    : null;
const textArgument = (item, name) => {
  const value = item.call.arguments?.[name];
  return typeof value === "string" ? value : "";
};

const VIEW_RENDERERS = {
  command: (item) => {
    const out = item.result ? item.result.text : "";
    return h(
      "div",
      { class: `terminal${item.result?.error ? " error" : ""}` },
      h(
        "div",
        { class: "command" },
        h("span", { class: "dollar" }, "$"),
        sanitize(textArgument(item, "command")),
        drawCopyButton(() => textArgument(item, "command"), "the command"),
      ),
      out ? drawTextBox(item, "result", out, { kind: "output" }) : null,
    );
  },

  diff: (item) => {
    const args = item.call.arguments ?? {};
    const edits = Array.isArray(args.edits) ? args.edits : [args];
    const pairs = edits.flatMap((each) =>
      computeDiff(String(each.old_string ?? ""), String(each.new_string ?? "")),
    );
    return [drawDiff(item, "diff", pairs), item.result?.error ? drawResult(item) : null];
  },

  content: (item) => [
    drawDiff(
      item,
      "diff",
      textArgument(item, "content")
        .replace(/\n$/, "")
        .split("\n")
        .map((line) => ["+", line]),
    ),
    item.result?.error ? drawResult(item) : null,
  ],

  lines: (item) =>
    item.result
      ? drawTextBox(item, "result", item.result.text, {
          kind: item.result.error ? "code error" : "code",
          line: drawNumberedLine,
        })
      : null,

  todos: (item) => {
    const todos = item.call.arguments?.todos;
    if (!Array.isArray(todos)) return drawArguments(item);
    const rows = todos.map((each) => {
      const status = String(each?.status ?? "pending");
      const mark = status === "completed" ? "✓" : status === "in_progress" ? "▸" : "";
      return h(
        "li",
        { class: status },
        h("i", null, mark),
        h("span", null, oneLine(each?.content ?? each?.text ?? each?.step ?? "", 300)),
      );
    });
    return [h("ul", { class: "todos" }, rows), item.result?.error ? drawResult(item) : null];
  },

  run: (item) => {
    const child = item.child;
    const figures = child ? runFigures(child, app.now()) : [];
    const background = isInBackground(item);
    const report = item.result?.text ?? "";
    return h(
      "div",
      { class: "child" },
      h(
        "div",
        { class: "brief" },
        h("h3", null, "prompt"),
        drawTextBox(item, "brief", textArgument(item, "prompt"), { kind: "words" }),
      ),
      child &&
        h(
          "button",
          { class: "goto", click: () => app.navigate({ run: child.id, turn: 0, call: "" }) },
          drawStateDot(child),
          h("b", { style: { "--hue": String(agentHue(child.agent)) } }, runName(child)),
          h("span", null, oneLine(child.description)),
          h("em", null, figures.join(" · ")),
          h("u", null, "open →"),
        ),
      background &&
        h("p", { class: "aside" }, "in the background: its report arrives as a message"),
      item.result &&
        !background &&
        h(
          "div",
          { class: "back" },
          h(
            "div",
            { class: "boxhead" },
            h(
              "h3",
              null,
              `report · ${formatBytes(byteLength(report))} · ~${formatTokens(byteLength(report) / BYTES_PER_TOKEN)} tokens`,
            ),
            drawCopyButton(() => report, "the report"),
          ),
          drawChildReport(item, item.child, report),
        ),
    );
  },
};

/**
 * Return the words of a child, and in a frame what the engine knows: the child cannot write there.
 * Work that went back to the child has further reports; then the whole result is shown.
 */
const drawChildReport = (item, child, text) => {
  const { report, merge } = child ?? {};
  if (!report || merge?.returned) return drawMarkdownBox(item, "result", text, FOLDED_LINES);
  const calls = Object.keys(report.calls ?? {}).length;
  return [
    report.error && h("div", { class: "broken" }, sanitize(report.error)),
    drawMarkdownBox(item, "result", report.text?.trim() || "(no summary)", FOLDED_LINES),
    h(
      "section",
      { class: "facts" },
      h("h3", null, "seen by mudroom"),
      !calls && h("p", null, "It called no tool: nothing it says was looked up."),
      drawReportFacts(item, report),
      merge && h("p", null, sanitize(merge.text)),
    ),
  ];
};

const drawArguments = (item) => {
  const args = Object.entries(item.call.arguments ?? {});
  const simple = ([, value]) =>
    typeof value !== "string" || (value.length < 160 && !value.includes("\n"));
  return [
    args.length > 0 &&
      h(
        "dl",
        { class: "arguments" },
        args.map((pair) => [
          h("dt", null, oneLine(pair[0])),
          h(
            "dd",
            null,
            simple(pair)
              ? oneLine(typeof pair[1] === "string" ? pair[1] : JSON.stringify(pair[1]), 400)
              : drawTextBox(item, `argument ${pair[0]}`, pair[1]),
          ),
        ]),
      ),
    item.call.malformed
      ? [h("h3", null, "not a JSON object"), drawTextBox(item, "malformed", item.call.malformed)]
      : null,
    drawResult(item),
  ];
};

const IMAGE_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** Return the pictures of a result; a placeholder for a type that is not known to be safe. */
const drawImages = (images) =>
  h(
    "div",
    { class: "images" },
    images.map((image) => {
      const placeholder = imagePlaceholder(image);
      if (!IMAGE_TYPES.has(image.media_type)) return h("p", null, placeholder);
      const source = `data:${image.media_type};base64,${image.data}`;
      // Width and height reserve the space, so that the list is measured before the image loads.
      return h("img", {
        src: source,
        alt: placeholder,
        title: placeholder,
        width: image.width || null,
        height: image.height || null,
      });
    }),
  );

/** Return the header of a call: its outcome, title and duration. */
const drawCallHead = (item) => {
  const tone = item.refused
    ? "refused"
    : item.result?.error
      ? "failed"
      : item.result
        ? "ok"
        : item.run.report || !app.live
          ? "lost"
          : "busy";
  const word = {
    refused: "refused",
    failed: "error",
    ok: "",
    lost: item.started ? "no result" : "not started",
    busy: item.started ? "running" : "waiting",
  }[tone];
  return h(
    "div",
    { class: "callhead" },
    h("i", { class: `dot ${tone}` }),
    h("b", null, item.call.name),
    h("span", { class: "call-title" }, callTitle(item)),
    word && h("span", { class: `word ${tone}` }, word),
    h(
      "span",
      { class: "figure" },
      item.result
        ? [`${formatBytes(byteLength(item.result.text))}`, " · ", formatSeconds(item.seconds)]
        : "",
    ),
    item.result?.text &&
      !startsRun(item) &&
      drawCopyButton(() => item.result.text, "the result"),
  );
};

const drawCall = (item) =>
  h(
    "article",
    { class: `call view-${item.view || "other"}` },
    drawCallHead(item),
    item.decisions && h("div", { class: "decisions" }, drawDecisions(item)),
    h(
      "div",
      { class: "callbody" },
      item.call.malformed
        ? drawArguments(item)
        : (VIEW_RENDERERS[item.view] ?? drawArguments)(item),
    ),
    item.result?.images?.length > 0 && drawImages(item.result.images),
    item.result?.context && h("div", { class: "decisions" }, drawHookContext(item.result)),
    item.result?.spill &&
      h("div", { class: "aside" }, `full output: ${oneLine(item.result.spill)}`),
  );
