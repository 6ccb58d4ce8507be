// Formats of numbers, times and texts, the same as in the terminal.
"use strict";

const BYTES_PER_TOKEN = 4;

const TOOL_ALIASES = {
  bash: "run_shell_command shell execute terminal exec_command local_shell",
  read: "read_file readfile view notebookread open_file cat",
  write: "write_file writefile create_file",
  edit: "replace str_replace strreplacefile edit_file multiedit",
  glob: "find_files",
  grep: "grep_search search_file_content",
  todo: "todowrite todo_write write_todos settodolist update_plan",
  task: "agent invoke_agent spawn_agent delegate subagent",
};
const CANONICAL = new Map(
  Object.entries(TOOL_ALIASES).flatMap(([name, others]) =>
    others.split(" ").map((other) => [other, name]),
  ),
);
const CONTROL_SEQUENCES = new RegExp(
  [
    "\\x1b\\[[0-?]*[ -/]*[@-~]", // colours, cursor moves
    "\\x1b[\\]PX^_][^\\x07\\x1b]*(?:\\x07|\\x1b\\\\)?", // titles, links, device strings
    "\\x1b[ -/]*[0-~]?",
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f]",
    "[\\u061c\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff]", // characters that reorder or hide text
  ].join("|"),
  "g",
);

const canonicalToolName = (name) =>
  CANONICAL.get(name.toLowerCase()) ??
  (name.toLowerCase() in TOOL_ALIASES ? name.toLowerCase() : name);

/** Return the text without characters that reorder, hide or change the text around it. */
const sanitize = (text) =>
  String(text)
    .replace(/\r\n?|[\u2028\u2029\x85\x0b\x0c]/g, "\n")
    .replace(CONTROL_SEQUENCES, "");

const oneLine = (text, limit = 200) => {
  const line = sanitize(String(text).slice(0, limit * 4))
    .trim()
    .replace(/\s+/g, " ");
  return line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
};

const COUNT_FORMAT = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const DATE_FORMAT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

const formatCount = (count) => COUNT_FORMAT.format(count);

const plural = (count, one) =>
  `${formatCount(count)} ${one}${count === 1 ? "" : one.endsWith("h") ? "es" : "s"}`;

/** Format a number of tokens in at most six columns: 950, 41.4k, 1.2M. */
const formatTokens = (count) =>
  count < 1000
    ? String(Math.round(count))
    : count < 999950
      ? `${(count / 1000).toFixed(1)}k`
      : `${(count / 1e6).toFixed(1)}M`;

/** Format a round number of tokens for an axis: 100k, 2.5M. */
const formatAxisTokens = (count) => formatTokens(count).replace(/\.0(?=[kM])/, "");

/** Format a duration in seconds: 40ms, 4.2s, 1m 04s, 2h 05m. */
const formatSeconds = (span) => {
  if (span < 0.0995) return `${Math.round(span * 1000)}ms`;
  if (span < 9.95) return `${span.toFixed(1)}s`;
  const whole = Math.floor(span + 0.05);
  const two = (n) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  const hours = Math.floor(whole / 3600);
  if (hours < 24) return `${hours}h ${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(hours / 24)}d ${two(hours % 24)}h`;
};

const formatBytes = (count) => {
  for (const [unit, scale] of [
    ["GB", 1e9],
    ["MB", 1e6],
    ["kB", 1e3],
  ])
    if (count >= scale) return `${(count / scale).toFixed(count < 10 * scale ? 1 : 0)} ${unit}`;
  return `${count} B`;
};

const formatMoney = (usd) =>
  usd === 0 ? "$0" : usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;

const formatShare = (part, whole) => {
  const percent = whole ? (100 * part) / whole : 0;
  return percent > 0 && percent < 1 ? "<1%" : `${Math.round(percent)}%`;
};

const formatDate = (at) => DATE_FORMAT.format(at * 1000);

const encoder = new TextEncoder();
const ASCII = /^[\x00-\x7f]*$/;
const byteLength = (text) => (ASCII.test(text) ? text.length : encoder.encode(text).length);

const lineCount = (text) => {
  let count = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count++;
  return count + (text !== "" && !text.endsWith("\n") ? 1 : 0);
};

/** Return the text that stands for an image, the same as in the terminal. */
const imagePlaceholder = (image) => {
  const byteCount = Math.floor((image.data.replace(/=+$/, "").length * 3) / 4);
  const pixels = image.width && image.height ? `, ${image.width}x${image.height}` : "";
  return `[image: ${oneLine(image.media_type)}${pixels}, ${Math.ceil(byteCount / 1000)} KB]`;
};

/** Return a text followed by one line for each image. */
const withPlaceholders = (text, images = []) =>
  [...(text ? [text] : []), ...images.map(imagePlaceholder)].join("\n");

/** Return what a call is about: the recorded title, in older records the first text argument. */
const callTitle = (item) => {
  const isText = (value) => typeof value === "string" && value;
  return oneLine(item.title || Object.values(item.call.arguments ?? {}).find(isText) || "");
};
