// The grid: one card per image, newest first; filters; keys that go from card to card.
import {$, make, percent, several} from "./dom.js";

export const MOST = 500;  // cards on the page; older images are in the downloads

export function createGrid({onOpen, thumbnail}) {
  const images = new Map();  // step -> answer, with its card
  let held = [], isPaused = false, current = null;

  function clear() {
    images.clear();
    [held, current] = [[], null];
    $("grid").replaceChildren();
    pause(false);
  }

  function add(answers) {
    const fresh = answers.filter(({step}) => !images.has(step) && !held.some(each => each.step === step));
    if (isPaused) held.push(...fresh);
    else for (const answer of fresh) insert(answer);
    refresh();
  }

  function insert(answer) {
    const image = {...answer}, item = make("li");
    images.set(image.step, image);
    item.image = image;
    item.append(makeCard(image));
    let before = $("grid").firstChild;
    while (before && before.image.step > image.step) before = before.nextSibling;
    $("grid").insertBefore(item, before);
    if (images.size > MOST) remove($("grid").lastChild);
  }

  function remove(item) {
    images.delete(item.image.step);
    if (item.firstChild === current) current = null;
    item.remove();
  }

  function makeCard(image) {
    const card = make("button", "card"), bar = make("span", "bar"), row = make("span", "row");
    card.type = "button";
    card.tabIndex = -1;
    row.append(bar, make("span", "percent", percent(image.probability)));
    bar.append(make("span"));
    bar.firstChild.style.width = percent(image.probability);
    card.append(pictureOf(image), make("span", "label"), row, make("span", "mark"),
      make("span", "file", image.name ?? `image ${image.step}`));
    image.card = card;
    describe(image);
    return card;
  }

  function pictureOf(image) {
    const address = thumbnail(image);
    if (!address) return make("span", "none", "no thumbnail");
    const picture = make("img");
    picture.alt = "";
    picture.decoding = "async";
    picture.addEventListener("error", () => picture.replaceWith(make("span", "none", "no thumbnail")));
    picture.src = address;
    return picture;
  }

  function describe(image) {
    const {card, corrected, saving} = image, mark = card.querySelector(".mark");
    card.querySelector(".label").textContent = saving ?? corrected ?? (image.label || "none of these");
    const marks = image.changed ? [make("span", "badge", "changed"), " "] : [];
    if (saving) marks.push("learning…");
    else if (corrected === image.label) marks.push(make("span", "badge done", "confirmed"));
    else if (corrected) marks.push(make("span", "badge done", "corrected"), ` was ${image.label || "none of these"}`);
    else marks.push(`zero-shot: ${image.zero_shot_label}`);
    mark.replaceChildren(...marks);
    card.title = `Image ${image.step}: ${image.label || "none of these"} ${percent(image.probability)}, `
      + `zero-shot ${image.zero_shot_label} ${percent(image.zero_shot_probability)}, outside ${percent(image.outside)}`;
    card.classList.toggle("changed", image.changed);
    card.classList.toggle("corrected", Boolean(corrected));
    card.querySelector(".row").hidden = Boolean(corrected) && corrected !== image.label;  // it is the answer's
  }

  function correct(step, label, isSaving = false) {
    const image = images.get(step) ?? held.find(each => each.step === step);
    if (!image) return;
    if (isSaving) image.saving = label;
    else [image.corrected, image.saving] = [label ?? image.corrected, null];
    if (image.card) describe(image);
    refresh();
  }

  // Filters.
  function setClasses(names) {
    const wanted = $("only-class").value, options = names.map(name => new Option(name, "=" + name));
    $("only-class").replaceChildren(new Option("all", ""), ...options);
    $("only-class").value = names.includes(wanted.slice(1)) ? wanted : "";
    refresh();
  }

  function passes(image) {
    const wanted = $("only-class").value, label = image.corrected ?? image.label;
    return (!wanted || wanted === "=" + label)
      && (!$("only-changed").checked || image.changed)
      && (!$("only-corrected").checked || Boolean(image.corrected));
  }

  function refresh() {
    let shown = 0;
    for (const item of $("grid").children) shown += !(item.hidden = !passes(item.image));
    $("shown").textContent = images.size ? `${shown} of the last ${several(images.size, "image")} shown. ` : "";
    $("empty").textContent = !images.size ? "No images yet: choose some, drop them here, or paste them." : shown ? "" : "No image passes these filters.";
    $("pause").textContent = isPaused ? `Resume${held.length ? ` (${held.length} new)` : ""}` : "Pause";
    if (!current || current.parentNode.hidden) setCurrent(visible()[0] ?? null);
  }

  function pause(on) {
    isPaused = on;
    $("pause").setAttribute("aria-pressed", on);
    if (!on) for (const answer of held.splice(0)) insert(answer);
    refresh();
  }

  // Going from card to card.
  const visible = () => [...$("grid").querySelectorAll("li:not([hidden]) > .card")];

  function setCurrent(card) {
    if (current) current.tabIndex = -1;
    current = card;
    if (card) card.tabIndex = 0;
  }

  function move(event) {
    const cards = visible(), place = cards.indexOf(event.target.closest(".card"));
    if (place < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const top = cards[0].offsetTop, inRow = cards.findIndex(card => card.offsetTop > top);
    const across = inRow < 0 ? cards.length : inRow;
    const targets = {ArrowRight: place + 1, ArrowLeft: place - 1, ArrowDown: place + across, ArrowUp: place - across,
      Home: 0, End: cards.length - 1};
    if (!(event.key in targets)) return;
    event.preventDefault();
    cards[targets[event.key]]?.focus();
  }

  for (const id of ["only-class", "only-changed", "only-corrected"]) $(id).addEventListener("change", refresh);
  $("pause").addEventListener("click", () => pause(!isPaused));
  $("grid").addEventListener("click", event => {
    const card = event.target.closest(".card");
    if (card) onOpen(card.parentNode.image, card);
  });
  $("grid").addEventListener("focusin", event => setCurrent(event.target.closest(".card")));
  $("grid").addEventListener("keydown", move);
  return {add, clear, correct, setClasses};
}
