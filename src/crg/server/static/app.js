// The page: a token where one is needed, then the start or the session that the address names.
import {$, complain} from "./dom.js";
import {json, onMissingToken, post} from "./requests.js";
import {createSession} from "./session.js";
import {showStart} from "./start.js";

const VIEWS = ["login", "start", "session"];
let asking = null;  // a promise while the token is asked for

function show(view) {
  for (const id of VIEWS) $(id).hidden = id !== view;
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
  const about = await json("v1");
  $("server").textContent = `${about.model} · version ${about.version}`;
  const session = createSession(about, () => { location.hash = ""; });

  async function route() {
    const id = decodeURIComponent(location.hash.slice(1));
    complain("");
    session.close();
    try {
      if (id) await session.open(id);
      else await showStart(about);
      show(id ? "session" : "start");
    } catch (error) {
      complain(error.message);
      if (id) { history.replaceState(null, "", "#"); await showStart(about); show("start"); }
    }
  }

  addEventListener("hashchange", route);
  await route();
}

$("problem").lastElementChild.addEventListener("click", () => complain(""));
addEventListener("unhandledrejection", event => complain(event.reason?.message ?? String(event.reason)));
main();
