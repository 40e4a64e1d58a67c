// The page: its views, its keys, and what each part tells the others.
import { $ } from "./dom.js";
import { call, showProblem } from "./api.js";
import { copyAccepted, startDecisions } from "./decisions.js";
import { focusFirst, later, predict, show, startPredictions, text } from "./predictions.js";
import { explain, startReasons } from "./reasons.js";
import { openLabel, showLabels, startLabels } from "./labels.js";
import { showAbout, watchModel } from "./card.js";
import { offerExample, setText, showWelcome, startInput } from "./input.js";
import { startCode } from "./copy.js";

const VIEWS = ["tag", "labels", "model"];

/** Show the view that the address names: #tag, #labels, #label=ID or #model. */
function route() {
  const place = new URLSearchParams(location.hash.slice(1));
  const label = place.get("label");
  const view = label === null ? VIEWS.find((each) => place.has(each)) ?? "tag" : "labels";
  for (const each of VIEWS) $(`view-${each}`).hidden = each !== view;
  for (const link of document.querySelectorAll("[data-view]")) {
    link.ariaCurrent = link.dataset.view === view ? "page" : null;
  }
  if (view === "labels") showLabels();
  if (label !== null) openLabel(label);
  watchModel(view === "model");
}

function go(view, field) {
  location.hash = view;
  route();
  $(field).focus();
}

const KEYS = {
  "?": () => $("keys").showModal(),
  "/": () => go("labels", "query"),
  t: () => go("tag", "text"),
  c: copyAccepted,
};

function onKey(event) {
  const typing = event.target.matches("input:not([type=range]), textarea, select");
  if (event.target.id === "text" && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    focusFirst();
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const action = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
  if (!action) return;
  event.preventDefault();
  action();
}

function useText(value) {
  go("tag", "text");
  setText(value);
}

async function modelOrNull() {
  try {
    const model = await call("v1/model");
    showAbout(model);
    return model;
  } catch (error) {
    showProblem($("problem"), error, () => location.reload());
    return null;
  }
}

function onDecision(asksAgain) {
  show();
  if (asksAgain) later(); // the next best labels come up in place of rejected ones
}

async function start() {
  document.addEventListener("keydown", onKey);
  $("keys-button").addEventListener("click", () => $("keys").showModal());
  startInput(predict);
  startDecisions(onDecision);
  startCode();
  startLabels(useText);
  const model = await modelOrNull();
  showWelcome(model);
  startReasons(model);
  startPredictions(model, (label, byReader, there) => explain(label, text(), byReader, there));
  addEventListener("hashchange", route);
  route();
  if (text().trim()) predict(); // a text the browser kept over a reload
  else $("empty").hidden = false;
  if (model?.has_examples) await offerExample();
}

start();
