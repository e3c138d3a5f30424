// The start: class names or a saved state make a session; sessions that there are can be opened.
import {$, complain, make, several} from "./dom.js";
import {post, request} from "./requests.js";

const LISTED = 20;

export async function showStart(about, session) {
  document.title = "CRG: live sessions";
  if (!$("method").length) prepare(about, session);
  const {sessions} = await request(`v1/sessions?limit=${LISTED}`);
  $("no-sessions").hidden = sessions.length > 0;
  $("sessions").replaceChildren(...sessions.map(session => {
    const item = make("li"), link = make("a", session.name ? "" : "id", session.name ?? session.id.slice(0, 8));
    link.href = "#" + session.id;
    item.append(link, make("span", "soft", [several(session.images, "image"), several(session.n_classes, "class"),
      session.method, new Date(1000 * session.last_used).toLocaleString()].join(" · ")));
    return item;
  }));
}

function prepare(about, session) {
  const name = () => $("session-name").value.trim();
  $("method").append(...about.methods.map(name => new Option(name, name, false, name === about.default_method)));
  $("views").max = about.limits.max_views;
  $("new").addEventListener("submit", event => {
    event.preventDefault();
    const classes = $("classes").value.split("\n").map(line => line.trim()).filter(Boolean);
    start(post("v1/sessions", {classes, method: $("method").value, views: Number($("views").value),
      none_of_these: $("none-of-these").checked ? "auto" : null, name: name()}));
  });
  $("state").addEventListener("change", () => {
    const [body] = $("state").files;
    if (body) start(request(`v1/sessions?${new URLSearchParams({views: $("views").value, name: name()})}`, {method: "POST", headers: {"Content-Type": "application/octet-stream"}, body}));
    $("state").value = "";
  });
  $("examples").addEventListener("click", () => start(load(about.examples, session)));
}

async function load({classes, images}, session) {
  const files = await Promise.all(Array.from({length: images}, async (_, k) => {
    const answer = await fetch(`v1/examples/${k + 1}`);
    return new File([await answer.blob()], `shape ${k + 1}.png`);
  }));
  const started = await post("v1/sessions", {classes, name: "Rendered shapes"});
  session.bring(files);
  return started;
}

async function start(started) {
  const button = $("new").querySelector("button");
  button.disabled = true;
  try {
    location.hash = (await started).id;
    $("session-name").value = "";
  } catch (error) {
    complain(error.message);
  } finally {
    button.disabled = false;
  }
}
