// The start: class names or a saved state make a session; sessions that there are can be opened.
import {$, complain, make, several} from "./dom.js";
import {post, request} from "./requests.js";

const LISTED = 20;

export async function showStart(about) {
  document.title = "CRG: live sessions";
  if (!$("method").length) prepare(about);
  const {sessions} = await request(`v1/sessions?limit=${LISTED}`);
  $("no-sessions").hidden = sessions.length > 0;
  $("sessions").replaceChildren(...sessions.map(session => {
    const item = make("li"), link = make("a", "", session.id.slice(0, 8));
    link.href = "#" + session.id;
    item.append(link, make("span", "soft", [several(session.images, "image"), several(session.n_classes, "class"),
      session.method, new Date(1000 * session.last_used).toLocaleString()].join(" · ")));
    return item;
  }));
}

function prepare(about) {
  $("method").append(...about.methods.map(name => new Option(name, name, false, name === about.default_method)));
  $("views").max = about.limits.max_views;
  $("new").addEventListener("submit", event => {
    event.preventDefault();
    const classes = $("classes").value.split("\n").map(line => line.trim()).filter(Boolean);
    start(post("v1/sessions", {classes, method: $("method").value, views: Number($("views").value),
      none_of_these: $("none-of-these").checked ? "auto" : null}));
  });
  $("state").addEventListener("change", () => {
    const [body] = $("state").files;
    if (body) start(request("v1/sessions?views=" + $("views").value, {method: "POST", headers: {"Content-Type": "application/octet-stream"}, body}));
    $("state").value = "";
  });
}

async function start(started) {
  const button = $("new").querySelector("button");
  button.disabled = true;
  try {
    location.hash = (await started).id;
  } catch (error) {
    complain(error.message);
  } finally {
    button.disabled = false;
  }
}
