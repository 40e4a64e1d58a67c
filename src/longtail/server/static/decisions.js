// What the reader has accepted and rejected: it stays while the text is edited, and goes with the text.
import { $, count, el, link, name, toast } from "./dom.js";
import { copyText } from "./copy.js";

const accepted = new Map(); // label id -> name
const rejected = new Map();
let changed = () => {};

export const isAccepted = (id) => accepted.has(id);
export const rejectedIds = () => [...rejected.keys()];

function decide(label, decisions, others) {
  const moved = others.delete(label.id);
  if (!decisions.delete(label.id)) decisions.set(label.id, label.name);
  show();
  changed(moved || decisions === rejected);
}

/** Accept a label, or take that back. */
export const accept = (label) => decide(label, accepted, rejected);

/** Reject a label: it is left out of the suggestions until that is taken back. */
export const reject = (label) => decide(label, rejected, accepted);

/** Forget all decisions, as with another text. */
export function forget() {
  const asksAgain = rejected.size > 0;
  accepted.clear();
  rejected.clear();
  show();
  changed(asksAgain);
}

function chips(decisions, takeBack) {
  return [...decisions].map(([id, text]) => el("span.chip", {},
    el("a", { href: link(id), title: "About this label" }, name(text)),
    el("button", { "aria-label": `Take back: ${text}`, click: () => takeBack({ id, name: text }) }, "×")));
}

function show() {
  $("accepted-card").hidden = accepted.size === 0;
  $("accepted-heading").textContent = `Accepted (${accepted.size})`;
  $("accepted").replaceChildren(...chips(accepted, accept));
  const title = rejected.size ? [el("span.note", {}, "Rejected:")] : [];
  $("rejected").replaceChildren(...title, ...chips(rejected, reject));
}

function written(form) {
  if (form === "ids") return [...accepted.keys()].join("\n");
  if (form === "names") return [...accepted.values()].join("\n");
  return JSON.stringify({ text: $("text").value, labels: [...accepted.keys()] });
}

/** Copy the accepted labels in the form chosen. */
export async function copyAccepted() {
  if (accepted.size === 0) return toast("No label is accepted yet");
  return copyText(written($("copy-as").value), `${count(accepted.size, "label")} copied`);
}

/** Start; `onChange(whether other labels are to be suggested)` is called after each decision. */
export function startDecisions(onChange) {
  changed = onChange;
  $("copy-accepted").addEventListener("click", copyAccepted);
  $("forget").addEventListener("click", forget);
}
