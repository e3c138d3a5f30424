// Small helpers. Texts reach the page as text, never as markup.
export const $ = id => document.getElementById(id);

export function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

export const percent = number => (100 * number).toFixed(number > 0.995 || number < 0.0005 ? 0 : 1) + "%";
export const several = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : /s$/.test(what) ? "es" : "s"}`;

export function say(sentence) { $("status").textContent = sentence; }

export function complain(sentence) {
  $("problem").firstElementChild.textContent = sentence;
  $("problem").hidden = !sentence;
}
