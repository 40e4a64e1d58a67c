// The model: what it is, what it measured, its card, and how fast it answers at the moment.
import { $, count, el } from "./dom.js";
import { call, showProblem } from "./api.js";
import { markdown } from "./markdown.js";

const EVERY = 5000; // ms between looks at the latency
let timer = 0;

function facts(model) {
  const rows = [
    ["name", model.name], ["version", el("code", {}, model.version)], ["method", model.method],
    ["labels", model.labels.toLocaleString("en")],
    ...(model.shards ? [["answers with", `shards ${model.shards.join(", ")}`]] : []),
    ["documents", model.documents.toLocaleString("en")],
    ["scores", model.calibrated ? "probabilities" : "not calibrated"],
  ];
  return rows.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]);
}

/** {"P@1": …} as a table of metrics by cut-off, in percent. */
function metrics(measured) {
  const names = Object.keys(measured);
  const at = [...new Set(names.map((each) => each.split("@")[1] ?? ""))];
  const rows = [...new Set(names.map((each) => each.split("@")[0]))];
  const value = (row, k) => measured[k === "" ? row : `${row}@${k}`];
  const cell = (number) => el("td", {}, number === undefined ? "" : (100 * number).toFixed(1));
  return el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}), at.map((k) => el("th", { scope: "col" }, k && `@${k}`)))),
    el("tbody", {}, rows.map((row) =>
      el("tr", {}, el("th", { scope: "row" }, row), at.map((k) => cell(value(row, k)))))));
}

const milliseconds = (value) => (typeof value === "number" ? `${value.toFixed(value < 10 ? 1 : 0)} ms` : "–");

function showLatency(latency) {
  const figure = (value, words) => el("div", {}, el("strong", {}, value), el("span.note", {}, words));
  $("latency").replaceChildren(
    figure(milliseconds(latency.p50_ms), "median"),
    figure(milliseconds(latency.p99_ms), "99 of 100 within"),
    figure((latency.requests ?? 0).toLocaleString("en"), "requests"));
}

/** Say in one line at the top which model answers. */
export function showAbout(model) {
  $("about").textContent = `${model.name} · ${count(model.labels, "label")}`;
  $("about").title = `${model.method}, version ${model.version}`;
  document.title = `${model.name} – Longtail`;
}

let shown = "";
async function refresh() {
  try {
    const model = await call("v1/model");
    showProblem($("model-problem"), null);
    showLatency(model.latency ?? {});
    if (shown === model.version) return;
    shown = model.version; // the rest changes only with the model
    showAbout(model);
    $("facts").replaceChildren(...facts(model));
    const measured = model.metrics ?? {};
    $("metrics-card").hidden = Object.keys(measured).length === 0;
    $("metrics").replaceChildren(metrics(measured));
    $("measured-on").textContent = ["in percent", model.measured_on].filter(Boolean).join("; ");
    $("card").replaceChildren(...markdown(model.card ?? ""));
  } catch (error) {
    if (error.name !== "AbortError") showProblem($("model-problem"), error, refresh);
  }
}

/** Look at the model now and every few seconds while its view is open and the page visible. */
export function watchModel(open) {
  clearInterval(timer);
  if (!open) return;
  refresh();
  timer = setInterval(() => document.visibilityState === "visible" && refresh(), EVERY);
}
