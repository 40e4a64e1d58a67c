// The text: written, pasted, opened or dropped as a file, or an example of the model's own documents.
import { $, count, el, toast } from "./dom.js";
import { call } from "./api.js";
import { forget } from "./decisions.js";

const LARGEST = 5_000_000; // bytes of a file; what a server takes is mostly less
let changed = () => {};

/** Put another text in, with no decisions yet. */
export function setText(text) {
  forget();
  $("text").value = text;
  counted();
  changed();
}

function counted() {
  const { length } = Array.from($("text").value);
  $("count").textContent = length ? count(length, "character") : "";
  $("clear").hidden = length === 0;
}

/** The text of a file: of JSON its title and text, as the readers of data have it. */
function textOf(content, filename) {
  if (!/\.json$/i.test(filename)) return content;
  try {
    const { title, text } = JSON.parse(content);
    const parts = [title, text].filter((part) => typeof part === "string" && part);
    return parts.length ? parts.join(". ") : content;
  } catch {
    return content;
  }
}

async function readFile(file) {
  if (!file) return;
  if (file.size > LARGEST) {
    toast(`${file.name} has more than ${LARGEST / 1e6} MB`);
    return;
  }
  try {
    const content = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    setText(textOf(content, file.name));
  } catch {
    toast(`${file.name} is not text in UTF-8`);
  }
}

function startDrop() {
  const zone = $("drop");
  const hasFile = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    zone.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && zone.classList.remove("dropping"));
  document.addEventListener("drop", (event) => {
    zone.classList.remove("dropping");
    if (!hasFile(event)) return;
    event.preventDefault();
    readFile(event.dataTransfer.files[0]);
  });
}

/** Offer a document of the model's own, where the server has them. */
export async function offerExample() {
  try {
    const { labels } = await call("v1/labels?query=&limit=20");
    const { id } = labels[Math.floor(labels.length / 2)];
    const [example] = (await call(`v1/label?${new URLSearchParams({ id })}`)).examples;
    if (!example) return;
    $("empty").append(el("button.main", { click: () => setText(example.text) }, "Try an example"));
  } catch {
    // The page is whole without an example.
  }
}

/** What is said while there is no text. */
export function showWelcome(model) {
  const labels = model ? `${count(model.labels, "label")} this model knows` : "labels the model knows";
  $("empty").replaceChildren(
    el("p", {}, `Write, paste or drop a text: it gets the best few of the ${labels}, while you type.`),
    el("p.note", {}, "Accept those that fit and copy them; ask of each why it was suggested."));
}

/** Start; `onText()` is called when another text was put in. */
export function startInput(onText) {
  changed = onText;
  $("text").addEventListener("input", counted);
  $("open").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    readFile($("file").files[0]);
    $("file").value = "";
  });
  $("clear").addEventListener("click", () => {
    setText("");
    $("text").focus();
  });
  startDrop();
  counted();
}
