// The tree of runs, and beside each run its lane on one common time: above the model's time, below the tools'.
"use strict";

const ROW = 42;

const TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

/** Seconds from one mark of the axis to the next, so that there is room for a word at each. */
const tickOf = (span, width) => {
  const least = (64 / width) * span;
  return TICKS.find((each) => each >= least) ?? Math.ceil(least / 86400) * 86400;
};

/** Time on the screen. Between root runs, and while nobody had the session open, nothing happens: a pause is drawn short. */
class Scale {
  constructor(fold, now) {
    const spans = fold.roots.map((run) => [run.started, run.finished || (app.live ? now : run.lastAt)]).sort((a, b) => a[0] - b[0]);
    const busy = [];
    for (const [from, to] of spans) {
      const last = busy.at(-1);
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else busy.push([from, to]);
    }
    for (const [from, to] of fold.pauses) {
      const at = busy.findIndex((piece) => piece[0] < from && to < piece[1]);
      if (at >= 0) busy.splice(at, 1, [busy[at][0], from], [to, busy[at][1]]);
    }
    const sum = busy.reduce((all, [from, to]) => all + to - from, 0) || 1;
    this.pieces = [];
    let at = 0;
    busy.forEach(([from, to], n) => {
      if (n) at += Math.min(from - busy[n - 1][1], sum * 0.02);
      this.pieces.push({ from, to, at });
      at += to - from;
    });
    this.length = at || 1;
  }

  /** Seconds of drawn time that a moment lies after the beginning. */
  of(moment) {
    let found = this.pieces[0];
    for (const piece of this.pieces) if (piece.from <= moment) found = piece;
    return found ? found.at + Math.min(Math.max(moment - found.from, 0), found.to - found.from) : 0;
  }
}

class Waterfall {
  constructor() {
    this.folded = new Set(); // ids of runs whose children are not shown
    this.shown = [];
    this.stamp = 0; // counts up when every lane has to be drawn anew
    this.view = null; // [from, to] in drawn seconds, null is everything
    this.rows = $("rows");
    this.list = new VirtualList(this.rows, { render: (row) => this.#row(row), guess: () => ROW, overscan: 200, fixed: true });
    this.known = new Map(); // run id -> its row, kept so that the list can tell what has changed
    this.rows.addEventListener("click", (event) => this.#clicked(event));
    this.rows.addEventListener("mousemove", (event) => this.#hovered(event));
    this.rows.addEventListener("mouseleave", () => app.tip(null));
    this.rows.addEventListener("dblclick", (event) => this.#zoomTo(event));
    this.rows.addEventListener("wheel", (event) => this.#wheeled(event), { passive: false });
    new ResizeObserver(() => this.redraw()).observe(this.rows);
  }

  /** Show the fold as it stands. */
  draw() {
    const { fold } = app;
    const length = this.scale?.length;
    this.scale = new Scale(fold, app.now());
    this.width ||= $("axis").querySelector("canvas").clientWidth; // of all lanes, asked for once
    if (this.scale.length !== length) this.stamp++;
    const wanted = filtering(app.filter) ? this.#matching(fold) : null;
    this.shown = [];
    const walk = (runs, depth) => {
      for (const run of runs) {
        if (wanted && !wanted.has(run.id)) continue;
        const row = this.known.get(run.id) ?? { run };
        this.known.set(run.id, row);
        row.depth = depth;
        row.version = `${run.version} ${this.stamp}${app.at.run === run.id ? ` ${app.at.turn}` : ""}`;
        this.shown.push(row);
        if (!this.folded.has(run.id)) walk(run.children, depth + 1);
      }
    };
    walk(fold.roots, 0);
    this.list.set(this.shown);
    this.rows.setAttribute("aria-activedescendant", `row-${app.at.run}`);
    $("count").textContent = wanted ? `${grouped(this.shown.length)} of ${plural(fold.runs.size, "run")}` : plural(fold.runs.size, "run");
    this.#axis();
  }

  /** Draw all again: width, theme, zoom or time have changed. */
  redraw() {
    this.stamp++;
    this.width = 0;
    this.colours = null;
    if (app.fold) this.draw();
  }

  /** Bring a run into view, whatever it is folded into. */
  show(run) {
    const folded = ancestors(app.fold, run).filter((above) => this.folded.delete(above.id));
    if (folded.length) this.redraw();
    this.list.show(this.shown.findIndex((row) => row.run === run), { align: "near" });
  }

  /** The run so many rows further down. */
  beside(step) {
    const at = this.shown.findIndex((row) => row.run.id === app.at.run);
    return this.shown[Math.max(0, Math.min(this.shown.length - 1, at + step))]?.run;
  }

  toggle(run, fold = !this.folded.has(run.id)) {
    if (!run.children.length) return false;
    const was = this.folded.has(run.id);
    if (fold) this.folded.add(run.id);
    else this.folded.delete(run.id);
    if (was !== fold) this.redraw();
    return was !== fold;
  }

  zoom(factor, about = 0.5) {
    const [from, to] = this.view ?? [0, this.scale.length];
    const length = Math.min(this.scale.length, Math.max((to - from) * factor, 0.02));
    const centre = from + (to - from) * about;
    this.pan(centre - length * about, length);
  }

  pan(from, length) {
    const start = Math.max(0, Math.min(from, this.scale.length - length));
    this.view = length >= this.scale.length * 0.999 ? null : [start, start + length];
    this.redraw();
  }

  #matching(fold) {
    const wanted = new Set();
    for (const run of fold.runs.values()) {
      if (!run.items.some((item) => matches(item, app.filter))) continue;
      wanted.add(run.id);
      for (const above of ancestors(fold, run)) wanted.add(above.id);
    }
    return wanted;
  }

  #row(row) {
    const { run, depth } = row;
    const chosen = run.id === app.at.run;
    const fold = run.children.length > 0;
    const left = leftBehind(app.fold, run);
    const figures = [
      run.tools ? plural(run.tools, "tool") : "",
      `${tokens(total(run.usage))}${total(run.below) ? ` +${tokens(total(run.below))}` : ""}`,
      run.usd === null ? "" : money(run.usd),
      seconds(Math.max(0, (run.finished || (app.live ? app.now() : run.lastAt)) - run.started)),
    ].filter(Boolean);
    const canvas = h("canvas", { class: "lane", "aria-hidden": "true" });
    const node = h(
      "div",
      { class: `row${chosen ? " chosen" : ""}${left ? " left" : ""}`, id: `row-${run.id}`, role: "treeitem", "aria-level": depth + 1, "aria-selected": String(chosen), "aria-expanded": fold ? String(!this.folded.has(run.id)) : null, "data-run": run.id },
      h(
        "div",
        { class: "cell", style: { "--depth": String(depth) } },
        fold ? h("button", { class: "fold", tabindex: "-1", "aria-label": this.folded.has(run.id) ? "Open" : "Close" }, this.folded.has(run.id) ? "▸" : "▾") : h("i", { class: "leaf" }),
        mark(run),
        h("div", { class: "words" }, h("div", { class: "first" }, h("b", { style: { "--hue": String(hueOf(run.agent)) } }, run.agent), " ", oneLine(titleOf(run), 120)), h("div", { class: "second" }, h("span", { class: `state ${stateOf(run, app.live)}` }, outcome(run)), h("span", null, figures.join(" · ")), run.failed - run.refused > 0 && h("span", { class: "failed" }, plural(run.failed - run.refused, "error")), run.refused > 0 && h("span", { class: "refused" }, `${run.refused} refused`), run.retries > 0 && h("span", { class: "retried" }, run.retries === 1 ? "1 retry" : `${run.retries} retries`), run.left && h("span", { class: "behind" }, "left behind"))),
      ),
      canvas,
    );
    this.#lane(canvas, run);
    return node;
  }

  #lane(canvas, run) {
    const width = this.width;
    const context = this.#paper(canvas, ROW);
    if (!context) return;
    const colour = this.#palette();
    const end = run.finished || (app.live ? app.now() : run.lastAt);
    const [left, right] = [this.#x(run.started, width), this.#x(end, width)];
    context.fillStyle = run.report || app.live ? colour.life : colour.lost;
    context.beginPath();
    context.roundRect(left - 2, 7, Math.max(right - left + 4, 5), ROW - 14, 4);
    context.fill();
    for (const span of run.spans) {
      const from = this.#x(span.from, width);
      const wide = Math.max(this.#x(span.to || end, width) - from, 1.5);
      if (from > width || from + wide < 0) continue;
      const model = span.kind === "model";
      const waits = !model && span.item.tool === "task";
      const chosen = run.id === app.at.run && span.turn === app.at.turn;
      context.fillStyle = model ? (span.failed ? colour.failed : colour.model) : span.item.refused ? colour.refused : span.item.result?.error ? colour.failed : waits ? colour.wait : colour.tool;
      context.globalAlpha = !app.at.turn || chosen || run.id !== app.at.run ? 1 : 0.45;
      if (model) context.fillRect(from, 11, wide, 8);
      else context.fillRect(from, waits ? 26 : 23, wide, waits ? 2 : 8);
    }
    context.globalAlpha = 1;
    context.fillStyle = colour.retried;
    for (const each of run.marks) {
      const x = this.#x(each.at, width);
      context.beginPath();
      context.moveTo(x - 3.5, 5);
      context.lineTo(x + 3.5, 5);
      context.lineTo(x, 11);
      context.fill();
    }
  }

  #axis() {
    const canvas = $("axis").querySelector("canvas");
    const width = this.width;
    const context = this.#paper(canvas, 26);
    if (!context) return;
    const [from, to] = this.view ?? [0, this.scale.length];
    const step = tickOf(to - from, width);
    const colour = this.#palette();
    context.font = `11px ${colour.font}`;
    let free = 0;
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      const x = ((tick - from) / (to - from)) * (width - 16) + 8;
      context.fillStyle = colour.faint;
      context.fillRect(Math.round(x), 19, 1, 7);
      context.fillStyle = colour.dim;
      const word = tick === 0 ? "0" : step % 86400 === 0 ? `${tick / 86400}d` : seconds(tick);
      const long = context.measureText(word).width;
      const at = Math.min(x + 4, width - long - 2);
      if (at < free) continue;
      context.fillText(word, at, 17);
      free = at + long + 6;
    }
  }

  #paper(canvas, height) {
    const { width } = this;
    if (!width) return null;
    const dense = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    const context = canvas.getContext("2d");
    context.scale(dense, dense);
    return context;
  }

  #x(moment, width) {
    const [from, to] = this.view ?? [0, this.scale.length];
    return ((this.scale.of(moment) - from) / (to - from)) * (width - 16) + 8;
  }

  #palette() {
    if (this.colours) return this.colours;
    const probe = document.body.appendChild(h("i"));
    const read = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const names = ["model", "tool", "wait", "failed", "refused", "retried", "life", "lost", "faint", "dim"];
    this.colours = { ...Object.fromEntries(names.map((name) => [name, read(name)])), font: getComputedStyle(probe).fontFamily };
    probe.remove();
    return this.colours;
  }

  /** The span of a lane under the pointer. */
  #under(event) {
    const canvas = event.target.closest?.("canvas.lane");
    const run = app.fold?.runs.get(event.target.closest?.(".row")?.dataset.run);
    if (!canvas || !run) return { run, span: null };
    const area = canvas.getBoundingClientRect();
    const x = event.clientX - area.left;
    const below = event.clientY - area.top > ROW / 2;
    const end = run.finished || (app.live ? app.now() : run.lastAt);
    let best = null;
    let nearest = 4;
    for (const span of run.spans) {
      const [from, to] = [this.#x(span.from, area.width), this.#x(span.to || end, area.width)];
      const away = Math.max(from - x, x - to, 0) + ((span.kind === "tool") === below ? 0 : 2) + (span.item?.tool === "task" ? 1 : 0);
      if (away < nearest) [best, nearest] = [span, away];
    }
    return { run, span: best, canvas };
  }

  #clicked(event) {
    const { run, span } = this.#under(event);
    if (!run) return;
    if (event.target.closest(".fold")) return void this.toggle(run);
    app.go({ run: run.id, turn: span ? span.turn : 0, call: span?.item?.id ?? "" });
  }

  #hovered(event) {
    const { span } = this.#under(event);
    if (!span) return app.tip(null);
    const length = seconds((span.to || app.now()) - span.from);
    const what = span.kind === "model" ? `model, turn ${span.turn}${span.failed ? ": failed" : ""}` : `${span.item.call.name} ${telling(span.item.call)}`;
    const how = span.item?.refused ? " · refused" : span.item?.result?.error ? " · error" : "";
    app.tip(event, `${oneLine(what, 90)} · ${length}${how}`);
  }

  #zoomTo(event) {
    const { run, canvas } = this.#under(event);
    if (!run || !canvas) return;
    const [from, to] = [this.scale.of(run.started), this.scale.of(run.finished || run.lastAt)];
    const margin = Math.max((to - from) * 0.04, 0.01);
    this.view ? this.pan(0, this.scale.length) : this.pan(from - margin, to - from + 2 * margin);
  }

  #wheeled(event) {
    const canvas = event.target.closest?.("canvas.lane");
    const sideways = event.shiftKey ? event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (!canvas || !(event.ctrlKey || event.metaKey || (sideways && this.view))) return;
    event.preventDefault();
    const area = canvas.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) return this.zoom(Math.exp(event.deltaY * 0.004), (event.clientX - area.left) / area.width);
    const [from, to] = this.view;
    this.pan(from + (sideways / area.width) * (to - from), to - from);
  }
}
