// Small line charts in SVG, each with its content as a sentence.
import {make, percent} from "./dom.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [360, 125, 38, 10, 8, 22];
const WINDOW = 10;  // points of a running mean
const LINES = 6;  // classes that have a line

function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export const runningMean = values => values.map((_, k) => {
  const window = values.slice(Math.max(0, k + 1 - WINDOW), k + 1);
  return window.reduce((sum, value) => sum + value, 0) / window.length;
});

export function drawFraction(figure, title, steps, values, corrections) {
  const mean = runningMean(values), last = mean.at(-1);
  const lines = [{values, style: "raw"}, {values: mean, style: "line-0"}];
  const sentence = `${title}: running mean ${percent(mean[0])} at image ${steps[0]}, ${percent(last)} at image ${steps.at(-1)}, `
    + `between ${percent(Math.min(...mean))} and ${percent(Math.max(...mean))}.`;
  const note = `Running mean of ${WINDOW} points. Green: a correction.`, ticks = [[0, "0%"], [0.5, "50%"], [1, "100%"]];
  draw(figure, {title, now: percent(last), sentence, note, steps, lines, ticks, corrections});
}

export function drawCounts(figure, title, steps, perClass) {
  const names = Object.keys(perClass).slice(0, LINES), top = Math.max(...names.map(name => perClass[name].at(-1)));
  const lines = names.map((name, k) => ({values: perClass[name], style: "line-" + k, name}));
  const sentence = `${title}: ${names.map(name => `${name} ${perClass[name].at(-1)}`).join(", ")}.`;
  const ticks = [0, top / 2, top].filter(Number.isInteger).map(count => [count, count.toLocaleString("en")]);
  draw(figure, {title, sentence, steps, lines, ticks});
}

function draw(figure, {title, now = "", sentence, note, steps, lines, ticks, corrections = []}) {
  const caption = make("figcaption", "", title + " ");
  caption.append(make("b", "", now));
  const chart = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": sentence});
  const top = ticks.at(-1)[0], span = Math.max(1, steps.at(-1) - steps[0]);
  const x = step => LEFT + (WIDTH - LEFT - RIGHT) * (step - steps[0]) / span;
  const y = value => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  for (const [value, text] of ticks)
    chart.append(svg("path", {class: "rule", d: `M${LEFT} ${y(value)}H${WIDTH - RIGHT}`}),
      svg("text", {x: LEFT - 5, y: y(value) + 4, "text-anchor": "end"}, text));
  chart.append(svg("text", {x: LEFT, y: HEIGHT - 6}, `image ${steps[0]}`));
  if (steps.length > 1) chart.append(svg("text", {x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end"}, steps.at(-1)));
  for (const {values, style} of [...lines].reverse()) chart.append(line(values.map((value, k) => [x(steps[k]), y(value)]), style));
  for (const step of corrections.filter(each => each >= steps[0] && each <= steps.at(-1)))
    chart.append(svg("path", {class: "correction", d: `M${x(step)} ${y(0)}v-8`}));
  figure.replaceChildren(caption, chart, note ? make("p", "note", note) : legend(lines));
}

function line(points, style) {
  if (points.length === 1) return svg("circle", {class: "dot " + style, cx: points[0][0], cy: points[0][1], r: 3});
  return svg("path", {class: "line " + style, d: "M" + points.map(point => point.map(n => n.toFixed(1)).join(" ")).join("L")});
}

function legend(lines) {
  const list = make("ul", "legend");
  list.setAttribute("aria-hidden", "true");  // the chart's sentence says the same
  list.append(...lines.map(({name, style}) => {
    const item = make("li"), swatch = svg("svg", {viewBox: "0 0 14 8", class: "swatch"});
    swatch.append(svg("path", {class: "line " + style, d: "M0 4H14"}));
    item.append(swatch, make("span", "", name));
    return item;
  }));
  return list;
}
