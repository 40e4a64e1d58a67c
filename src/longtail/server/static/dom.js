// How elements are made on this page: text goes in as text nodes, never as markup.

export const $ = (id) => document.getElementById(id);

/** Make an element: "tag.class.class", attributes (functions listen to the event of that name), children. */
export function el(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value !== null) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

/** A name someone else wrote, kept apart from the direction of the words around it. */
export const name = (text) => el("bdi", {}, text);

export const names = (texts) => texts.flatMap((text, at) => (at ? [", ", name(text)] : [name(text)]));

/** A bar filled to a share of 0 to 1; its number must stand beside it. */
export function bar(share, kind = "") {
  const inner = el("span");
  inner.style.width = `${100 * Math.min(1, Math.max(0, share || 0))}%`;
  return el(`span.bar${kind && `.${kind}`}`, { "aria-hidden": "true" }, inner);
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
export const link = (label) => `#label=${encodeURIComponent(label)}`;

/** Make buttons with role=tab work as tabs; `choose` is given the id of the one chosen. */
export function tabs(buttons, choose) {
  const select = (chosen) => {
    for (const button of buttons) {
      button.setAttribute("aria-selected", String(button === chosen));
      button.tabIndex = button === chosen ? 0 : -1;
    }
    choose(chosen.id);
  };
  buttons.forEach((button, at) => {
    button.addEventListener("click", () => select(button));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = buttons[(at + step + buttons.length) % buttons.length];
      next.focus();
      select(next);
    });
  });
}

/** The one of `items` that an arrow, Home or End leads to from the one with the focus; null: before the first. */
export function stepped(event, items) {
  const at = items.indexOf(event.currentTarget);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
  if (next === undefined) return undefined;
  event.preventDefault();
  return next < 0 ? null : items[Math.min(next, items.length - 1)];
}

/** Call `action` once the calls have stopped for `wait` ms. */
export function debounce(action, wait) {
  let timer = 0;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

let hiding = 0;
/** Say something for a moment at the foot of the page. */
export function toast(sentence) {
  $("toast").textContent = sentence;
  $("toast").classList.add("shown");
  clearTimeout(hiding);
  hiding = setTimeout(() => $("toast").classList.remove("shown"), 2500);
}
