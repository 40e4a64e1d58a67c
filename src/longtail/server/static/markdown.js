// The part of Markdown that model cards are written in, as elements: no markup of the text is ever taken over.
import { el } from "./dom.js";

const isTable = (line) => line.startsWith("|");
const cells = (line) => line.replace(/^\||\|\s*$/g, "").split("|").map((cell) => cell.trim());

/** Words, and `code` among them. */
const inline = (text) => text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? el("code", {}, part) : part));

function table(lines) {
  const rows = lines.filter((line) => /[^|\s:-]/.test(line)).map(cells);
  const made = rows.map((row) => el("tr", {}, row.map((cell, at) => el(at ? "td" : "th", {}, inline(cell)))));
  return el("div.wide", {}, el("table", {}, el("tbody", {}, made)));
}

/** Elements of a text in Markdown: headings, paragraphs, tables, fenced code. */
export function markdown(text) {
  const lines = text.split("\n");
  const made = [];
  const take = (belongs) => {
    const taken = [];
    while (lines.length && belongs(lines[0])) taken.push(lines.shift());
    return taken;
  };
  while (lines.length) {
    const line = lines[0];
    const heading = /^(#{1,4}) (.*)/.exec(line);
    if (line.startsWith("```")) {
      lines.shift();
      made.push(el("pre", { tabindex: 0 }, take((each) => !each.startsWith("```")).join("\n")));
      lines.shift();
    } else if (heading) {
      lines.shift();
      made.push(el(heading[1].length === 1 ? "h2" : "h3", {}, inline(heading[2])));
    } else if (isTable(line)) made.push(table(take(isTable)));
    else if (!line.trim()) lines.shift();
    else made.push(el("p", {}, inline(take((each) => each.trim() && !/^(#{1,4} |```|\|)/.test(each)).join(" "))));
  }
  return made;
}
