// The queue of images: sent in their order, a few at a time; what the server refuses is listed.
import {$, complain, make, say, several} from "./dom.js";
import {Problem, newKey, request} from "./requests.js";

const TOGETHER = 8;  // images in one request
const OVERHEAD = 10000;  // bytes of a form besides its images
const LISTED = 50;  // refused images

export function createUploads({limits, onAnswers}) {
  let address, waiting, total, done, refused, stop;

  function reset(sessionAddress) {
    stop?.abort();
    [address, waiting, total, done, refused, stop] = [sessionAddress, [], 0, 0, [], null];
    show();
  }

  function add(files) {
    if (!waiting.length && !stop) [total, done, refused] = [0, 0, []];
    waiting.push(...files);
    total += files.length;
    show();
    if (!stop) work();
  }

  async function work() {
    const mine = stop = new AbortController(), queue = waiting;
    while (queue.length && !mine.signal.aborted) await deliver(await nextBatch(queue), mine.signal);
    if (stop !== mine) return;
    stop = null;
    show();
    say(`${several(total - refused.length, "image")} answered.`);
  }

  async function nextBatch(queue) {
    const most = Math.min(TOGETHER, limits.max_images, limits.max_queue), batch = [];
    let bytes = OVERHEAD;
    while (queue.length && batch.length < most) {
      if (batch.length && bytes + queue[0].size > limits.max_request_bytes) break;
      const file = queue.shift();
      bytes += file.size;
      try {
        batch.push({name: file.name, content: new Blob([await file.arrayBuffer()])});
      } catch {
        refuse(file.name, "It cannot be read: choose files, not folders.");
      }
    }
    return batch;
  }

  async function deliver(batch, signal) {
    if (!batch.length || signal.aborted) return;
    const body = new FormData();
    for (const {name, content} of batch) body.append("image", content, name);
    const headers = {"Idempotency-Key": newKey()};
    try {
      const {answers} = await request(address + "/images", {method: "POST", headers, body, signal, onWait: show});
      if (signal.aborted) return;
      done += batch.length;
      onAnswers(answers);
      show();
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      await refuseSome(batch, error, signal);
    }
  }

  async function refuseSome(batch, problem, signal) {
    const place = batch.length === 1 ? 0 : problem.image - 1;  // the server counts from 1
    if (problem.status === 404) total -= waiting.splice(0).length;  // the session is gone
    if (problem.status >= 500) for (const {name} of batch) refuse(name, problem.message);  // perhaps learnt: not again
    else if (Number.isNaN(place)) for (const image of batch) await deliver([image], signal);
    else {
      refuse(batch[place].name, problem.message);
      await deliver(batch.filter((_, k) => k !== place), signal);
    }
  }

  function refuse(name, sentence) {
    done += 1;
    refused.push([name, sentence]);
    complain(`${name}: ${sentence}`);
    show();
  }

  function show(sentence) {
    const busy = done < total && Boolean(stop);
    $("queue").hidden = !busy;
    $("queue-text").textContent = `${done} of ${several(total, "image")} sent.` + (sentence ? ` Waiting: ${sentence}` : "");
    $("progress").max = Math.max(total, 1);
    $("progress").value = done;
    $("refused").hidden = !refused.length;
    $("refused").firstElementChild.textContent = `${several(refused.length, "image")} refused`;
    $("refused").lastElementChild.replaceChildren(...refused.slice(-LISTED).map(([name, why]) => {
      const item = make("li");
      item.append(make("b", "", name), " " + why);
      return item;
    }));
  }

  addEventListener("beforeunload", event => { if (stop) event.preventDefault(); });
  return {add, reset, isBusy: () => Boolean(stop), cancel: () => reset(address)};
}
