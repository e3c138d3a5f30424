// The script of the review page, after cards.js. All texts of the content reach the page as text, never as markup.
const content = JSON.parse(document.getElementById("content").textContent);
const KEY = "crg-review:" + content.key;
const FORMULA = /^[=+\-@\t\r']/;  // how a formula may begin, or what marks one
const byPath = new Map(content.images.map(image => [image.path, image]));
const places = new Map(content.classes.map((name, place) => [name, place]));
let corrections = new Map();  // path -> label; those that were learnt before stay among them
let history = [];  // [path, label before or undefined], latest last
let isKept = true;  // whether this browser keeps what is corrected
let current = null;  // the card that Tab goes to

const fileName = path => path.split(/[\\/]/).pop();
const groupOf = image => image.error ? "error" : image.label ? "=" + image.label : image.none_of_these ? "none" : "unsure";
const titleOf = group => ({error: "Unreadable", unsure: "Unsure", none: "None of these"})[group] || group.slice(1);

// Cards: one button per image, in a section per class, least sure first.
function makeCard(image) {
  const card = make("button", "card");
  card.type = "button";
  card.tabIndex = -1;
  card.title = image.path;
  card.image = image;
  if (image.thumbnail) {
    const shown = make("img");
    shown.alt = "";
    shown.decoding = "async";
    shown.src = "data:image/jpeg;base64," + image.thumbnail;
    card.append(shown);
  } else card.append(make("span", "none", image.error ? "unreadable" : "not found"));
  card.append(make("span", "label"), make("span", "mark"), make("span", "file", fileName(image.path)));
  image.card = card;
  describe(image);
  return card;
}

function describe(image) {
  const card = image.card, given = corrections.get(image.path), [label, mark] = card.querySelectorAll(".label, .mark");
  const wrong = given !== undefined && given !== image.label;
  label.textContent = given || image.label || (image.error ? "unreadable" : image.none_of_these ? "none of these" : "unsure");
  mark.textContent = marks(image, given, wrong).join(" · ");
  card.classList.toggle("corrected", given !== undefined);
  card.classList.toggle("since", image.was !== undefined);
}

function marks(image, given, wrong) {
  const found = [];
  if (given !== undefined) found.push(wrong ? "corrected" : image.corrected ? "corrected before" : "confirmed");
  else if (image.none_of_these) found.push("outside " + percent(image.outside));
  else if (image.probability !== undefined) found.push(percent(image.probability));
  if (given === undefined && (image.class_set || []).length > 1) found.push("one of " + image.class_set.join(", "));
  if (image.was !== undefined) found.push("was " + (image.was || "unsure"));
  else if (image.changed) found.push("zero-shot " + image.zero_shot_label);
  return found;
}

function build() {
  const groups = new Map();
  for (const image of content.images) {
    const group = groupOf(image);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(image);
  }
  const inOrder = [...groups].sort(([, [a]], [, [b]]) => rank(a) - rank(b) || 0);
  $("class").append(new Option(`all (${content.images.length})`, ""));
  inOrder.forEach(([group, images], number) => {
    const name = titleOf(group);
    const section = make("section"), heading = make("h2", "", name + " "), list = make("ul", "grid");
    heading.id = "class-" + number;
    heading.append(make("small"));
    section.setAttribute("aria-labelledby", heading.id);
    section.dataset.number = number;
    list.setAttribute("role", "list");
    for (const image of images) {
      const item = make("li");
      item.append(makeCard(image));
      list.append(item);
    }
    section.append(heading, list);
    $("images").append(section);
    $("class").append(new Option(`${name} (${images.length})`, number));
  });
}

function rank(image) {  // unsure first, then the classes in their order, unreadable last
  if (image.error) return Infinity;
  return image.label ? places.get(image.label) ?? places.size : -1;
}

// Filters.
function passes(image, most) {
  const given = corrections.has(image.path);
  return (most >= 1 || (image.probability ?? 0) <= most)
    && (!$("only-changed").checked || Boolean(image.changed))
    && (!$("only-unsure").checked || !(image.label || image.error || image.none_of_these))
    && (!$("only-since").checked || image.was !== undefined)
    && (!$("only-corrected").checked || given);
}

function filter() {
  const most = $("most").value / 100, wanted = $("class").value;
  let total = 0;
  $("most-shown").textContent = $("most").value + "%";
  for (const section of $("images").children) {
    let shown = 0;
    for (const item of section.lastChild.children) {
      const isShown = (wanted === "" || wanted === section.dataset.number) && passes(item.firstChild.image, most);
      item.hidden = !isShown;
      shown += isShown;
    }
    section.hidden = !shown;
    section.querySelector("small").textContent = several(shown, "image");
    total += shown;
  }
  $("empty").hidden = total > 0;
  if (!current || current.parentNode.hidden) setCurrent(visible()[0] || null);
  return total;
}

// Going from card to card.
const visible = () => [...document.querySelectorAll("section:not([hidden]) li:not([hidden]) > .card")];

function setCurrent(card) {
  if (current) current.tabIndex = -1;
  current = card;
  if (card) card.tabIndex = 0;
}

function vertical(cards, place, step) {  // the card nearest below or above
  const here = cards[place].getBoundingClientRect();
  let best = null, row = null;
  for (let k = place + step; cards[k]; k += step) {
    const box = cards[k].getBoundingClientRect();
    if (Math.abs(box.top - here.top) < 2) continue;
    if (row !== null && Math.abs(box.top - row) > 2) break;
    row = box.top;
    const far = Math.abs(box.left - here.left);
    if (!best || far < best.far) best = {far, card: cards[k]};
  }
  return best && best.card;
}

function move(event) {
  const card = event.target.closest(".card");
  if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Delete" || event.key === "Backspace") {
    event.preventDefault();
    return correct(card.image, undefined);
  }
  const cards = visible(), place = cards.indexOf(card);
  const next = {
    ArrowRight: () => cards[place + 1], ArrowLeft: () => cards[place - 1],
    ArrowDown: () => vertical(cards, place, 1), ArrowUp: () => vertical(cards, place, -1),
    Home: () => cards[0], End: () => cards.at(-1),
  }[event.key];
  if (!next) return;
  event.preventDefault();
  const target = next();
  if (target) target.focus();
}

// Corrections: kept by the browser under a digest of the answers.
function correct(image, label, isUndo) {
  const before = corrections.get(image.path);
  if (before === label) return;
  if (!isUndo) history.push([image.path, before]);
  if (label === undefined) corrections.delete(image.path);
  else corrections.set(image.path, label);
  keep();
  describe(image);
  count();
  say(label === undefined ? `${fileName(image.path)}: no longer corrected.`
    : `${fileName(image.path)}: ${label}${image.label && image.label !== label ? " instead of " + image.label : ""}.`);
}

function undo() {
  const last = history.pop();
  if (last) correct(byPath.get(last[0]), last[1], true);
  count();
}

function keep() {
  try { localStorage.setItem(KEY, JSON.stringify([...corrections])); } catch { isKept = false; }
}

function restore() {
  let pairs = content.images.filter(image => image.corrected).map(image => [image.path, image.label]);
  try { pairs = JSON.parse(localStorage.getItem(KEY)) || pairs; } catch { isKept = false; }
  take(pairs, new Map());
}

function take(pairs, into) {  // returns how many fit these images and classes
  const fitting = pairs.filter(([path, label]) => byPath.has(path) && places.has(label));
  const touched = new Set([...corrections.keys(), ...fitting.map(pair => pair[0])]);
  corrections = new Map([...into, ...fitting]);
  for (const path of touched) if (byPath.get(path).card) describe(byPath.get(path));
  return fitting.length;
}

function count() {
  const images = content.images, facts = [
    [images.length, images.length === 1 ? "image" : "images"], [corrections.size, "corrected"],
    [images.filter(image => image.changed).length, "changed by adaptation"],
    [images.filter(image => groupOf(image) === "unsure").length, "unsure"],
    [images.filter(image => image.none_of_these).length, "none of these"],
    [images.filter(image => image.error).length, "unreadable"],
  ];
  if (content.compared) facts.push([images.filter(image => image.was !== undefined).length, "changed since before"]);
  $("facts").replaceChildren(...facts.filter(([n], place) => n || place < 2 || content.compared && place === 6)
    .map(([n, what]) => { const item = make("li"); item.append(make("b", "", n), " " + what); return item; }));
  for (const id of ["csv", "jsonl"]) $(id).disabled = !corrections.size;
  $("undo").disabled = !history.length;
}

function say(sentence) {
  const warning = isKept ? "" : " This browser keeps nothing: download before you leave.";
  $("status").textContent = sentence + warning;
}

// Files: CSV and JSON lines with path and label.
const cell = text => {
  const harmless = FORMULA.test(text) ? "'" + text : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
};
const writers = {
  csv: pairs => ["path,label", ...pairs.map(pair => pair.map(cell).join(","))].join("\n") + "\n",
  jsonl: pairs => pairs.map(([path, label]) => JSON.stringify({path, label}) + "\n").join(""),
};

function download(form) {
  const link = make("a"), type = form === "csv" ? "text/csv" : "application/jsonl";
  link.href = URL.createObjectURL(new Blob([writers[form]([...corrections])], {type}));
  link.download = "corrections." + form;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  say(`${several(corrections.size, "correction")} written to ${link.download}.`);
}

function rowsOf(text) {  // of a CSV file
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    const value = quoted === undefined ? plain : quoted.replaceAll('""', '"');
    rows.at(-1).push(/^'[=+\-@\t\r']/.test(value) ? value.slice(1) : value);
    if (end.endsWith("\n")) rows.push([]);
    if (!end) break;
  }
  return rows.filter(row => row.length > 1);
}

function parse(text) {
  if (text.trimStart().startsWith("{"))
    return text.split("\n").filter(line => line.trim()).map(line => JSON.parse(line)).map(({path, label}) => [path, label]);
  const [head, ...rows] = rowsOf(text.replace(/^\ufeff/, ""));
  const [path, label] = [head.indexOf("path"), head.indexOf("label")];
  if (path < 0 || label < 0) throw new Error("no columns path and label");
  return rows.map(row => [row[path], row[label]]);
}

async function read(file) {
  let pairs;
  try { pairs = parse(await file.text()); } catch {
    return say(`${file.name} holds no corrections: choose a file that this page has written.`);
  }
  const taken = take(pairs, corrections), left = pairs.length - taken;
  keep();
  history = [];
  count();
  filter();
  say(`${several(taken, "correction")} imported.` + (left ? ` ${left} left out, of other images or classes.` : ""));
}

// The picker.
let chosen = null;  // the image that it is about
const picker = createPicker({classes: () => content.classes, likely, onPick: correct,
  hint: (image, name) => name === image.label ? "the answer: confirm it" : "",
  noClass: "No class has this name. Others come in with crg predict --classes."});

function open(image) {
  chosen = image;
  $("remove").hidden = !corrections.has(image.path);
  picker.open(image, image.card, {title: image.path, picture: image.card.querySelector("img")?.src,
    answers: [["Answer", image.label, image.probability], ["Zero-shot", image.zero_shot_label, image.zero_shot_probability],
      ["One of", (image.class_set || []).join(", ")], ["Before", image.was], ["Unreadable", image.error]]});
}

function likely(image) {
  const latest = [...corrections.values()].reverse().slice(0, 200);
  const names = [corrections.get(image.path), image.label, image.zero_shot_label, ...(image.top || []), image.was, ...latest];
  return [...new Set(names.filter(name => places.has(name)))].slice(0, 8);
}

restore();
build();
count();
filter();
$("since").hidden = !content.compared;
$("left-out").hidden = !content.left_out;
$("left-out").textContent = `${several(content.left_out, "surer image")} left out, so that the page stays usable.`;
if (corrections.size) say(`${several(corrections.size, "correction")} kept from before.`);
for (const id of ["class", "most", "only-changed", "only-unsure", "only-since", "only-corrected"])
  $(id).addEventListener("input", () => say(several(filter(), "image") + " shown."));
$("images").addEventListener("click", event => {
  const card = event.target.closest(".card");
  if (card) { card.focus(); open(card.image); }
});
$("images").addEventListener("focusin", event => { if (event.target.matches(".card")) setCurrent(event.target); });
$("images").addEventListener("keydown", move);
document.addEventListener("keydown", event => {
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && event.target !== $("query")) { event.preventDefault(); undo(); }
});
$("remove").addEventListener("click", () => { $("picker").close(); correct(chosen, undefined); });
$("undo").addEventListener("click", undo);
for (const form of ["csv", "jsonl"]) $(form).addEventListener("click", () => download(form));
$("import").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", event => { if (event.target.files[0]) read(event.target.files[0]); event.target.value = ""; });
addEventListener("storage", event => { if (event.key === KEY) { restore(); history = []; count(); filter(); } });
addEventListener("beforeunload", event => { if (!isKept && corrections.size) event.preventDefault(); });
