"use strict";
// What the page of crg review and the page of crg serve share: small helpers, and the picker of a
// label. A plain script, because the first has it inside. Texts never become markup.
function $(id) { return document.getElementById(id); }

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

function percent(number) {
  return number === undefined ? "" : (100 * number).toFixed(number > 0.995 || number < 0.0005 ? 0 : 1) + "%";
}

function several(n, what) {
  return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;
}

// A combobox over the class names, the likely ones first. `image` is what `open` was given. With `addHint` a name that
// is no class can be chosen too. `onPick` may return another card to go to.
function createPicker({classes, likely, hint, noClass, addHint, onPick}) {
  const SHOWN = 60;  // classes that are listed at once
  let image = null, card = null;

  function open(chosen, from, {title, answers, picture}) {
    [image, card] = [chosen, from];
    $("picker-title").textContent = title;
    $("picker-answers").textContent = answers.filter(([, label]) => label)
      .map(([what, label, probability]) => `${what}: ${label} ${percent(probability)}`.trim()).join("\n");
    $("picker-image").hidden = !picture;
    if (picture) $("picker-image").src = picture;
    $("query").value = "";
    $("picker").showModal();
    suggest();
    $("query").focus();
  }

  function matches(query) {
    const names = classes();
    if (!query) return [...new Set([...likely(image).filter(name => names.includes(name)), ...names])];
    const found = [[], [], []];  // begins so, has a word that does, has it somewhere
    for (const name of names) {
      const text = name.toLowerCase(), words = text.split(/[^\p{L}\p{N}]+/u);
      if (text.includes(query)) found[text.startsWith(query) ? 0 : words.some(word => word.startsWith(query)) ? 1 : 2].push(name);
    }
    return found.flat();
  }

  function suggest() {
    const query = $("query").value.trim(), names = matches(query.toLowerCase()), rest = names.length - SHOWN;
    const isNew = addHint && query && !names.some(name => name.toLowerCase() === query.toLowerCase());
    const items = names.slice(0, SHOWN).map(name => option(name, hint(image, name)));
    $("options").replaceChildren(...items, ...(isNew ? [option(query, addHint)] : []));
    for (const [number, item] of [...$("options").children].entries()) item.id = "option-" + number;
    $("more").textContent = rest > 0 ? `and ${rest} more: type a part of the name` : names.length ? "" : noClass;
    mark($("options").firstChild);
  }

  function option(name, remark) {
    const item = make("li", "", name);
    item.setAttribute("role", "option");
    item.label = name;
    if (remark) item.append(make("small", "", remark));
    return item;
  }

  function mark(item) {
    for (const other of $("options").children) other.setAttribute("aria-selected", other === item);
    if (!item) return $("query").removeAttribute("aria-activedescendant");
    $("query").setAttribute("aria-activedescendant", item.id);
    item.scrollIntoView({block: "nearest"});
  }

  function pick(item) {
    if (!item) return;
    $("picker").close();
    card = onPick(image, item.label) ?? card;
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
