// The page: a token where one is needed, then the start or the session that the address names.
import {$, complain} from "./dom.js";
import {onMissingToken, post, request} from "./requests.js";
import {createSession} from "./session.js";
import {showStart} from "./start.js";

const VIEWS = ["login", "start", "session"];
let asking = null;  // a promise while the token is asked for

function show(view) {
  for (const id of VIEWS) $(id).hidden = id !== view;
  $(view)?.querySelector("h1").focus();
}

onMissingToken(() => asking ??= new Promise(resolve => {
  const before = VIEWS.find(id => !$(id).hidden);
  show("login");
  $("token").focus();
  $("login").onsubmit = async event => {
    event.preventDefault();
    try {
      await post("login", {token: $("token").value});
    } catch (error) {
      return complain(error.message);
    }
    complain("");
    $("token").value = "";
    show(before);
    asking = null;
    resolve();
  };
}));

async function main() {
  const about = await request("v1");
  $("server").textContent = `${about.model} knows ${about.knows}.`;
  $("server").title = `version ${about.version}`;
  const session = createSession(about, leave);

  async function route() {
    const id = location.hash.slice(1);
    complain("");
    session.close();
    try {
      await (id ? session.open(id) : showStart(about, session));
      if (id !== location.hash.slice(1)) return;  // the next one is on its way
      show(id ? "session" : "start");
      $("examples").hidden = Boolean(id) || !about.examples;
    } catch (error) {
      if (!id) throw error;
      await leave(error.message);
    }
  }

  async function leave(sentence) {
    history.replaceState(null, "", "#");
    await route();
    complain(sentence);
  }

  addEventListener("hashchange", route);
  await route();
}

// Beside each other there is room for all of it; on a phone the images come first.
for (const part of document.querySelectorAll(".part")) part.open = matchMedia("(min-width: 1000px)").matches;
$("problem").lastElementChild.addEventListener("click", () => complain(""));
addEventListener("unhandledrejection", event => complain(event.reason?.message ?? String(event.reason)));
main();
