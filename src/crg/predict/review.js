// The script of the review page, after cards.js. All texts of the content reach the page as text, never as markup.
const content = JSON.parse(document.getElementById("content").textContent);
const KEY = "crg-review:" + content.key;
const FORMULA = /^[=+\-@\t\r']/;  // how a formula may begin, or what marks one
const byPath = new Map(content.images.map(image => [image.path, image]));
const places = new Map(content.classes.map((name, place) => [name, place]));
let corrections = new Map();  // path -> label; those that were learnt before stay among them
let history = [];  // lists of [path, label before or undefined], latest last
const selected = new Set();  // images that are corrected together
let anchor = null;  // the card that was clicked last
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
  card.title = [image.error || image.missing, image.path].filter(Boolean).join("\n");
  card.image = image;
  if (image.thumbnail) {
    const shown = make("img");
    shown.alt = "";
    shown.decoding = "async";
    shown.src = "data:image/jpeg;base64," + image.thumbnail;
    card.append(shown);
  } else card.append(make("span", "none", image.error || image.missing));
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
  else if (image.probability !== undefined) found.push(percent(image.probability) + (leaning(image) && `, leans to ${leaning(image)}`));
  if (given === undefined && (image.class_set || []).length > 1) found.push("one of " + image.class_set.join(", "));
  if (image.error && image.thumbnail) found.push(image.error);  // it can be read by now
  if (image.was !== undefined) found.push("was " + (image.was || "unsure"));
  else if (image.changed) found.push("zero-shot " + image.zero_shot_label);
  return found;
}

function leaning(image) {  // the most probable class where the label is withheld
  return groupOf(image) !== "unsure" ? "" : image.top?.[0] ?? (image.changed ? "" : image.zero_shot_label ?? "");
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
    const section = make("section"), heading = make("h2", "", name + " "), list = make("ul", group === "error" ? "grid reasons" : "grid");
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
      if (!isShown && selected.has(item.firstChild.image)) select([item.firstChild.image], false);  // a hidden one stays as it is
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
  if (!card || event.altKey) return;
  const cards = visible(), place = cards.indexOf(card), hasControl = event.ctrlKey || event.metaKey;
  const act = (hasControl ? {a: () => select(cards.map(each => each.image), true)} : {
    " ": () => select([card.image]), z: () => zoom(card.image), Z: () => zoom(card.image),
    Delete: () => correct(together(card.image), undefined), Backspace: () => correct(together(card.image), undefined),
  })[event.key];
  if (act) {
    event.preventDefault();
    return act();
  }
  if (hasControl) return;
  const next = {
    ArrowRight: () => cards[place + 1], ArrowLeft: () => cards[place - 1],
    ArrowDown: () => vertical(cards, place, 1), ArrowUp: () => vertical(cards, place, -1),
    Home: () => cards[0], End: () => cards.at(-1),
  }[event.key];
  if (!next) return;
  event.preventDefault();
  const target = next();
  if (!target) return;
  if (event.shiftKey) selectBetween(card, target);
  target.focus();
}

// Selecting several.
function select(images, on) {
  for (const image of images) {
    const isOn = on ?? !selected.has(image);
    if (isOn === selected.has(image)) continue;
    selected[isOn ? "add" : "delete"](image);
    image.card.setAttribute("aria-pressed", isOn);
  }
  $("label-selected").textContent = `Label ${selected.size} selected…`;
  for (const id of ["label-selected", "clear"]) $(id).hidden = !selected.size;
}

function selectBetween(from, to) {
  const cards = visible(), [first, last] = [cards.indexOf(from), cards.indexOf(to)].sort((a, b) => a - b);
  select(cards.slice(Math.max(first, 0), last + 1).map(card => card.image), true);
}

function together(image) {  // it, or all that are selected with it
  return selected.has(image) ? visible().map(card => card.image).filter(each => selected.has(each)) : [image];
}

// Corrections: kept by the browser under a digest of the answers.
function correct(images, label) {  // returns the card after them
  const cards = visible(), place = cards.indexOf(images.at(-1).card);
  const before = change(images.map(image => [image.path, label]));
  if (before.length) history.push(before);
  count();
  if (images.length > 1) select(images, false);
  return label === undefined ? undefined : cards[place + 1];
}

function change(pairs) {  // returns the pairs that undo it
  const wanted = pairs.filter(([path, label]) => corrections.get(path) !== label), before = [];
  const isNew = wanted.filter(([, label]) => addClass(label)).length > 0;
  for (const [path, label] of wanted) {
    before.push([path, corrections.get(path)]);
    if (label === undefined) corrections.delete(path);
    else corrections.set(path, label);
    describe(byPath.get(path));
  }
  if (!wanted.length) return before;
  keep();
  const [[path, label]] = wanted, {label: answer} = byPath.get(path), one = wanted.length === 1;
  say(`${one ? fileName(path) : several(wanted.length, "image")}: ` + (label === undefined ? "no longer corrected."
    : label + (one && answer && answer !== label ? ` instead of ${answer}.` : "."))
    + (isNew ? " A new class: download the classes too." : ""));
  return before;
}

function addClass(label) {  // returns whether it is new
  if (label === undefined || places.has(label)) return false;
  places.set(label, content.classes.push(label) - 1);
  $("names").hidden = false;
  return true;
}

function undo() {
  change(history.pop() || []);
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
  const fitting = pairs.filter(([path, label]) => byPath.has(path) && typeof label === "string" && label.trim());
  const touched = new Set([...corrections.keys(), ...fitting.map(pair => pair[0])]);
  corrections = new Map([...into, ...fitting]);
  for (const [, label] of fitting) addClass(label);
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

function download(name, text, type, what) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  say(`${what} written to ${name}.`);
}

function downloadCorrections(form) {
  const type = form === "csv" ? "text/csv" : "application/jsonl";
  download("corrections." + form, writers[form]([...corrections]), type, several(corrections.size, "correction"));
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
  say(`${several(taken, "correction")} imported.` + (left ? ` ${left} left out, of other images.` : ""));
}

// The picker, and an image enlarged.
let chosen = null;  // the image that they are about
const picker = createPicker({classes: () => content.classes, likely,
  onPick: (image, label) => correct(together(image), label),
  hint: (image, name) => name === image.label ? "the answer: confirm it" : name === leaning(image) ? "it leans to this" : "",
  addHint: "add this class", noClass: "No class has this name: Enter adds it."});

function zoom(image) {
  const shown = $("zoom-image"), small = image.card.querySelector("img")?.src;
  chosen = image;
  shown.hidden = !small;
  shown.onerror = () => { shown.onerror = null; shown.src = small; };  // moved, or of a kind that browsers do not show
  shown.src = image.source ?? small ?? "";
  $("zoom-title").textContent = image.path;
  $("zoom-answer").textContent = [...image.card.querySelectorAll(".label, .mark")].map(each => each.textContent).join(" · ");
  if (!$("zoom").open) $("zoom").showModal();
  $("zoom").focus();
}

function zoomStep(step) {
  const cards = visible(), next = cards[cards.indexOf(chosen.card) + step];
  if (next) zoom(next.image);
}

function zoomLabel() {
  $("zoom").close();
  open(chosen);
}

function open(image) {
  const all = together(image), names = all.map(each => fileName(each.path));
  chosen = image;
  $("remove").hidden = !all.some(each => corrections.has(each.path));
  $("enlarge").hidden = all.length > 1;
  picker.open(image, image.card, {title: all.length > 1 ? several(all.length, "image") : image.path,
    picture: image.card.querySelector("img")?.src, answers: all.length > 1 ? [["Selected", names.slice(0, 6).join(", ") + (names[6] ? "…" : "")]] : [
      ["Answer", image.label, image.probability], ["Unsure, leans to", leaning(image), image.probability],
      ["Zero-shot", image.zero_shot_label, image.zero_shot_probability],
      ["One of", (image.class_set || []).join(", ")], ["Before", image.was], ["Unreadable", image.error || image.missing]]});
}

function likely(image) {
  const latest = [...corrections.values()].reverse().slice(0, 200);
  const names = [corrections.get(image.path), image.label, leaning(image), image.zero_shot_label, ...(image.top || []), image.was, ...latest];
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
  if (!card) return;
  card.focus();
  if (event.shiftKey) selectBetween(anchor ?? card, card);
  else if (event.ctrlKey || event.metaKey || $("select").getAttribute("aria-pressed") === "true") select([card.image]);
  else open(card.image);
  anchor = card;
});
$("images").addEventListener("keyup", event => { if (event.key === " ") event.preventDefault(); });  // it selects
$("images").addEventListener("focusin", event => { if (event.target.matches(".card")) setCurrent(event.target); });
$("images").addEventListener("keydown", move);
document.addEventListener("keydown", event => {
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && event.target !== $("query")) { event.preventDefault(); undo(); }
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) select([...selected], false);
});
$("zoom").addEventListener("keydown", event => {
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") zoomStep(event.key === "ArrowLeft" ? -1 : 1);
  else if (event.key === "Enter" && event.target === $("zoom")) zoomLabel();
  else return;
  event.preventDefault();
});
$("zoom").addEventListener("close", () => chosen.card.focus());
for (const [id, act] of Object.entries({
  "zoom-before": () => zoomStep(-1), "zoom-next": () => zoomStep(1), "zoom-label": zoomLabel, "zoom-close": () => $("zoom").close(),
  enlarge: () => { $("picker").close(); zoom(chosen); }, clear: () => select([...selected], false),
  "label-selected": () => open(visible().find(card => selected.has(card.image)).image),
  select: () => $("select").setAttribute("aria-pressed", $("select").getAttribute("aria-pressed") !== "true"),
  names: () => download("classes.txt", content.classes.join("\n") + "\n", "text/plain", several(content.classes.length, "class")),
})) $(id).addEventListener("click", act);
$("remove").addEventListener("click", () => { $("picker").close(); correct(together(chosen), undefined); });
$("undo").addEventListener("click", undo);
for (const form of ["csv", "jsonl"]) $(form).addEventListener("click", () => downloadCorrections(form));
$("import").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", event => { if (event.target.files[0]) read(event.target.files[0]); event.target.value = ""; });
addEventListener("storage", event => { if (event.key === KEY || event.key === null) { restore(); history = []; count(); filter(); } });
addEventListener("beforeunload", event => { if (!isKept && corrections.size) event.preventDefault(); });
