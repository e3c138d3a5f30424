// Requests to the service: again while it is busy or away, and again after a login.
const BUSY = new Set([0, 429, 502, 503, 504]);  // 0: no answer
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

// The JSON that the server answers. `onWait(sentence)` makes it wait as long as the server is busy
// or away; without it that is an error too.
export async function request(path, {onWait, ...options} = {}) {
  for (let attempt = 0; ; attempt++) {
    const [response, content] = await answerTo(path, options);
    if (content !== undefined && response.ok) return content;
    if (response.status === 401 && path !== "login") await askForToken();
    else {
      const plain = response.status ? `The server answered ${response.status}: ask who runs it.` : AWAY;
      const problem = new Problem(response.status, content?.detail ?? plain, content?.image);
      if (!onWait || !BUSY.has(response.status)) throw problem;
      onWait(problem.message);
      await pause(Number(response.headers.get("Retry-After")) || Math.min(2 ** attempt, 10));
    }
  }
}

async function answerTo(path, options) {
  try {
    const response = await fetch(path, options);
    if (!response.ok) return [response, await response.json().catch(() => ({}))];  // a proxy answers otherwise
    return [response, response.status === 204 ? null : await response.json()];
  } catch (error) {
    if (options.signal?.aborted) throw error;
    return [Response.error()];  // its status is 0
  }
}

export function post(path, value, options = {}) {
  const headers = {"Content-Type": "application/json", "Idempotency-Key": newKey()};
  return request(path, {method: "POST", headers, body: JSON.stringify(value), ...options});
}

const pause = seconds => new Promise(resolve => setTimeout(resolve, 1000 * seconds));
