// The picker: a combobox over the class names, the likely ones first.
import {$, make, percent} from "./dom.js";

const SHOWN = 60;  // classes that are listed at once

export function createPicker({classes, onPick}) {
  let image = null, card = null;

  function open(chosen, from, picture) {
    [image, card] = [chosen, from];
    $("picker-title").textContent = image.name ?? `image ${image.step}`;
    $("picker-answers").textContent = [`Answer: ${image.label} ${percent(image.probability)}`,
      `Zero-shot: ${image.zero_shot_label} ${percent(image.zero_shot_probability)}`,
      image.corrected ? `Corrected: ${image.corrected}` : ""].join("\n").trim();
    $("picker-image").hidden = !picture;
    if (picture) $("picker-image").src = picture;
    $("query").value = "";
    $("picker").showModal();
    suggest();
    $("query").focus();
  }

  function matches(query) {
    const names = classes();
    if (!query) {
      const likely = [image.corrected, image.label, ...image.top.map(({label}) => label), image.zero_shot_label];
      return [...new Set([...likely.filter(name => names.includes(name)), ...names])];
    }
    const found = [[], [], []];  // begins so, has a word that does, has it somewhere
    for (const name of names) {
      const text = name.toLowerCase(), words = text.split(/[^\p{L}\p{N}]+/u);
      if (text.includes(query)) found[text.startsWith(query) ? 0 : words.some(word => word.startsWith(query)) ? 1 : 2].push(name);
    }
    return found.flat();
  }

  function suggest() {
    const names = matches($("query").value.trim().toLowerCase()), rest = names.length - SHOWN;
    const probabilities = new Map(image.top.map(({label, probability}) => [label, probability]));
    $("options").replaceChildren(...names.slice(0, SHOWN).map((name, number) => {
      const item = make("li", "", name), hints = [];
      item.id = "option-" + number;
      item.setAttribute("role", "option");
      item.label = name;
      if (name === image.label) hints.push("the answer");
      if (probabilities.has(name)) hints.push(percent(probabilities.get(name)));
      item.append(make("small", "", hints.join(" · ")));
      return item;
    }));
    $("more").textContent = rest > 0 ? `and ${rest} more: type a part of the name`
      : names.length ? "" : "No class has this name: add it first.";
    mark($("options").firstChild);
  }

  function mark(item) {
    for (const other of $("options").children) other.setAttribute("aria-selected", other === item);
    if (!item) return $("query").removeAttribute("aria-activedescendant");
    $("query").setAttribute("aria-activedescendant", item.id);
    item.scrollIntoView({block: "nearest"});
  }

  function pick(item) {
    if (!item) return;
    const chosen = image;
    $("picker").close();
    onPick(chosen, item.label);
  }

  function steer(event) {
    const item = $("options").querySelector("[aria-selected=true]");
    if (event.key === "ArrowDown") mark(item?.nextSibling || $("options").firstChild);
    else if (event.key === "ArrowUp") mark(item?.previousSibling || $("options").lastChild);
    else if (event.key === "Enter" && !event.isComposing) pick(item);
    else return;
    event.preventDefault();
  }

  $("query").addEventListener("input", suggest);
  $("query").addEventListener("keydown", steer);
  $("options").addEventListener("mousedown", event => event.preventDefault());  // the focus stays in the field
  $("options").addEventListener("click", event => pick(event.target.closest("li")));
  $("cancel").addEventListener("click", () => $("picker").close());
  $("picker").addEventListener("close", () => card.focus());
  return {open};
}
