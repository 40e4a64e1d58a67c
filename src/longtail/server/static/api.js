// Calls to the server: the token, retries when it is busy, and what went wrong as a sentence.
import { $, el } from "./dom.js";

const TRIES = 5;
const TOKEN = "longtail-token";

/** What went wrong, as a sentence for the reader. */
export class Problem extends Error {
  constructor(sentence, request = "") {
    super(sentence);
    this.request = request;
  }
}

export const address = (path) => new URL(path, document.baseURI).href;
const kept = () => sessionStorage.getItem(TOKEN);
export const hasToken = () => kept() !== null;

/** Get, or post `body`; waits and tries again after 503, asks for a token after 401; throws Problem or AbortError. */
export async function call(path, { body, signal, waiting } = {}) {
  for (let attempt = 1; ; attempt += 1) {
    const token = kept();
    const response = await send(path, body, signal, token);
    if (response.ok) return await response.json();
    const problem = await problemOf(response);
    if (response.status === 401 && (kept() !== token || (await askToken(token !== null)))) continue;
    if (response.status !== 503 || attempt === TRIES) throw problem;
    const seconds = Math.min(30, Math.max(0.2, Number(response.headers.get("Retry-After")) || 1));
    if (waiting) waiting(seconds);
    await new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); }); // one ended meanwhile stops in `send`
  }
}

async function send(path, body, signal, token) {
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const post = { method: "POST", body: JSON.stringify(body) };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(address(path), { ...(body !== undefined && post), headers, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer. Is it still running?");
  }
}

async function problemOf(response) {
  const told = await response.json().catch(() => ({}));
  const sentence = [told.detail, told.title].find((text) => typeof text === "string" && text);
  const request = told.request_id ?? response.headers.get("X-Request-ID") ?? "";
  return new Problem(sentence ?? `The server answered with status ${response.status}.`, String(request));
}

/** Questions of one place of the page: a newer one ends the older, whose answer is never shown. */
export function questions() {
  let newest = null;
  const stop = () => {
    newest?.abort();
    newest = null;
  };
  const ask = async (path, { answered, failed, ...options }) => {
    stop();
    const mine = new AbortController();
    newest = mine;
    try {
      const answer = await call(path, { ...options, signal: mine.signal });
      if (newest === mine) answered(answer);
    } catch (error) {
      if (newest === mine && error.name !== "AbortError") failed(error);
    }
  };
  return { ask, stop };
}

let asking = null;
let declined = false; // then only a click on "Try again" asks once more
/** Ask once however many calls wait for it; true when one was given. */
function askToken(refused) {
  if (declined) return false;
  asking ??= new Promise((resolve) => {
    const dialog = $("token");
    $("token-note").textContent = refused ? "The token was not accepted. Please give another." : "";
    $("token-value").value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "give" ? $("token-value").value.trim() : "";
      $("token-value").value = "";
      declined = !/^[!-~]+$/.test(given); // what a header can hold
      if (!declined) sessionStorage.setItem(TOKEN, given);
      asking = null;
      resolve(!declined);
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

/** Show a problem in `place` with its request id and a way to try again; null takes it away. */
export function showProblem(place, problem, again) {
  place.replaceChildren();
  if (!problem) return;
  const sentence = problem instanceof Problem ? problem.message : `The page made a mistake: ${problem.message}`;
  place.append(el("div.problem", {},
    el("p", {}, /[.!?]$/.test(sentence) ? sentence : `${sentence}.`),
    problem.request ? el("p.note", {}, "Request ", el("code", {}, problem.request)) : null,
    again ? el("button", { click: () => tryAgain(again) }, "Try again") : null));
}

function tryAgain(again) {
  declined = false;
  again();
}
