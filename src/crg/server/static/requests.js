// Requests to the service: again while it is busy or away, and again after a login.
const BUSY = new Set([429, 502, 503, 504]);
const AWAY = "The server cannot be reached: check that it runs.";
let askForToken = async () => {};

export class Problem extends Error {
  constructor(status, detail, image) {
    super(detail);
    this.status = status;
    this.image = image;  // which image of the request is refused
  }
}

export function onMissingToken(ask) { askForToken = ask; }

export function newKey() {  // for Idempotency-Key: what is sent twice is learnt once
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, "0")).join("");
}

// `onWait(sentence)` makes it wait as long as the server is busy or away; without it that is an error.
export async function request(path, {onWait, signal, ...options} = {}) {
  for (let attempt = 0; ; attempt++) {
    const response = await fetch(path, {...options, signal}).catch(error => {
      if (signal?.aborted) throw error;
      return null;
    });
    if (response?.ok) return response;
    if (response?.status === 401 && path !== "login") await askForToken();
    else {
      const problem = response ? await problemOf(response) : new Problem(0, AWAY);
      if (!onWait || (response && !BUSY.has(response.status))) throw problem;
      onWait(problem.message);
      await pause(Number(response?.headers.get("Retry-After")) || Math.min(2 ** attempt, 10));
    }
  }
}

export const json = async (path, options) => (await request(path, options)).json();

export function post(path, value, options = {}) {
  const headers = {"Content-Type": "application/json", "Idempotency-Key": newKey()};
  return request(path, {method: "POST", headers, body: JSON.stringify(value), ...options});
}

async function problemOf(response) {
  const document = await response.json().catch(() => ({}));
  const detail = document.detail || `The server answered ${response.status} ${response.statusText}.`;
  return new Problem(response.status, detail, document.image);
}

const pause = seconds => new Promise(resolve => setTimeout(resolve, 1000 * seconds));
