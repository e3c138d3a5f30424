"""A few lines of script: heads that sort, a hint where a box scrolls, and all parts at once."""

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
