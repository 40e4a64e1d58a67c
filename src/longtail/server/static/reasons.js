// The panel of one label for one text: why, and the way through the tree, each asked for when looked at.
import { $, debounce, el, link, tabs } from "./dom.js";
import { questions, showProblem } from "./api.js";
import { showWhy } from "./why.js";
import { showTree } from "./tree.js";

const SLOW = 1000; // ms; a model that takes longer is asked only when the reader chooses a label
const IDLE = 250;
const NO_WORDS = "This model does not score by words, so none can be marked.";

const panels = {
  "tab-why": { place: "why", path: "v1/explain", show: showWhy },
  "tab-path": { place: "path", path: "v1/path", show: (_, answer) => showTree(answer) },
};
const state = { label: null, text: "", open: "tab-why", took: 0, words: true };
const asked = questions();

function ask() {
  const { place, path, show } = panels[state.open];
  if (place === "why" && !state.words) return $(place).replaceChildren(el("p.empty", {}, NO_WORDS));
  const { label, text } = state;
  const started = performance.now();
  const answered = (answer) => {
    state.took = performance.now() - started;
    show(text, answer);
  };
  const failed = (error) => showProblem($(place), error, ask);
  return asked.ask(path, { body: { text, label: label.id }, answered, failed });
}

const askIdle = debounce(ask, IDLE);

function wait() {
  $(panels[state.open].place).replaceChildren(
    el("button", { click: ask }, "Show it for this text"),
    el("p.note", {}, "This model takes a while to explain, so it is asked only when you want it."));
}

/** Show this label of this text, or nothing for null. */
export function explain(label, text, byReader, go) {
  askIdle.cancel();
  asked.stop();
  $("reasons").hidden = label === null;
  Object.assign(state, { label, text });
  if (label === null) return;
  $("reasons-heading").replaceChildren("Why ", el("bdi", {}, label.name));
  $("reasons-label").href = link(label.id);
  if (byReader) ask();
  else if (state.took < SLOW) askIdle();
  else wait();
  if (go) $("reasons").scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" });
}

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Start the two tabs; a model without a label tree has only the first. */
export function startReasons(model) {
  $("tab-path").hidden = !model?.has_tree;
  state.words = model?.has_text ?? true;
  tabs([$("tab-why"), $("tab-path")], (chosen) => {
    state.open = chosen;
    for (const [id, { place }] of Object.entries(panels)) $(place).hidden = id !== chosen;
    if (state.label) ask();
  });
}
