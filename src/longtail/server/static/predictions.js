// Suggestions for the text of the moment: asked while typing, the newest question only.
import { $, bar, count, debounce, el, percent, stepped } from "./dom.js";
import { questions, showProblem } from "./api.js";
import { accept, isAccepted, reject, rejectedIds } from "./decisions.js";
import { showCode } from "./copy.js";

const TYPING = 300; // ms without a key before the server is asked
const state = { labels: [], answer: null, calibrated: true, picked: null, chosen: null, focus: null };
const asked = questions();
let choose = () => {};

/** The score in the reader's terms: a probability where the model is calibrated. */
export const score = (value) => (state.calibrated ? percent(value) : value.toFixed(3));
export const text = () => $("text").value.toWellFormed?.() ?? $("text").value;

/** The request body; the threshold is cut here, so that the slider answers at once. */
function body(threshold) {
  const exclude = rejectedIds();
  const plain = { documents: [{ text: text() }], k: wanted() };
  return { ...plain, ...(threshold && { threshold }), ...(exclude.length && { exclude }) };
}

function wanted() {
  const { value, max } = $("k");
  return Math.min(Number(max), Math.max(1, Math.round(Number(value)) || 5));
}

const cut = () => Number($("threshold").value);

/** Ask for the labels of the text now. */
export function predict() {
  later.cancel();
  if (!text().trim()) return clear();
  const started = performance.now();
  const waiting = (seconds) => say(`The server is busy; trying again in ${Math.ceil(seconds)} s`);
  const answered = (answer) => arrived(answer, performance.now() - started);
  return asked.ask("v1/predict", { body: body(0), waiting, answered, failed: clear });
}

/** Ask once the reader has stopped typing. */
export const later = debounce(predict, TYPING);

function arrived(answer, milliseconds) {
  showProblem($("problem"), null);
  state.answer = answer;
  state.labels = answer.predictions[0].labels;
  say(`${count(state.labels.length, "label")} in ${Math.round(milliseconds)} ms`);
  const label = state.labels.find(({ id }) => id === state.picked) ?? shownLabels()[0] ?? null;
  state.chosen = label?.id;
  show();
  choose(label, false);
}

/** No suggestions: there is no text, or an error in place of an answer. */
function clear(error = null) {
  asked.stop();
  Object.assign(state, { labels: [], answer: null });
  showProblem($("problem"), error, predict);
  say("");
  show();
  choose(null, false);
}

function say(sentence) {
  $("status").textContent = sentence;
}

const shownLabels = () => state.labels.filter((label) => label.score >= cut());

/** Draw the list again, with the focus where it was. */
export function show() {
  const list = $("suggestions");
  const focused = list.contains(document.activeElement) || state.focus !== null;
  const at = state.focus ?? [...list.children].findIndex((row) => row.contains(document.activeElement));
  state.focus = null;
  const labels = shownLabels();
  list.replaceChildren(...labels.map(row));
  const rows = [...list.querySelectorAll(".name")];
  const tab = rows[Math.max(0, labels.findIndex((label) => label.id === state.chosen))];
  if (tab) tab.tabIndex = 0;
  if (focused) (rows[Math.min(at, rows.length - 1)] ?? $("text")).focus();
  $("empty").hidden = text().trim() !== "";
  const hidden = state.labels.length - labels.length;
  const nothing = state.answer && !state.labels.length ? "No label was found for this text." : "";
  $("below").textContent = hidden ? `${count(hidden, "label")} below the threshold` : nothing;
  showCode(state.answer && body(cut()), state.answer && { ...state.answer, predictions: [{ id: null, labels }] });
}

function row(label) {
  const on = isAccepted(label.id);
  const told = `${label.name}, ${on ? "accepted, " : ""}${score(label.score)}`;
  const act = (verb, sign, click, more = {}) => el(`button.${verb.toLowerCase()}`,
    { tabindex: -1, "aria-label": `${verb}: ${label.name}`, title: verb, click, ...more }, sign);
  const main = el("button.name", {
    tabindex: -1, dir: "auto", title: label.name === label.id ? null : label.id,
    "aria-label": told, click: () => pick(label), keydown: (event) => press(event, label),
  }, label.name);
  return el(`li${on ? ".accepted" : ""}${label.id === state.chosen ? ".chosen" : ""}`, {},
    main,
    el("span.score", {}, score(label.score)),
    el("span.acts", {},
      act("Why", "why", () => pick(label, true)),
      act("Accept", "✓", () => accept(label), { "aria-pressed": String(on) }),
      act("Reject", "✕", () => refuse(label))),
    bar(label.score));
}

/** Show why this label; `go` also brings the reader there. */
function pick(label, go = false) {
  state.picked = state.chosen = label.id;
  show();
  choose(label, true, go);
}

function refuse(label) {
  const at = shownLabels().findIndex((each) => each.id === label.id);
  if ($("suggestions").contains(document.activeElement)) state.focus = at;
  state.labels = state.labels.filter((each) => each.id !== label.id);
  reject(label);
}

function press(event, label) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const next = stepped(event, [...$("suggestions").querySelectorAll(".name")]);
  if (next !== undefined) next?.focus();
  else if (event.key === "Enter") accept(label);
  else if (event.key === "Delete" || event.key === "Backspace") refuse(label);
  else return;
  event.preventDefault();
}

/** Start; `onChoose(label or null, by the reader, go there)` is called when the label to explain changes. */
export function startPredictions(model, onChoose) {
  choose = onChoose;
  state.calibrated = model?.calibrated ?? false;
  $("text").addEventListener("input", later);
  $("k").addEventListener("input", later);
  $("threshold").addEventListener("input", () => {
    $("threshold-value").textContent = state.calibrated ? `${Math.round(100 * cut())} %` : cut().toFixed(2);
    show();
  });
}

/** Go to the first suggestion, by keyboard. */
export function focusFirst() {
  $("suggestions").querySelector(".name")?.focus();
}
