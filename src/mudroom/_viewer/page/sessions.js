// The list of sessions: search, filters, order, and the choice of two to compare.
"use strict";

const SESSION_ORDERS = {
  when: ["newest", (session) => session.when],
  usd: ["most expensive", (session) => session.usd ?? 0],
  tokens: ["most tokens", (session) => session.tokens],
  seconds: ["longest", (session) => session.seconds],
};
const OUTCOMES = {
  "": "all outcomes",
  done: "done",
  failed: "failed",
  stopped: "stopped",
  unfinished: "unfinished",
  empty: "empty",
  running: "running",
};

const MAX_SESSIONS = 5000; // sessions of the longest list

/** The list: its sessions, how many there are, and what the user has typed and chosen. */
const sessionList = {
  all: [],
  total: 0,
  limit: 200,
  words: "",
  outcome: "",
  order: "when",
  chosen: new Set(),
};

/** Return the word on a listed session's badge; a session without a prompt is empty. */
const sessionState = (session) => {
  if (!session.reason && session.state === "live") return "running";
  if (!session.reason) return session.prompts || session.error ? "unfinished" : "empty";
  if (session.reason === "GOAL") return "done";
  return STOPPED.has(session.reason) ? "stopped" : "failed";
};

const matchesWords = (session, words) => {
  const text = [session.prompt, session.name, session.folder, session.model, session.id]
    .join(" ")
    .toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
};

/** Return the sessions that match, in the chosen order. */
const selectSessions = () => {
  const [, value] = SESSION_ORDERS[sessionList.order];
  return sessionList.all
    .filter((each) => matchesWords(each, sessionList.words))
    .filter((each) => !sessionList.outcome || sessionState(each) === sessionList.outcome)
    .sort((a, b) => value(b) - value(a));
};

const drawSessionRow = (session) => {
  const { error } = session;
  const title = error
    ? "This session cannot be read"
    : oneLine(session.name || session.prompt.trim().split("\n\n")[0], 160);
  const facts = [session.folder, session.model, session.id.slice(0, 8)];
  const details = error ? oneLine(error, 200) : facts.filter(Boolean).join(" · ");
  const state = sessionState(session);
  const figure = (kind, words) => h("span", { class: `figure ${kind}` }, words);
  const short = (kind, words) => words && h("span", { class: `short ${kind}` }, `${words} · `);
  const runs = session.children + session.prompts;
  const cost = session.usd === null ? "" : formatMoney(session.usd);
  return h(
    "li",
    { class: "session" },
    h("input", {
      type: "checkbox",
      "aria-label": `Compare: ${title || session.id}`,
      checked: sessionList.chosen.has(session.id),
      change: (event) => chooseSession(session.id, event.currentTarget.checked),
    }),
    h(
      "a",
      { class: "asked", href: `#session=${encodeURIComponent(session.id)}` },
      h("b", null, title || "no prompt yet"),
      h("em", null, short("when", formatDate(session.when)), short("cost", cost), details),
    ),
    figure("when", formatDate(session.when)),
    figure("runs", runs ? plural(runs, "run") : ""),
    figure("tokens", session.tokens ? `${formatTokens(session.tokens)} tokens` : ""),
    figure("cost", cost),
    figure("time", session.seconds ? formatSeconds(session.seconds) : ""),
    h("span", { class: `badge ${state === "empty" ? "unfinished" : state}` }, state),
  );
};

const chooseSession = (id, on) => {
  if (on) sessionList.chosen.add(id);
  else sessionList.chosen.delete(id);
  while (sessionList.chosen.size > 2)
    sessionList.chosen.delete(sessionList.chosen.values().next().value);
  drawSessionRows();
};

const drawNoSessions = () =>
  h(
    "div",
    { class: "empty" },
    h("h2", null, "No sessions yet"),
    h("p", null, "mudroom records each session, and this page shows them. Start one with"),
    h(
      "pre",
      { class: "code" },
      'mudroom -p "use a subtask to find which testing framework this project uses"',
    ),
  );

const drawChoice = (name, words, options) =>
  h(
    "select",
    {
      "aria-label": words,
      change: (event) => {
        sessionList[name] = event.currentTarget.value;
        drawSessionRows();
      },
    },
    options.map(([value, text]) =>
      h("option", { value, selected: sessionList[name] === value }, text),
    ),
  );

const drawListHead = () =>
  h(
    "div",
    { class: "listhead" },
    h("h2", { id: "list-title" }),
    h("input", {
      id: "list-query",
      type: "search",
      placeholder: "Search prompts, folders, models",
      "aria-label": "Search sessions",
      autocomplete: "off",
      spellcheck: "false",
      value: sessionList.words,
      input: (event) => {
        sessionList.words = event.currentTarget.value.trim();
        drawSessionRows();
      },
    }),
    drawChoice("outcome", "Outcome", Object.entries(OUTCOMES)),
    drawChoice(
      "order",
      "Order",
      Object.entries(SESSION_ORDERS).map(([name, [words]]) => [name, words]),
    ),
  );

/** Draw the list; a list that is shown keeps its search field. */
const drawSessions = ({ sessions, total }) => {
  if (app.fold || $("list").hidden) return;
  Object.assign(sessionList, { all: sessions, total });
  if (!sessions.length) return setChildren($("list"), drawNoSessions());
  if (!$("list-rows"))
    setChildren(
      $("list"),
      drawListHead(),
      h("ul", { id: "list-rows", class: "sessions" }),
      h("div", { id: "list-foot" }),
    );
  drawSessionRows();
};

const drawSessionRows = () => {
  const shown = selectSessions();
  const { all, chosen } = sessionList;
  const stamp = JSON.stringify([shown, [...chosen], sessionList.total, sessionList.isReading]);
  if ($("list-rows").dataset.stamp === stamp) return;
  const focused =
    document.activeElement?.closest?.("#list-rows") && document.activeElement.ariaLabel;
  $("list-rows").dataset.stamp = stamp;
  $("list-title").textContent = describeList(shown.length, all.length, sessionList.total);
  setChildren($("list-rows"), shown.map(drawSessionRow));
  if (focused)
    [...$("list-rows").querySelectorAll("input")]
      .find((each) => each.ariaLabel === focused)
      ?.focus();
  setChildren(
    $("list-foot"),
    !shown.length && h("p", { class: "empty" }, "No session matches."),
    sessionList.total > all.length && drawOlderButton(),
    chosen.size > 0 && drawCompareBar(),
  );
};

/** Return how many sessions are shown, of those in the list, and of all. */
const describeList = (shown, listed, total) => {
  const all = total > listed ? `the newest ${formatCount(listed)} sessions` : plural(total, "session");
  if (shown < listed) return `${formatCount(shown)} of ${all}`;
  return total > listed ? `${formatCount(listed)} of ${plural(total, "session")}` : all;
};

/** Return the button that adds older sessions to the list, which search and order use, too. */
const drawOlderButton = () => {
  const { all, total, isReading } = sessionList;
  const older = Math.min(total, MAX_SESSIONS) - all.length;
  if (older <= 0)
    return h("p", { class: "older" }, `mudroom runs -n ${total} lists older sessions, too.`);
  const read = async () => {
    Object.assign(sessionList, { limit: MAX_SESSIONS, isReading: true });
    drawSessionRows();
    try {
      drawSessions(await fetchSessions(sessionList.limit));
    } catch (error) {
      app.showError(String(error.message ?? error));
    }
    sessionList.isReading = false;
    drawSessionRows();
  };
  return h(
    "p",
    { class: "older" },
    `Search and order use the newest ${formatCount(all.length)} of ${plural(total, "session")}. `,
    h(
      "button",
      { class: "more", disabled: Boolean(isReading), click: read },
      isReading ? "reading…" : `list ${formatCount(older)} older`,
    ),
  );
};

const drawCompareBar = () => {
  const [a, b] = sessionList.chosen;
  return h(
    "div",
    { class: "comparebar" },
    b
      ? h(
          "a",
          { class: "more", href: compareLink({ session: a }, { session: b }) },
          "compare these two",
        )
      : h("span", null, "Choose another session to compare."),
  );
};
