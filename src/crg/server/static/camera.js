// The camera: a frame on a click, or one every so many seconds.
import {$, complain} from "./dom.js";

export function createCamera({send, isBusy}) {
  let stream = null, timer = null;

  async function open() {
    if (!navigator.mediaDevices) return complain("The browser gives the camera to safe pages only: use https or localhost.");
    try {
      stream = await navigator.mediaDevices.getUserMedia({video: {facingMode: "environment"}});
    } catch (error) {
      return complain(`The camera cannot be used (${error.message}): allow it for this page.`);
    }
    $("video").srcObject = stream;
    show();
  }

  function close() {
    for (const track of stream?.getTracks() ?? []) track.stop();
    stream = $("video").srcObject = null;
    $("repeat").checked = false;
    schedule();
    show();
  }

  function show() {
    $("camera-panel").hidden = !stream;
    $("camera").setAttribute("aria-expanded", Boolean(stream));
    $("camera").textContent = stream ? "Close camera" : "Camera";
  }

  async function take() {
    const {videoWidth: width, videoHeight: height} = $("video");
    if (!width) return;
    const canvas = Object.assign(document.createElement("canvas"), {width, height});
    canvas.getContext("2d").drawImage($("video"), 0, 0);
    const content = await new Promise(resolve => canvas.toBlob(resolve, "image/jpeg", 0.92));
    const time = new Date().toISOString().slice(0, 19).replaceAll(":", "-");
    send([new File([content], `camera ${time}.jpg`, {type: "image/jpeg"})]);
  }

  function schedule() {
    clearInterval(timer);
    const seconds = Math.max(0.2, Number($("seconds").value) || 2);
    if ($("repeat").checked) timer = setInterval(() => { if (!isBusy()) take(); }, 1000 * seconds);  // slow: fewer frames
  }

  $("camera").addEventListener("click", () => stream ? close() : open());
  $("frame").addEventListener("click", take);
  for (const id of ["repeat", "seconds"]) $(id).addEventListener("change", schedule);
  return {close};
}
