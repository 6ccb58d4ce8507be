// Markdown as models write it, as elements: headings, lists, tables, quotes, code, links. HTML stays
// text, and nothing is loaded.
"use strict";

const MAX_NESTING = 8; // lists and quotes inside each other; deeper ones stay text
const MAX_STYLED = 5000; // characters of a paragraph; longer ones stay without styles
const MAX_TABLE_CELLS = 5000;

/** Return a text with Markdown as elements. */
const renderMarkdown = (text) => {
  const lines = sanitize(text).split("\n");
  return h("div", { class: "prose" }, renderBlocks(lines, 0, rankHeadings(lines)));
};

/** Return a text with Markdown, folded after `limit` lines; `item` remembers whether it is open. */
const drawMarkdownBox = (item, part, text, limit) => {
  const lines = text.trimEnd().split("\n");
  const open = item.opened?.has(part);
  const shown = open || lines.length <= limit + 4 ? lines : lines.slice(0, limit);
  return [
    renderMarkdown(shown.join("\n")),
    drawMoreButton(item, part, lines.length, shown.length, open),
  ];
};

/** Return level of heading -> level in the page, without gaps. */
const rankHeadings = (lines) => {
  const used = new Set(lines.map((line) => HEADING.exec(line)?.[1].length).filter(Boolean));
  return new Map([...used].sort().map((level, n) => [level, Math.min(6, 4 + n)]));
};

const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const FENCE = /^\s*(`{3,}|~{3,})\s*([^`]*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const LIST_ITEM = /^(\s*)([-*+•]|\d{1,9}[.)])(\s+|$)/;
const TABLE_LINE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const renderBlocks = (lines, depth, levels) => {
  const out = [];
  let at = 0;
  while (at < lines.length) {
    const read = BLOCK_READERS.find((each) => each.starts(lines, at, depth));
    if (!lines[at].trim()) at++;
    else at = (read ?? PARAGRAPH).read(lines, at, out, depth, levels);
  }
  return out;
};

/** Return the end of the lines from `at` that `isPart` accepts. */
const findEnd = (lines, at, isPart) => {
  while (at < lines.length && isPart(lines[at], at)) at++;
  return at;
};

const isTable = (lines, at) =>
  lines[at].includes("|") &&
  at + 1 < lines.length &&
  lines[at + 1].includes("-") &&
  TABLE_LINE.test(lines[at + 1]) &&
  splitCells(lines[at]).length === splitCells(lines[at + 1]).length;

// Each reader adds the block that starts at a line and returns the line after it.
const BLOCK_READERS = [
  {
    starts: (lines, at) => FENCE.test(lines[at]),
    read: (lines, at, out) => {
      const [, fence, language] = FENCE.exec(lines[at]);
      const indent = /^\s*/.exec(lines[at])[0].length;
      const isOpen = (line) =>
        !(line.trim().startsWith(fence) && !line.trim().slice(3).replace(/[`~]/g, ""));
      const end = findEnd(lines, at + 1, isOpen);
      const code = lines
        .slice(at + 1, end)
        .map((line) => line.replace(/^\s*/, (space) => space.slice(indent)));
      out.push(drawCodeBlock(code.join("\n"), language.trim().split(/\s/)[0]));
      return end + 1;
    },
  },
  {
    starts: (lines, at) => HEADING.test(lines[at]),
    read: (lines, at, out, depth, levels) => {
      const [, marks, words] = HEADING.exec(lines[at]);
      const level = levels.get(marks.length) ?? 6;
      out.push(h(`h${level}`, { class: `heading h-${marks.length}` }, renderInline(words)));
      return at + 1;
    },
  },
  {
    starts: (lines, at) => RULE.test(lines[at]),
    read: (lines, at, out) => {
      out.push(h("hr"));
      return at + 1;
    },
  },
  {
    starts: (lines, at, depth) => depth < MAX_NESTING && QUOTE.test(lines[at]),
    read: (lines, at, out, depth, levels) => {
      const end = findEnd(lines, at, (line) => QUOTE.test(line));
      const inside = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
      out.push(h("blockquote", null, renderBlocks(inside, depth + 1, levels)));
      return end;
    },
  },
  {
    starts: (lines, at, depth) => depth < MAX_NESTING && LIST_ITEM.test(lines[at]),
    read: (lines, at, out, depth, levels) => readList(lines, at, out, depth, levels),
  },
  {
    starts: isTable,
    read: (lines, at, out) => {
      const end = findEnd(lines, at + 2, (line) => line.includes("|") && line.trim());
      out.push(drawTable(lines.slice(at, end)));
      return end;
    },
  },
];

const PARAGRAPH = {
  read: (lines, at, out, depth) => {
    const isPart = (line, n) =>
      line.trim() && (n === at || !BLOCK_READERS.some((each) => each.starts(lines, n, depth)));
    const end = findEnd(lines, at, isPart);
    out.push(h("p", null, renderInline(lines.slice(at, end).join("\n").trim())));
    return end;
  },
};

const readList = (lines, start, out, depth, levels) => {
  const [, indent, first] = LIST_ITEM.exec(lines[start]);
  const ordered = /\d/.test(first);
  const items = [];
  let at = start;
  while (at < lines.length) {
    const head = LIST_ITEM.exec(lines[at]);
    if (!head || head[1].length !== indent.length || /\d/.test(head[2]) !== ordered) break;
    const inside = head[0].length;
    const end = findListItemEnd(lines, at + 1, indent.length);
    const rest = lines.slice(at + 1, end).map((line) => removeIndent(line, inside));
    items.push(drawListItem([lines[at].slice(inside), ...rest], depth, levels));
    at = end;
  }
  const number = parseInt(first, 10);
  out.push(
    h(ordered ? "ol" : "ul", { start: ordered && number !== 1 ? String(number) : null }, items),
  );
  return at;
};

/** Return the end of a list item: its lines are indented more, or continue its paragraph. */
const findListItemEnd = (lines, at, indent) => {
  let end = at;
  while (at < lines.length) {
    const line = lines[at];
    const isBlank = !line.trim();
    const isInside = /^\s*/.exec(line)[0].length > indent;
    const continues =
      at > 0 && lines[at - 1].trim() && !BLOCK_READERS.some((each) => each.starts(lines, at, 0));
    if (!isBlank && !isInside && !continues) break;
    at++;
    if (!isBlank) end = at;
  }
  // Blank lines belong to the list if another item or an indented line follows.
  return at < lines.length && LIST_ITEM.test(lines[at]) ? at : end;
};

const removeIndent = (line, width) => line.replace(/^\s*/, (space) => space.slice(width));

const drawListItem = (lines, depth, levels) => {
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  const content = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
  const blocks = renderBlocks(content, depth + 1, levels);
  if (blocks[0]?.tagName === "P") blocks.splice(0, 1, ...blocks[0].childNodes);
  const isDone = task && task[1] !== " ";
  return h(
    "li",
    { class: task ? (isDone ? "task done" : "task") : null },
    task &&
      h(
        "i",
        { class: "box", role: "img", "aria-label": isDone ? "done" : "to do" },
        isDone ? "✓" : "",
      ),
    blocks,
  );
};

/** Return the cells of a table row. `|` in code or after a backslash does not end a cell. */
const splitCells = (line) => {
  const cells = [""];
  for (const [piece] of line
    .trim()
    .replace(/^\||(?<!\\)\|$/g, "")
    .matchAll(/\\.|`[^`]*`|\||[^\\`|]+|./gs))
    if (piece === "|") cells.push("");
    else cells[cells.length - 1] += piece === "\\|" ? "|" : piece;
  return cells.map((cell) => cell.trim());
};

const drawTable = (lines) => {
  const alignments = splitCells(lines[1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "",
  );
  const rows = lines.slice(2, 2 + Math.ceil(MAX_TABLE_CELLS / alignments.length)).map(splitCells);
  const drawRow = (tag, cells) =>
    h(
      "tr",
      null,
      alignments.map((alignment, n) =>
        h(tag, { class: alignment || null }, renderInline(cells[n] ?? "")),
      ),
    );
  return h(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": "Table" },
    h(
      "table",
      null,
      h("thead", null, drawRow("th", splitCells(lines[0]))),
      h(
        "tbody",
        null,
        rows.map((cells) => drawRow("td", cells)),
      ),
    ),
    lines.length - 2 > rows.length &&
      h("p", { class: "note" }, `${plural(lines.length - 2 - rows.length, "more row")}`),
  );
};

const drawCodeBlock = (code, language) =>
  h(
    "div",
    { class: "codeblock" },
    h(
      "div",
      { class: "codehead" },
      h("span", null, language),
      drawCopyButton(() => code, "code"),
    ),
    h("pre", { class: "code", tabindex: "0" }, code),
  );

const INLINE = new RegExp(
  [
    /\\(?<escaped>[!-/:-@[-`{-~])/,
    /(?<ticks>`+)(?<code>(?:(?!\k<ticks>).)+?)\k<ticks>(?!`)/,
    /!?\[(?<label>[^\[\]\n]*(?:\[[^\[\]\n]*\][^\[\]\n]*)*)\]\((?<target>[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+"[^"\n]*")?\)/,
    /<(?<bracketed>https?:\/\/[^\s<>]+)>/,
    /(?<![\p{L}\p{N}_])(?<address>https?:\/\/(?:[^\s<>"'`|()\[\]*]|\([^\s<>"'`|()]*\))*(?:[^\s<>"'`|()\[\]*.,;:!?]|\([^\s<>"'`|()]*\)))/,
    /\*\*(?<strong>(?=\S)[^]*?\S)\*\*(?!\*)/,
    /(?<![\p{L}\p{N}_])__(?<strong2>(?=\S)[^]*?\S)__(?![\p{L}\p{N}_])/,
    /~~(?<struck>(?=\S)[^]*?\S)~~/,
    /(?<![A-Za-z0-9])\*(?<stress>(?=[^\s*])[^]*?[^\s*])\*(?![A-Za-z0-9*])/,
    /(?<![\p{L}\p{N}_])_(?<stress2>(?=[^\s_])[^]*?[^\s_])_(?![\p{L}\p{N}_])/,
    /(?<line>\n)/,
  ]
    .map((each) => each.source)
    .join("|"),
  "gsu",
);

/** Return a text that may break after each slash. */
const breakPath = (text) =>
  text.split(/(?<=\w\/)(?=\w)/).flatMap((part, n) => (n ? [h("wbr"), part] : [part]));

/** Return a paragraph's text as elements: code, emphasis, links, line breaks. */
const renderInline = (text, depth = 0) => {
  if (text.length > MAX_STYLED || depth > MAX_NESTING) return [h("span", { class: "plain" }, text)];
  const out = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    out.push(text.slice(at, match.index), drawInline(match, depth));
    at = match.index + match[0].length;
  }
  return [...out, text.slice(at)];
};

const drawInline = ({ 0: whole, groups }, depth) => {
  const { escaped, code, label, target, strong, strong2, struck, stress, stress2 } = groups;
  const inside = (words) => renderInline(words, depth + 1);
  if (escaped) return escaped;
  if (code) return h("code", null, breakPath(code.replace(/^ (.*[^ ].*) $/s, "$1")));
  if (label !== undefined) return drawLink(target, label ? inside(label) : [target], whole);
  if (groups.bracketed || groups.address) {
    const address = groups.bracketed ?? groups.address;
    return drawLink(address, [address], whole);
  }
  if (strong || strong2) return h("strong", null, inside(strong ?? strong2));
  if (struck) return h("del", null, inside(struck));
  if (stress || stress2) return h("em", { class: "stress" }, inside(stress ?? stress2));
  return h("br");
};

const LINK_PROTOCOLS = new Set(["http:", "https:", "mailto:"]);

/** Return a link that opens in a new tab. A path or an unsafe address is shown as text. */
const drawLink = (target, words, whole) => {
  const protocol = URL.canParse(target) ? new URL(target).protocol : "";
  if (LINK_PROTOCOLS.has(protocol))
    return h(
      "a",
      { href: target, title: target, target: "_blank", rel: "noopener noreferrer" },
      words,
    );
  return protocol ? whole : h("span", { class: "path-link", title: target }, words);
};
