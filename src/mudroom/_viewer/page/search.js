// Full-text search over all items of a session, with a list of matches to jump to.
"use strict";

const MAX_HITS = 200;

const searchableTexts = (item) => {
  if (item.kind === "call")
    return [item.call.name, JSON.stringify(item.call.arguments ?? {}), item.result?.text ?? "", ...decisionTexts(item), item.result?.context ?? ""];
  if (item.kind === "report") return [item.report.text, item.report.error ?? ""];
  if (item.kind === "turn") return [item.error, ...item.retries.map((each) => each.error ?? "")];
  return [item.text ?? ""];
};

/** Return the items that contain the words, at most MAX_HITS, and whether there are more. */
const findHits = (fold, words) => {
  const wanted = new RegExp(
    words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+"),
    "i",
  );
  const hits = [];
  for (const run of fold.runs.values())
    for (const item of run.items)
      for (const each of searchableTexts(item)) {
        const found = wanted.exec(each);
        if (!found) continue;
        if (hits.length >= MAX_HITS) return { hits, more: true };
        hits.push({
          run,
          item,
          before: each.slice(Math.max(0, found.index - 40), found.index),
          word: found[0],
          after: each.slice(found.index + found[0].length, found.index + found[0].length + 90),
        });
        break;
      }
  return { hits, more: false };
};

class Search {
  constructor() {
    this.hits = [];
    this.at = -1;
    this.field = $("query");
    this.panel = $("hits");
    this.field.addEventListener("input", () => this.#scheduleFind());
    this.field.addEventListener("focus", () => this.hits.length && this.open(true));
    this.field.addEventListener("keydown", (event) => this.#key(event));
  }

  open(shown) {
    this.panel.hidden = !shown || !this.field.value.trim();
  }

  /** Select the match `by` places further. */
  step(by) {
    if (!this.hits.length) return;
    this.at = (this.at + by + this.hits.length) % this.hits.length;
    const { run, item } = this.hits[this.at];
    [...this.panel.querySelectorAll(".hit")].forEach((node, n) =>
      node.classList.toggle("here", n === this.at),
    );
    this.panel.querySelectorAll(".hit")[this.at]?.scrollIntoView({ block: "nearest" });
    app.navigate(
      { run: run.id, turn: item.turn, call: item.id ?? "", tab: "transcript" },
      { item },
    );
  }

  clear() {
    this.field.value = "";
    this.hits = [];
    this.open(false);
  }

  #scheduleFind() {
    cancelAnimationFrame(this.waiting);
    this.waiting = requestAnimationFrame(() => this.#find());
  }

  #find() {
    const words = this.field.value.trim();
    if (words.length < 2 || !app.fold) {
      this.hits = [];
      return this.open(false);
    }
    const { hits, more } = findHits(app.fold, words);
    Object.assign(this, { hits, at: -1 });
    const rows = hits.map(({ run, item, before, word, after }, n) =>
      h(
        "button",
        { class: "hit", click: () => this.step(n - this.at) },
        h(
          "span",
          { class: "where" },
          h("b", { style: { "--hue": String(agentHue(run.agent)) } }, runLabel(run)),
          ` ${run.id}${item.turn ? ` · turn ${item.turn}` : ""}`,
          h("em", null, item.kind === "call" ? item.call.name : item.kind),
        ),
        h(
          "span",
          { class: "snippet" },
          sanitize(before).replace(/\s+/g, " "),
          h("mark", null, sanitize(word)),
          sanitize(after).replace(/\s+/g, " "),
        ),
      ),
    );
    setChildren(
      this.panel,
      h(
        "div",
        { class: "found" },
        hits.length
          ? `${more ? "more than " : ""}${plural(hits.length, "match")}`
          : `“${oneLine(words, 60)}” is not in this session`,
      ),
      rows,
    );
    this.open(true);
  }

  #key(event) {
    if (event.key === "Enter" || event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      this.step(event.key === "ArrowUp" || event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      this.panel.hidden ? this.clear() : this.open(false);
      this.field.blur();
      event.stopPropagation();
    }
  }
}
