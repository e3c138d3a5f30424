// One session on the page: every event in it, from any client, comes as a server-sent event.
import {createCamera} from "./camera.js";
import {drawCounts, drawFraction} from "./charts.js";
import {$, complain, createPicker, make, percent, say, several} from "./dom.js";
import {MOST, createGrid} from "./grid.js";
import {post, request} from "./requests.js";
import {createUploads} from "./uploads.js";

const KINDS = ["answer", "correction", "class_added", "class_removed", "renamed", "deleted"];
const CONNECTIONS = {live: "live", connecting: "connecting…", away: "connection lost, trying again…"};

export function createSession(about, leave) {
  let id = null, info = null, address = "", source = null, timer = null;
  let last = 0, passed = 0, newest = 0;  // the last event, the last image among the events, the last image
  let listed = "";  // the classes that the page lists
  let corrections = [];  // the steps at which somebody corrected
  let brought = [];  // images to send when the next session is open
  let isRefreshing = false, isStale = false;

  const grid = createGrid({onOpen: choose, thumbnail: thumbnailOf});
  const picker = createPicker({classes: () => info.classes, likely, hint, onPick: (image, label) => void correct(image, label),
    noClass: "No class has this name: add it first."});
  const uploads = createUploads({limits: about.limits, onAnswers: take});
  const camera = createCamera({send, isBusy: uploads.isBusy});

  async function open(sessionId) {
    const mine = address = "v1/sessions/" + encodeURIComponent(sessionId);
    const found = await request(mine);
    if (address !== mine) return;  // another was opened meanwhile
    [info, id, last, passed, newest, corrections, listed] = [found, found.id, 0, 0, found.curves.step.at(-1) ?? 0, [], ""];
    $("answers-jsonl").href = address + "/answers?format=jsonl";
    $("answers-csv").href = address + "/answers?format=csv";
    $("download-state").href = address + "/state";
    grid.clear();
    uploads.reset(address);
    show();
    connect();
    send(brought.splice(0));
  }

  function close() {
    [id, address] = [null, ""];
    disconnect();
    camera.close();
    uploads.reset("");
    $("connection").hidden = true;
    if ($("picker").open) $("picker").close();
  }

  // Watching. The browser connects again by itself with Last-Event-ID; where it gives up, we do.
  function connect() {
    disconnect();
    tellConnection("connecting");
    const after = Math.max(last, info.event - MOST, 0);
    source = new EventSource(`${address}/events?after=${after}`);
    source.onopen = () => { tellConnection("live"); refresh(); };
    source.onerror = () => {
      tellConnection("away");
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(reconnect, 2000);
    };
    for (const kind of KINDS) source.addEventListener(kind, event => happened(kind, JSON.parse(event.data)));
  }

  function disconnect() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  async function reconnect() {
    const mine = id;
    try {
      const fresh = await request(address);
      if (id !== mine || document.hidden) return;
      info = fresh;
      connect();
    } catch (error) {
      if (id !== mine || document.hidden) return;
      if (error.status === 404) return leave(error.message);
      if (error.status) complain(error.message);
      timer = setTimeout(reconnect, 2000);
    }
  }

  function tellConnection(state) {
    $("connection").hidden = false;
    $("connection").dataset.state = state;
    $("connection").textContent = CONNECTIONS[state];
  }

  function happened(kind, data) {
    if (kind === "deleted") return leave("This session was deleted.");
    last = Math.max(last, data.event);
    if (kind === "answer") {
      passed = data.step;
      take([data]);
    } else if (kind === "correction") {
      corrections.push(passed);
      grid.correct(data.step, data.label);
    } else if (data.event > info.event) {
      const others = info.classes.filter(name => name !== data.name);
      const classes = kind === "class_added" ? [...others, data.name] : others;
      info = {...info, ...(kind === "renamed" ? {name: data.name} : {classes}), event: data.event};
    }
    refresh();
  }

  function take(answers) {
    newest = Math.max(newest, ...answers.map(({step}) => step));
    grid.add(answers);
    refresh();
  }

  // Counts and curves are the server's; while much happens they are asked for now and then.
  async function refresh() {
    isStale = true;
    if (isRefreshing) return;
    isRefreshing = true;
    while (isStale && id) {
      const mine = id, begun = performance.now();
      isStale = false;
      const fresh = await request(address).catch(() => null);  // the connection says what is wrong
      if (id !== mine) break;
      if (fresh) { info = fresh; show(); }
      await new Promise(resolve => setTimeout(resolve, 500 + 10 * (performance.now() - begun)));
    }
    isRefreshing = false;
    if (isStale && id) refresh();
  }

  function show() {
    $("title").textContent = info.name ?? `Session ${id.slice(0, 8)}`;
    document.title = "CRG: " + $("title").textContent;
    const facts = [[info.images, info.images === 1 ? "image" : "images"], [info.changed, "changed by adaptation"],
      [info.corrections, info.corrections === 1 ? "correction" : "corrections"]];
    $("facts").replaceChildren(...facts.map(([n, what]) => fact(n.toLocaleString("en"), " " + what)),
      fact(info.method, " method"), ...(info.views > 1 ? [fact(info.views, " views")] : []));
    $("curves").hidden = !info.images;
    if (info.images) drawCurves();
    showClasses();
  }

  function drawCurves() {
    const {step, probability, changed, per_class} = info.curves;
    drawFraction($("confidence"), "Confidence", step, probability, corrections);
    drawFraction($("changed"), "Changed by adaptation", step, changed, corrections);
    drawCounts($("per-class"), "Images per class", step, per_class);
  }

  function fact(value, what) {
    const item = make("li");
    item.append(make("b", "", value), what);
    return item;
  }

  function showClasses() {
    const counts = new Map(Object.entries(info.per_class)), names = [...new Set([...info.classes, ...counts.keys()])];
    const all = JSON.stringify([info.classes, names]);
    if (listed !== all) {  // else the focus stays where it is
      listed = all;
      $("classes-title").textContent = several(info.classes.length, "class");
      $("class-list").replaceChildren(...info.classes.map(classItem));
      grid.setClasses(names);
    }
    info.classes.forEach((name, k) => { $("class-list").children[k].children[1].textContent = counts.get(name) ?? 0; });
  }

  function classItem(name) {
    const item = make("li"), button = make("button", "", "✕");
    button.type = "button";
    button.setAttribute("aria-label", `Remove class ${name}`);
    button.addEventListener("click", () => removeClass(name));
    item.append(make("span", "", name), make("span", "soft"), button);
    return item;
  }

  // What a person does.
  function send(files) {
    if (id && files.length) uploads.add([...files]);
  }

  function choose(image, card) {
    picker.open(image, card, {title: image.name ?? `image ${image.step}`, picture: pictureOf(image),
      answers: [["Answer", image.label || "none of these", image.probability], ["Corrected", image.corrected],
        ["One of", image.class_set?.join(", ") || (image.missing_labels && `correct ${image.missing_labels} more for sets`)],
        ["Zero-shot", image.zero_shot_label, image.zero_shot_probability]]});
  }

  function likely(image) {
    return [image.corrected, image.label, ...image.top.map(({label}) => label), image.zero_shot_label];
  }

  function hint(image, name) {
    const probability = percent(image.top.find(({label}) => label === name)?.probability);
    return name === image.label ? `the answer · ${probability}` : probability;
  }

  async function correct(image, label) {
    const mine = id;
    let hasWaited = false;
    const onWait = sentence => { hasWaited = true; complain(sentence); };
    grid.correct(image.step, label, true);
    try {
      await post(address + "/corrections", {image: image.step, label}, {onWait});
      if (id !== mine) return;
      grid.correct(image.step, label);
      if (hasWaited) complain("");
      say(`Image ${image.step}: ${label}. Learnt, for the images that follow.`);
    } catch (error) {
      if (id !== mine) return;
      grid.correct(image.step, undefined);
      complain(error.message);
    }
  }

  async function change(answer) {
    const mine = id;
    try {
      await answer;  // the list changes with the event
      if (id !== mine) return false;
      complain("");
      return true;
    } catch (error) {
      complain(error.message);
      return false;
    }
  }

  async function addClass(event) {
    event.preventDefault();
    const name = $("class-name").value.trim();
    if (await change(post(address + "/classes", {name}))) {
      $("class-name").value = "";
      say(`Class ${name} added.`);
    }
  }

  async function removeClass(name) {
    if (!confirm(`Remove the class “${name}”? What was learnt about it is lost.`)) return;
    if (await change(request(`${address}/classes?name=${encodeURIComponent(name)}`, {method: "DELETE"}))) {
      $("class-name").focus();
      say(`Class ${name} removed.`);
    }
  }

  async function rename() {
    const mine = id, name = prompt("Name of this session; empty for none", info.name ?? "");
    if (name === null) return;
    const headers = {"Content-Type": "application/json"}, body = JSON.stringify({name: name.trim()});
    try {
      const renamed = await request(address, {method: "PATCH", headers, body});
      if (id !== mine) return;
      info = {...info, name: renamed.name, event: Math.max(renamed.event, info.event)};
      show();
    } catch (error) {
      complain(error.message);
    }
  }

  async function remove() {
    if (!confirm("Delete this session with all its answers, and what it has learnt?")) return;
    try {
      await request(address, {method: "DELETE"});
    } catch (error) {
      complain(error.message);
    }
  }

  function thumbnailOf(image) {
    const isKept = image.thumbnail && image.step > newest - about.limits.thumbnails;
    return isKept ? `${address}/images/${image.step}/thumbnail` : null;
  }

  function pictureOf(image) {
    return about.keep_images && image.thumbnail ? `${address}/images/${image.step}` : thumbnailOf(image);
  }

  async function copy() {
    try {
      await navigator.clipboard.writeText(location.href);
      say("The link is copied.");
      $("copy").textContent = "Copied";
    } catch {
      complain("The browser does not let the page copy: take the link from the address bar.");
    }
    setTimeout(() => { $("copy").textContent = "Copy link"; }, 2000);
  }

  if (innerWidth <= 520) for (const part of document.querySelectorAll(".part")) part.open = false;  // images first
  $("files").addEventListener("change", () => { send($("files").files); $("files").value = ""; });
  document.addEventListener("paste", event => send(event.clipboardData?.files ?? []));
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) document.addEventListener(kind, event => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") send(event.dataTransfer.files);
  });
  document.addEventListener("visibilitychange", () => {  // a browser has few connections: hidden pages use none
    if (!id) return;
    if (document.hidden) disconnect();
    else reconnect();
  });
  $("new-class").addEventListener("submit", addClass);
  $("cancel-queue").addEventListener("click", uploads.cancel);
  $("copy").addEventListener("click", copy);
  $("delete").addEventListener("click", remove);
  $("rename").addEventListener("click", rename);
  return {open, close, bring: files => { brought = files; }};
}
