// Buttons that copy a text: an answer, a command, a report, an id.
"use strict";

/** Return a button that copies the text that `getText` returns. `what`: its name. */
const drawCopyButton = (getText, what) =>
  h(
    "button",
    {
      class: "copy",
      title: `Copy ${what}`,
      "aria-label": `Copy ${what}`,
      click: (event) => {
        event.stopPropagation();
        copyText(getText(), event.currentTarget);
      },
    },
    "copy",
  );

/** Copy a text, and show that on the button. */
const copyText = async (text, button) => {
  const isCopied = (await writeClipboard(text)) || copySelected(text);
  button.classList.add(isCopied ? "copied" : "uncopied");
  $("status").textContent = isCopied ? "Copied" : "The browser does not allow copying";
  setTimeout(() => {
    button.classList.remove("copied", "uncopied");
    $("status").textContent = "";
  }, 1200);
};

const writeClipboard = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not a secure address, or not permitted
  }
};

const copySelected = (text) => {
  const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
  const before = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  before?.focus();
  return isCopied;
};
