"""The look of a page, in light and in dark, and its few lines of script."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #00795a; --bad: #b3400f;
  --page: #fff; --ink: #1a1c1e; --blue: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --good: #3fc79a; --bad: #ff8a5c;
  --page: #15181b; --ink: #e6e8ea; --blue: #4aa8e0; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; background: var(--page);
  color: var(--ink); }
main { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.lead { font-size: 1.1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; font-size: .95rem; vertical-align: top;
  border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th:first-child { text-align: left; }
thead th { font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: inherit; }
tr.best > th, tr.best > th + td { font-weight: 700; }
figure { margin: 1.5rem 0; }
figcaption { font-size: .85rem; opacity: .8; }
figure { overflow-x: auto; }
svg { width: 100%; min-width: 34rem; height: auto; }
.card { overflow: visible; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1rem; }
.card { margin: 0; display: flex; gap: .6rem; align-items: center; }
.card img { width: 72px; height: 72px; border-radius: 6px; image-rendering: auto; flex: none; }
.right { color: var(--good); } .wrong { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; font-size: .9rem; }
dt { opacity: .75; } dd { margin: 0; overflow-wrap: anywhere; }
"""


STUDY_STYLE = """
:root { --shade: #0003; }
@media (prefers-color-scheme: dark) { :root { --shade: #fff3; } }
main.studies { max-width: 84rem; }
.studies .lead { font-size: 1rem; max-width: 46rem; }
.studies section { border-top: 2px solid var(--line); margin-top: 2.5rem; }
.studies section > p, .findings, .facts, .notes { max-width: 46rem; }
.studies h3 { display: inline; font-size: 1.05rem; }
.studies h4 { margin: 1.2rem 0 .3rem; }
nav ol { columns: 16rem; padding-left: 1.4rem; }
a { color: var(--blue); }
a.data { white-space: nowrap; }
.facts, .notes, .traces, .note { font-size: .85rem; }
.facts { opacity: .85; }
.note { border-left: 3px solid var(--bad); padding-left: .6rem; }
.notes li { margin: .1rem 0; }
.flag { font-size: .72rem; font-weight: 400; color: var(--bad); border: 1px solid;
  border-radius: 3px; padding: 0 .25rem; white-space: nowrap; }
.wide { margin: .8rem 0; max-width: 100%; }
.wide, .images { background:
    linear-gradient(to left, var(--page) 60%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--shade), transparent) right / 1.1rem 100% no-repeat; }
.scrolls::before { content: 'scroll →'; display: block; position: sticky; left: 0;
  text-align: right; font-size: .75rem; opacity: .8; }
.studies table { width: auto; min-width: min(100%, 24rem); }
.studies th, .studies td { font-size: .86rem; padding: .25rem .45rem; line-height: 1.35; }
.studies .overview th, .studies .overview td { padding: .25rem .22rem; font-size: .81rem; }
small.name { display: inline-block; white-space: normal; max-width: 9rem; }
.overview td small { white-space: nowrap; }
tfoot th { font-weight: inherit; }
tfoot tr:first-child > * { border-top: 2px solid var(--line); }
.overview td.reason small { white-space: normal; display: inline-block; min-width: 4.5rem; }
.studies small { font-size: .78rem; font-weight: 400; opacity: .85; }
.studies tbody th, .studies tfoot th, .studies thead th:first-child {
  position: sticky; left: 0; z-index: 1; background: var(--page); text-align: left;
  white-space: normal; min-width: 9.5rem; max-width: 13rem; }
.studies thead th { white-space: normal; }
.studies th.best, .studies td.best, span.best { font-weight: 700; }
tr.failed > th, tr.failed > td { color: var(--bad); }
tr.absent > th, tr.absent > td { opacity: .65; }
tr.absent > th { opacity: 1; color: color-mix(in srgb, var(--ink) 65%, var(--page)); }
td.reason details { max-width: min(60rem, 58vw); } td.reason summary { padding: 0; }
span.why { display: inline-block; max-width: min(60rem, 58vw); }
td.reason[colspan] { text-align: left; white-space: normal; min-width: 8rem; }
span.better { color: var(--good); } span.worse { color: var(--bad); }
.missing th + th, .missing td { text-align: left; white-space: normal; }
.grid td { text-align: center; } .grid th + th { text-align: center; }
th button { all: unset; cursor: pointer; display: inline-block; }
th button::after { content: ' ↕'; opacity: .4; }
th[aria-sort=ascending] button::after { content: ' ▲'; opacity: 1; }
th[aria-sort=descending] button::after { content: ' ▼'; opacity: 1; }
th button:focus-visible, .wide:focus-visible, .images:focus-visible, summary:focus-visible {
  outline: 2px solid var(--blue); outline-offset: 2px; }
details.source { border: 1px solid var(--line); border-radius: 6px; margin: .8rem 0;
  padding: .2rem .8rem; }
summary { cursor: pointer; padding: .3rem 0; }
.charts { display: grid; gap: 0 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); align-items: start; }
.chart { margin: .4rem 0 1rem; min-width: 0; }
.chart svg { width: 100%; display: block; }
.images { overflow-x: auto; }
.chart figcaption { max-width: 46rem; }
.small .images { display: grid; gap: .5rem;
  grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); align-items: end; }
.small { grid-column: 1 / -1; }
.prompts ul { columns: 18rem; margin: .2rem 0; } #open-all { font: inherit; cursor: pointer; }
.card ul { list-style: none; margin: 0; padding: 0; }
.studies .gallery { grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); }
.studies .card { align-items: start; }
.traces ul { padding-left: 1.1rem; overflow-wrap: anywhere; }
code { overflow-wrap: anywhere; }
@media (max-width: 36rem) {
  main.studies { margin: 1rem auto; padding: 0 .75rem; }
  details.source { padding: .2rem .5rem; }
  .studies tbody th, .studies thead th:first-child { min-width: 6rem;
    max-width: 8rem; }
  .studies dl { grid-template-columns: 1fr; } .studies dd { margin-bottom: .3rem; }
}
@media print {
  :root { font-size: 11px; color-scheme: light; --page: #fff; --ink: #000;
    --blue: #0072b2; --good: #00795a; --bad: #b3400f; }
  body { font-size: 9.5pt; } main.studies { max-width: none; margin: 0; padding: 0; }
  .wide { overflow: visible; } .wide, .images { background: none; }
  .scrolls::before, #open-all { display: none; } a { color: inherit; text-decoration: none; }
  a.data, .traces, th button::after { display: none; content: none; }
  .studies th, .studies td { font-size: 6.5pt; padding: .1rem .2rem; white-space: normal;
    min-width: 0; }
  .studies small, .flag { font-size: 6pt; }
  .studies tbody th, .studies tfoot th, .studies thead th:first-child { position: static;
    min-width: 0; }
  td, th { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .chart svg { min-width: 0 !important; }
  figure, tr { break-inside: avoid; } h2, h3, h4, summary { break-after: avoid; }
  details.source { border: 0; padding: 0; }
  .prompts::details-content, .reason details::details-content { content-visibility: visible;
    block-size: auto; }
}
"""


SCRIPT = """
for (const table of document.querySelectorAll('table.sortable')) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  if (body.rows.length < 2) continue;
  const key = (row, n) => {
    const v = row.cells[n] && row.cells[n].dataset.v;
    return v === undefined ? null : isNaN(v) ? v : Number(v);
  };
  const sort = (head, n) => {
    const now = head.getAttribute('aria-sort');
    const up = now ? now === 'descending' : 'rises' in head.dataset;
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const compare = (a, b) => {
      const x = key(a, n), y = key(b, n);
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === 'number' && typeof y === 'number'
        ? x - y : String(x).localeCompare(String(y), undefined, {numeric: true});
      return up ? order : -order;
    };
    body.append(...[...body.rows].sort(compare));
  };
  heads.forEach((head, n) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    button.addEventListener('click', () => sort(head, n));
    head.append(button);
  });
}
const boxes = document.querySelectorAll('.wide, .images');
const seen = new ResizeObserver(entries => {
  for (const {target: box} of entries)
    box.classList.toggle('scrolls', box.scrollWidth > box.clientWidth + 1);
});
for (const box of boxes) seen.observe(box);
const parts = [...document.querySelectorAll('details:not(.traces)')];
const all = document.createElement('button');
all.id = 'open-all';
const say = () => {
  all.textContent = parts.every(part => part.open) ? 'Close all parts' : 'Open all parts';
};
all.addEventListener('click', () => {
  const open = !parts.every(part => part.open);
  for (const part of parts) part.open = open;
  say();
});
document.addEventListener('toggle', say, true);
say();
if (parts.length) document.querySelector('main dl').after(all);
"""
