"""A few lines of script: column heads that sort, and print with everything open."""

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
const folded = [];
addEventListener('beforeprint', () => {
  for (const each of document.querySelectorAll('details:not([open]):not(.traces)')) {
    each.open = true;
    folded.push(each);
  }
});
addEventListener('afterprint', () => { for (const each of folded.splice(0)) each.open = false; });
"""
