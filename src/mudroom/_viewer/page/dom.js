// Element builders that never parse markup, and a list that draws only its visible items.
"use strict";

const $ = (id) => document.getElementById(id);

/** Return the children to draw: nothing for null, false and "", texts without control characters. */
const drawnChildren = (children) =>
  children
    .flat(9)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (typeof child === "string" ? sanitize(child) : child));

/** Return an element. Strings among its children become text, never markup. */
const h = (tag, props, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "style")
      for (const [name, each] of Object.entries(value)) node.style.setProperty(name, each);
    else if (typeof value === "function") node.addEventListener(key, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...drawnChildren(children));
  return node;
};

const SVG = "http://www.w3.org/2000/svg";
const svg = (tag, props, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(props ?? {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

const setChildren = (node, ...children) => node.replaceChildren(...drawnChildren(children));

/** Return the hue of an agent's colour, always the same for a name. */
const agentHue = (name) => {
  const known = { explore: 190, general: 150, main: 22, plan: 265 };
  if (name in known) return known[name];
  let hash = 7;
  for (const char of name) hash = (hash * 31 + char.codePointAt(0)) % 3600;
  return hash % 360;
};

/** A scrolling list of items of any height. Only visible items are in the page.
 *
 * render(item) returns the element of an item; estimateHeight(item) its height in pixels before
 * it is measured.
 * An item is redrawn when its `version` changes. `fixed`: the estimated heights are exact.
 */
class VirtualList {
  constructor(box, { render, estimateHeight, overscan = 300, fixed = false }) {
    Object.assign(this, {
      box,
      render,
      estimateHeight,
      overscan,
      fixed,
      items: [],
      nodes: new Map(),
      heights: new Map(),
      tops: new Float64Array(1),
    });
    this.content = h("div", { class: "space" });
    box.replaceChildren(this.content);
    this.onScroll = () => this.draw();
    box.addEventListener("scroll", this.onScroll, { passive: true });
    this.itemObserver = new ResizeObserver((entries) => this.#measured(entries));
    this.boxObserver = new ResizeObserver(() => this.draw());
    this.boxObserver.observe(box);
  }

  /** Show these items.
   *
   * `top`: scroll to the top; `follow`: a list that is scrolled to its end stays at the end.
   */
  set(items, { follow = false, top = false } = {}) {
    if (top) this.box.scrollTop = 0;
    const atEnd =
      follow && this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 40;
    this.items = items;
    this.#layout();
    this.draw();
    if (atEnd) this.box.scrollTop = this.box.scrollHeight;
  }

  /** Scroll to an item. */
  show(index, { align = "start" } = {}) {
    if (index < 0 || index >= this.items.length) return;
    for (let settle = 0; settle < 4; settle++) {
      const top = this.tops[index];
      const bottom = this.tops[index + 1];
      const view = this.box.clientHeight;
      if (align === "near" && top >= this.box.scrollTop && bottom <= this.box.scrollTop + view)
        return;
      const before = this.box.scrollTop;
      this.box.scrollTop =
        align === "near" && bottom > this.box.scrollTop + view
          ? bottom - view
          : Math.max(0, top - (align === "near" ? 0 : 8));
      this.draw();
      if (this.box.scrollTop === before && this.tops[index] === top) return;
    }
  }

  draw() {
    const from = Math.max(0, this.#indexAt(this.box.scrollTop - this.overscan));
    const until = this.box.scrollTop + this.box.clientHeight + this.overscan;
    const seen = new Set();
    for (let index = from; index < this.items.length && this.tops[index] < until; index++) {
      const item = this.items[index];
      seen.add(item);
      this.#node(item).style.transform = `translateY(${this.tops[index]}px)`;
    }
    for (const [item, node] of this.nodes) if (!seen.has(item)) this.#drop(item, node);
    if (!this.fixed && this.#measure()) this.draw();
  }

  /** Redraw one item, or all. */
  redraw(item = null) {
    for (const [each, node] of item ? [[item, this.nodes.get(item)]] : [...this.nodes])
      if (node) this.#drop(each, node);
    this.draw();
  }

  close() {
    this.box.removeEventListener("scroll", this.onScroll);
    this.itemObserver.disconnect();
    this.boxObserver.disconnect();
    this.box.replaceChildren();
  }

  #drop(item, node) {
    this.itemObserver.unobserve(node);
    node.remove();
    this.nodes.delete(item);
  }

  #node(item) {
    const known = this.nodes.get(item);
    const version = item.version ?? 0;
    if (known && known.version === version) return known;
    const node = this.render(item);
    Object.assign(node, { version, item });
    node.classList.add("placed");
    if (known) this.#drop(item, known);
    this.nodes.set(item, node);
    this.content.append(node);
    if (!this.fixed) this.itemObserver.observe(node);
    return node;
  }

  #measured() {
    if (this.#measure()) this.draw();
  }

  /** Measure the drawn items; return true if a height changed. */
  #measure() {
    let moved = false;
    let shift = 0;
    const top = this.box.scrollTop;
    for (const [item, node] of this.nodes) {
      const height = node.offsetHeight;
      const before = this.heights.get(item) ?? this.estimateHeight(item);
      if (!height || Math.abs(height - before) < 0.5) continue;
      if (this.tops[this.indexes.get(item)] + before <= top) shift += height - before;
      this.heights.set(item, height);
      moved = true;
    }
    if (!moved) return false;
    this.#layout();
    if (shift) this.box.scrollTop = top + shift;
    return true;
  }

  #layout() {
    this.tops = new Float64Array(this.items.length + 1);
    this.indexes = new Map();
    for (let index = 0; index < this.items.length; index++) {
      const item = this.items[index];
      this.indexes.set(item, index);
      this.tops[index + 1] =
        this.tops[index] + (this.heights.get(item) ?? this.estimateHeight(item));
    }
    this.content.style.height = `${this.tops[this.items.length]}px`;
  }

  #indexAt(offset) {
    let low = 0;
    let high = this.items.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
