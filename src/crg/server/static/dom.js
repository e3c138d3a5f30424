// What the page says. The helpers are those of cards.js, a plain script that comes before.
export const {$, make, percent, several, createPicker} = globalThis;

export function say(sentence) { $("status").textContent = sentence; }

export function complain(sentence) {
  $("problem").firstElementChild.textContent = sentence;
  $("problem").hidden = !sentence;
}
