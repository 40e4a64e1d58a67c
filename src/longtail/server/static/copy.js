// The clipboard, and the request of the moment as curl, Python or its JSON answer.
import { $, tabs, toast } from "./dom.js";
import { address, hasToken } from "./api.js";

let form = "tab-curl";
let shown = { body: null, answer: null };

/** Copy, also where the page is not from a secure origin and the browser's clipboard is therefore closed. */
export async function copyText(text, done) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.body.appendChild(document.createElement("textarea"));
    const before = document.activeElement;
    area.value = text;
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    before?.focus();
    if (!copied) return toast("The browser does not let the page copy");
  }
  return toast(done);
}

const shellQuoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function asCurl(body) {
  const token = hasToken() ? ' \\\n  -H "Authorization: Bearer $LONGTAIL_TOKEN"' : "";
  const to = shellQuoted(address("v1/predict"));
  return `curl ${to} \\\n  -H 'Content-Type: application/json'${token} \\\n  -d ${shellQuoted(JSON.stringify(body))}`;
}

/** JSON of strings, numbers, lists and objects reads the same in Python. */
function asPython(body) {
  const token = hasToken() ? ', "Authorization": f"Bearer {os.environ[\'LONGTAIL_TOKEN\']}"' : "";
  return [
    `import json${token && "\nimport os"}\nimport urllib.request\n`,
    `body = ${JSON.stringify(body)}`,
    "request = urllib.request.Request(",
    `    ${JSON.stringify(address("v1/predict"))},`,
    "    data=json.dumps(body).encode(),",
    `    headers={"Content-Type": "application/json"${token}},`,
    ")",
    "with urllib.request.urlopen(request) as answer:",
    '    for label in json.load(answer)["predictions"][0]["labels"]:',
    '        print(f"{label[\'score\']:.2f}  {label[\'name\']}")',
  ].join("\n");
}

function written() {
  const body = shown.body ?? { documents: [{ text: "" }] };
  if (form === "tab-curl") return asCurl(body);
  if (form === "tab-python") return asPython(body);
  return shown.answer ? JSON.stringify(shown.answer, null, 2) : "The answer is shown here once there is a text.";
}

/** Show the code of this request and its answer. */
export function showCode(body, answer) {
  shown = { body, answer };
  $("code-text").textContent = written();
}

/** Start the tabs and the copy button. */
export function startCode() {
  tabs([$("tab-curl"), $("tab-python"), $("tab-json")], (chosen) => {
    form = chosen;
    $("code-text").setAttribute("aria-labelledby", chosen);
    $("code-text").textContent = written();
  });
  $("copy-code").addEventListener("click", () => copyText(written(), `Copied: ${$(form).textContent}`));
  showCode(null, null);
}
