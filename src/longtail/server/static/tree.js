// The way through the label tree: the nodes the beam kept at each level, the label's own marked.
import { $, bar, count, el, link, name, names } from "./dom.js";

function title(node) {
  if (node.label !== undefined && node.label !== null) {
    return el("a", { href: link(node.label) }, name(node.names[0] ?? node.label));
  }
  return el("span", {}, names(node.names), node.labels > node.names.length ? " …" : "");
}

function box(node, largest) {
  const below = node.label === undefined || node.label === null ? count(node.labels, "label") : "";
  return el(`li${node.on_path ? ".on" : ""}`, node.on_path ? { "aria-current": "step" } : {},
    el("span", {}, title(node)),
    el("span.score", {}, node.score.toFixed(3)),
    below ? el("span.note", {}, below) : null,
    bar(node.score / largest));
}

function level({ level: number, nodes }, last) {
  const largest = Math.max(...nodes.map((node) => node.score), 1e-9);
  return el("li", {},
    el("h3", {}, last ? "Labels" : `Level ${number}`),
    el("ol", { "aria-label": last ? "Labels in the beam" : `Nodes of level ${number}` },
      nodes.map((node) => box(node, largest > 1 ? largest : 1))));
}

/** Draw the levels of an answer of /v1/path. */
export function showTree({ levels }) {
  if (!levels.length) {
    $("path").replaceChildren(el("p.empty", {}, "This model has no label tree: it scores its labels directly."));
    return;
  }
  $("path").replaceChildren(
    el("p.note", {}, "At each level the beam keeps the best nodes and looks below these only."),
    el("ol.way", {}, levels.map((each, at) => level(each, at === levels.length - 1))));
}
