// The header, the filters and the tabs.
"use strict";

const ERROR_HELP =
  "Failed runs, and failed calls of tools and of the model. A failed child counts once.";

const describeLoading = () => `Loading session ${app.selection.session.slice(0, 8)}…`;

const drawHeader = (fold) => {
  const first = fold.roots[0];
  const usage = fold.roots.reduce(
    (sum, run) => addUsage(sum, addUsage(run.usage, run.below)),
    NO_USAGE,
  );
  const spent =
    fold.roots.length && fold.roots.every((run) => run.usd !== null)
      ? fold.roots.reduce((sum, run) => sum + run.usd, 0)
      : null;
  document.title = first ? `${oneLine(runTitle(first), 60)} · mudroom` : "mudroom";
  setChildren(
    $("title"),
    app.live && h("span", { class: "pulse" }, "live"),
    first ? oneLine(runTitle(first), 200) : app.isLoaded ? "An empty session" : describeLoading(),
  );
  setChildren(
    $("about"),
    [fold.cwd, fold.board && "task board", first?.model, first && formatDate(first.started), fold.session.slice(0, 8)]
      .filter(Boolean)
      .map((each) => h("span", { title: each }, oneLine(each, 80))),
    fold.session && drawCopyButton(() => fold.session, "the session id"),
  );
  const figure = (value, words, kind = "", title = "") =>
    h("span", { class: kind, title: title || null }, h("b", null, value), words);
  if (!first && !app.isLoaded) return setChildren($("totals"));
  setChildren(
    $("totals"),
    figure(formatCount(fold.runs.size), fold.runs.size === 1 ? "run" : "runs"),
    figure(formatTokens(totalTokens(usage)), "tokens"),
    spent !== null && spent > 0 && figure(formatMoney(spent), "spent"),
    fold.errors > 0 &&
      figure(formatCount(fold.errors), fold.errors === 1 ? "error" : "errors", "bad", ERROR_HELP),
  );
};

const drawFilters = (fold) => {
  const key = `${fold.messages.length > 0} ${fold.errors} ${fold.refused} ${[...fold.tools].join()} ${Object.values(app.filter).join()}`;
  if ($("filters").dataset.key === key) return;
  $("filters").dataset.key = key;
  const set = (change) => {
    Object.assign(app.filter, change);
    app.draw({ seek: true });
  };
  const chip = (name, words, amount) =>
    h(
      "button",
      {
        class: `chip ${name}`,
        "aria-pressed": String(app.filter[name]),
        disabled: !amount && !app.filter[name],
        click: () => set({ [name]: !app.filter[name] }),
      },
      words,
      h("b", null, formatCount(amount)),
    );
  const names = [...fold.tools].sort((a, b) => b[1] - a[1]);
  const choose = h(
    "select",
    { "aria-label": "Tool", change: (event) => set({ tool: event.currentTarget.value }) },
    h("option", { value: "" }, "all tools"),
    names.map(([name, times]) =>
      h(
        "option",
        { value: name, selected: app.filter.tool === name },
        `${name} (${formatCount(times)})`,
      ),
    ),
  );
  const clear =
    isFiltering(app.filter) &&
    h(
      "button",
      { class: "chip clear", click: () => set({ errors: false, refused: false, tool: "" }) },
      "clear",
    );
  const legend = h(
    "span",
    { class: "key" },
    h("i", { class: "model" }),
    "model",
    h("i", { class: "tool" }),
    "tools",
    h("i", { class: "bad" }),
    "error",
    fold.messages.length > 0 && [h("i", { class: "arrow" }), "message"],
  );
  setChildren(
    $("filters"),
    chip("errors", "errors", fold.errors),
    chip("refused", "refused", fold.refused),
    choose,
    clear,
    legend,
  );
};

/** Return the names of the tabs: "work" only if a run had an isolated workspace. */
const listTabs = (fold) => Object.keys(TABS).filter((name) => name !== "work" || hasWork(fold));

const drawTabs = (fold) => {
  const share = savedShare(computeLedger(fold));
  const count = {
    context: app.selection.turn ? ` · ${app.selection.turn}` : "",
    ledger: share > 0 ? ` · ${formatShare(share, 1)}` : "",
  };
  setChildren(
    $("tabs"),
    listTabs(fold).map((name) =>
      h(
        "button",
        {
          role: "tab",
          "aria-selected": String(app.selection.tab === name),
          "aria-controls": "body",
          tabindex: app.selection.tab === name ? "0" : "-1",
          "data-tab": name,
          click: () => app.navigate({ tab: name }),
        },
        TABS[name],
        count[name] && h("em", null, count[name]),
      ),
    ),
  );
  if (isNarrow())
    $("tabs")
      .querySelector("[aria-selected=true]")
      .scrollIntoView({ block: "nearest", inline: "nearest" });
};

const isNarrow = () => $("views").offsetHeight > 0;

const drawEmpty = () => {
  setChildren($("head"));
  setChildren($("tabs"));
  app.reader.set([
    {
      pane: "empty",
      words: !app.isLoaded
        ? describeLoading()
        : app.live
          ? "Nothing has been recorded yet."
          : "No run is recorded in this session.",
    },
  ]);
};
