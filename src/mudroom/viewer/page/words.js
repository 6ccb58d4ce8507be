// Figures and texts for the screen; the same words as in the terminal.
"use strict";

const BYTES_PER_TOKEN = 3.5;

const NAMES = {
  bash: "run_shell_command shell execute terminal exec_command local_shell",
  read: "read_file readfile view notebookread open_file cat",
  write: "write_file writefile create_file",
  edit: "replace str_replace strreplacefile edit_file multiedit",
  glob: "find_files",
  grep: "grep_search search_file_content",
  todo: "todowrite todo_write write_todos settodolist update_plan",
  task: "agent invoke_agent spawn_agent delegate subagent",
};
const CANONICAL = new Map(Object.entries(NAMES).flatMap(([name, others]) => others.split(" ").map((other) => [other, name])));
const UNSEEN = new RegExp(
  [
    "\\x1b\\[[0-?]*[ -/]*[@-~]", // colours, cursor moves
    "\\x1b[\\]PX^_][^\\x07\\x1b]*(?:\\x07|\\x1b\\\\)?", // titles, links, device strings
    "\\x1b[ -/]*[0-~]?",
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f]",
    "[\\u061c\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff]", // marks that reorder or hide text
  ].join("|"),
  "g",
);

const canonical = (name) => CANONICAL.get(name.toLowerCase()) ?? (name.toLowerCase() in NAMES ? name.toLowerCase() : name);

/** Text that cannot reorder, hide or garble what is around it. */
const clean = (text) => String(text).replace(/\r\n?|[\u2028\u2029\x85\x0b\x0c]/g, "\n").replace(UNSEEN, "");

const oneLine = (text, limit = 200) => {
  const line = clean(String(text).slice(0, limit * 4)).trim().replace(/\s+/g, " ");
  return line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
};

const FIGURES = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const MOMENTS = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

const grouped = (count) => FIGURES.format(count);

const plural = (count, one) => `${grouped(count)} ${one}${count === 1 ? "" : one.endsWith("h") ? "es" : "s"}`;

/** A count of tokens in at most six columns: 950, 41.4k, 1.2M. */
const tokens = (count) =>
  count < 1000 ? String(Math.round(count)) : count < 999950 ? `${(count / 1000).toFixed(1)}k` : `${(count / 1e6).toFixed(1)}M`;

/** The same for round figures on an axis: 100k, 2.5M. */
const roundTokens = (count) => tokens(count).replace(/\.0(?=[kM])/, "");

/** A span of time in seconds: 40ms, 4.2s, 1m 04s, 2h 05m. */
const seconds = (span) => {
  if (span < 0.0995) return `${Math.round(span * 1000)}ms`;
  if (span < 9.95) return `${span.toFixed(1)}s`;
  const whole = Math.floor(span + 0.05);
  const two = (n) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  return whole < 3600 ? `${Math.floor(whole / 60)}m ${two(whole % 60)}s` : `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
};

const bytes = (count) => {
  for (const [unit, scale] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (count >= scale) return `${(count / scale).toFixed(count < 10 * scale ? 1 : 0)} ${unit}`;
  return `${count} B`;
};

const money = (usd) => (usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`);

const share = (part, whole) => {
  const percent = whole ? (100 * part) / whole : 0;
  return percent > 0 && percent < 1 ? "<1%" : `${Math.round(percent)}%`;
};

const clock = (at) => MOMENTS.format(at * 1000);

const encoder = new TextEncoder();
const ASCII = /^[\x00-\x7f]*$/;
const size = (text) => (ASCII.test(text) ? text.length : encoder.encode(text).length);

const lineCount = (text) => {
  let count = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count++;
  return count + (text !== "" && !text.endsWith("\n") ? 1 : 0);
};

const TELLING = ["description", "command", "file_path", "path", "pattern", "query", "url", "name", "prompt"];

/** The argument that tells most about a call. */
const telling = (call) => {
  const given = call.arguments ?? {};
  for (const key of TELLING) if (typeof given[key] === "string" && given[key]) return oneLine(given[key]);
  const first = Object.values(given).find((value) => typeof value === "string");
  return first === undefined ? "" : oneLine(first);
};
