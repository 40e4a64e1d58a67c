// Why a label: its words in the text, those for it and those against it, and the strongest as a list.
import { $, bar, el } from "./dom.js";

const STRONGEST = 12;
const SHADES = 4;
const FAINT = 0.04; // of the largest weight; below it a word stays unmarked

const side = (weight) => (weight < 0 ? "against" : "for");
const signed = (weight) => `${weight < 0 ? "−" : "+"}${Math.abs(weight).toFixed(3)}`;

/** The text with its highlights; their places count code points, not the UTF-16 units of JavaScript. */
function marked(text, highlights) {
  const points = Array.from(text);
  const largest = Math.max(...highlights.map(({ weight }) => Math.abs(weight)));
  const parts = [];
  let at = 0;
  for (const { start, end, weight } of highlights) {
    if (Math.abs(weight) < FAINT * largest) continue;
    const shade = Math.max(1, Math.ceil((SHADES * Math.abs(weight)) / largest)) || 1;
    const word = points.slice(start, end).join("");
    parts.push(points.slice(at, start).join(""));
    parts.push(el(`mark.${side(weight)}.shade${shade}`, { title: signed(weight) }, word));
    at = end;
  }
  return el("div.marked", { dir: "auto", tabindex: 0, role: "region", "aria-label": "The text with its words marked" },
    ...parts, points.slice(at).join(""));
}

/** Explanations with their weights: one, or those of an ensemble's members. */
function parts(explanation) {
  if (!explanation.members) return [[1, explanation]];
  return explanation.members.filter((member) => member.explanation).map((each) => [each.weight, each.explanation]);
}

/** What each word adds over all steps that are sums; of a network alone, how far its score falls without the word. */
function strongest(explanation) {
  const totals = new Map();
  for (const [share, { steps }] of parts(explanation)) {
    const sums = steps.filter((step) => step.kind !== "left-out");
    for (const step of sums.length ? sums : steps) {
      for (const { feature, contribution } of step.contributions) {
        totals.set(feature, (totals.get(feature) ?? 0) + share * contribution);
      }
    }
  }
  return [...totals].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, STRONGEST);
}

function words(list) {
  const largest = Math.abs(list[0][1]) || 1;
  return el("ul.words", { "aria-label": "The strongest words" }, list.map(([word, weight]) => {
    const length = bar(Math.abs(weight) / largest, side(weight));
    return el("li", {}, el("bdi.word", { title: word }, word), length, el("span.score", {}, signed(weight)));
  }));
}

function notes(explanation) {
  const told = (explanation.members ?? []).filter((member) => member.note);
  return told.map((member) => el("p.note", {}, `${member.method}: ${member.note}`));
}

/** Draw an explanation of the text. */
export function showWhy(text, explanation) {
  const list = strongest(explanation);
  const has = explanation.highlights.length > 0;
  $("why").replaceChildren(
    el("p.legend", {},
      el("span", {}, el("mark.for.shade3", {}, "words"), " that speak for the label"),
      el("span", {}, el("mark.against.shade3", {}, "words"), " against it")),
    has ? marked(text, explanation.highlights) : el("p.empty", {}, "No word of the text has a weight for this label."),
    list.length ? words(list) : "",
    ...notes(explanation));
}
