// Labels: search by name, and the panel of one with its frequency, neighbours and documents.
import { $, bar, count, debounce, el, link, name, names, stepped } from "./dom.js";
import { questions, showProblem } from "./api.js";
import { accept, isAccepted } from "./decisions.js";

const MOST = 50; // labels shown of those found
const searches = questions();
const opened = questions();
let shown = null;
let tag = () => {};

function search() {
  const query = new URLSearchParams({ query: $("query").value.trim(), limit: MOST });
  const failed = (error) => showProblem($("search-problem"), error, search);
  return searches.ask(`v1/labels?${query}`, { answered: showFound, failed });
}

function showFound({ labels, total }) {
  showProblem($("search-problem"), null);
  const rest = total > labels.length ? `, the first ${labels.length} shown` : "";
  $("found").textContent = total === 0 ? "no label has this in its name" : count(total, "label") + rest;
  const most = Math.max(1, ...labels.map((label) => label.documents));
  $("results").replaceChildren(...labels.map((label) => el("li", {},
    el("a", { href: link(label.id), keydown: arrows, "aria-current": label.id === shown ? "true" : null },
      el("span", {}, name(label.name)),
      el("span.score", {}, count(label.documents, "document")),
      bar(label.documents / most)))));
}

function arrows(event) {
  const next = stepped(event, [...$("results").querySelectorAll("a")]);
  if (next !== undefined) (next ?? $("query")).focus();
}

/** Open the panel of a label. */
export function openLabel(id) {
  const failed = (error) => showProblem($("label-panel"), error, () => openLabel(id));
  return opened.ask(`v1/label?${new URLSearchParams({ id })}`, { answered: showLabel, failed });
}

function showLabel(label) {
  shown = label.id;
  for (const each of $("results").querySelectorAll("a")) {
    each.ariaCurrent = each.getAttribute("href") === link(label.id) ? "true" : null;
  }
  const heading = el("h2", { tabindex: -1 }, name(label.name));
  $("label-panel").replaceChildren(
    el("div.head", {}, heading, acceptButton(label)),
    facts(label),
    label.text && label.text !== label.name ? el("p.quote", { dir: "auto" }, label.text) : "",
    ...neighbours(label.neighbours),
    ...examples(label.examples));
  heading.focus({ preventScroll: innerWidth > 800 });
}

function acceptButton(label) {
  const on = isAccepted(label.id);
  const press = ({ currentTarget }) => {
    accept(label);
    const button = acceptButton(label);
    currentTarget.replaceWith(button);
    button.focus();
  };
  return el("button", { "aria-pressed": String(on), click: press }, on ? "✓ Accepted" : "Accept");
}

function facts(label) {
  const rows = [["documents", label.documents.toLocaleString("en")]];
  if (label.id !== label.name) rows.push(["id", el("code", {}, label.id)]);
  if (label.aliases.length) rows.push(["also", names(label.aliases)]);
  if (label.uri) rows.push(["address", webLink(label.uri)]);
  return el("dl", {}, rows.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]));
}

/** A link only where it leads to the web: an address such as javascript: stays text. */
function webLink(uri) {
  const safe = /^https?:\/\//i.test(uri);
  return safe ? el("a", { href: uri, rel: "noopener noreferrer", target: "_blank" }, uri) : el("code", {}, uri);
}

function neighbours(list) {
  if (!list.length) return [];
  const title = ({ weight }) => (weight === null ? null : `weight ${weight.toFixed(3)}`);
  const chips = list.map((each) => el("a.chip", { href: link(each.id), title: title(each) }, name(each.name)));
  return [el("h3", {}, "Neighbours"), el("div.chips", {}, chips)];
}

function examples(list) {
  if (!list.length) return [];
  return [el("h3", {}, "Documents that have it"), ...list.map(({ id, text }) => el("div", {},
    el("p.quote", { dir: "auto" }, text),
    el("div.row", {},
      id ? el("code.note", {}, id) : null,
      el("button.quiet.end", { click: () => tag(text) }, "Tag this text"))))];
}

/** Start; `useText(text)` tags a document of a label. */
export function startLabels(useText) {
  tag = useText;
  $("query").addEventListener("input", debounce(search, 200));
  $("query").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    $("results").querySelector("a")?.focus();
  });
}

let searched = false;
/** Show the most frequent labels when the view is first opened. */
export function showLabels() {
  if (searched) return;
  searched = true;
  search();
}
