// Elements made of text only, and a list that draws no more than can be seen.
"use strict";

const $ = (id) => document.getElementById(id);

/** An element. Strings among its children become text, never markup. */
const h = (tag, props, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "style") for (const [name, each] of Object.entries(value)) node.style.setProperty(name, each);
    else if (typeof value === "function") node.addEventListener(key, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return node;
};

const SVG = "http://www.w3.org/2000/svg";
const s = (tag, props, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(props ?? {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

const fill = (node, ...children) => node.replaceChildren(...children.flat(9).filter((child) => child !== null && child !== false && child !== ""));

/** A colour for an agent's name, always the same. */
const hueOf = (name) => {
  const known = { explore: 190, general: 150, main: 22, plan: 265 };
  if (name in known) return known[name];
  let hash = 7;
  for (const char of name) hash = (hash * 31 + char.codePointAt(0)) % 3600;
  return hash % 360;
};

/** A list of items of any height in a scrolling box. Only what can be seen is in the page.
 *
 * render(item) gives the element of an item; guess(item) its height in pixels until it was measured.
 * An item is drawn again when its `version` has changed. `fixed`: heights are as guessed, and need no measuring.
 */
class VirtualList {
  constructor(box, { render, guess, overscan = 300, fixed = false }) {
    Object.assign(this, { box, render, guess, overscan, fixed, items: [], nodes: new Map(), heights: new Map(), tops: new Float64Array(1) });
    this.space = h("div", { class: "space" });
    box.replaceChildren(this.space);
    this.onScroll = () => this.draw();
    box.addEventListener("scroll", this.onScroll, { passive: true });
    this.observer = new ResizeObserver((entries) => this.#measured(entries));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(box);
  }

  /** Show these items: from the `top`, or where one was; with `follow`, who was at the end stays at the end. */
  set(items, { follow = false, top = false } = {}) {
    if (top) this.box.scrollTop = 0;
    const atEnd = follow && this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 40;
    this.items = items;
    this.#place();
    this.draw();
    if (atEnd) this.box.scrollTop = this.box.scrollHeight;
  }

  /** Bring an item into view. */
  show(index, { align = "start" } = {}) {
    if (index < 0 || index >= this.items.length) return;
    for (let settle = 0; settle < 4; settle++) {
      const top = this.tops[index];
      const bottom = this.tops[index + 1];
      const view = this.box.clientHeight;
      if (align === "near" && top >= this.box.scrollTop && bottom <= this.box.scrollTop + view) return;
      const before = this.box.scrollTop;
      this.box.scrollTop = align === "near" && bottom > this.box.scrollTop + view ? bottom - view : Math.max(0, top - (align === "near" ? 0 : 8));
      this.draw();
      if (this.box.scrollTop === before && this.tops[index] === top) return;
    }
  }

  /** Index of the first item that can be seen. */
  first() {
    return Math.max(0, this.#at(this.box.scrollTop + 12));
  }

  draw() {
    const from = Math.max(0, this.#at(this.box.scrollTop - this.overscan));
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

  /** Draw one item anew, or all of them. */
  renew(item = null) {
    for (const [each, node] of item ? [[item, this.nodes.get(item)]] : [...this.nodes]) if (node) this.#drop(each, node);
    this.draw();
  }

  close() {
    this.box.removeEventListener("scroll", this.onScroll);
    this.observer.disconnect();
    this.resized.disconnect();
    this.box.replaceChildren();
  }

  #drop(item, node) {
    this.observer.unobserve(node);
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
    this.space.append(node);
    if (!this.fixed) this.observer.observe(node);
    return node;
  }

  #measured() {
    if (this.#measure()) this.draw();
  }

  /** Take the true heights of what is drawn; whether anything moved. */
  #measure() {
    let moved = false;
    let shift = 0;
    const top = this.box.scrollTop;
    for (const [item, node] of this.nodes) {
      const height = node.offsetHeight;
      const before = this.heights.get(item) ?? this.guess(item);
      if (!height || Math.abs(height - before) < 0.5) continue;
      if (this.tops[this.place.get(item)] + before <= top) shift += height - before;
      this.heights.set(item, height);
      moved = true;
    }
    if (!moved) return false;
    this.#place();
    if (shift) this.box.scrollTop = top + shift;
    return true;
  }

  #place() {
    this.tops = new Float64Array(this.items.length + 1);
    this.place = new Map();
    for (let index = 0; index < this.items.length; index++) {
      const item = this.items[index];
      this.place.set(item, index);
      this.tops[index + 1] = this.tops[index] + (this.heights.get(item) ?? this.guess(item));
    }
    this.space.style.height = `${this.tops[this.items.length]}px`;
  }

  #at(offset) {
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

/** Words of a model: paragraphs, headings, lists, code. Nothing in them is ever taken as markup. */
const prose = (text) => {
  const out = [];
  const parts = clean(text).split(/^(```+|~~~+)[^\n]*\n?/m);
  for (let n = 0; n < parts.length; n += 2) {
    const code = (n / 2) % 2 === 1;
    if (!parts[n].trim()) continue;
    out.push(...(code ? [h("pre", { class: "code" }, parts[n].replace(/\n$/, ""))] : paragraphs(parts[n])));
  }
  return h("div", { class: "prose" }, out);
};

const paragraphs = (text) =>
  text
    .trim()
    .split("\n")
    .map((line) => {
      const heading = /^(#{1,6})\s+(.*)/.exec(line);
      if (heading) return h("p", { class: "heading" }, spans(heading[2]));
      const item = /^(\s*)([-*•]|\d+[.)])\s+(.*)/.exec(line);
      if (item) return h("p", { class: "item", style: { "--in": String(Math.min(6, item[1].length / 2)) } }, h("i", null, /\d/.test(item[2]) ? item[2] : "•"), h("span", null, spans(item[3])));
      if (/^\s*\|.*\|\s*$/.test(line)) return h("p", { class: "cells" }, line);
      return line.trim() ? h("p", null, spans(line)) : h("p", { class: "gap" });
    });

const spans = (line) =>
  line.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.startsWith("`") && part.length > 2) return h("code", null, part.slice(1, -1));
    if (part.startsWith("**") && part.length > 4) return h("strong", null, part.slice(2, -2));
    return part;
  });
