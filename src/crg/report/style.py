"""The look of a page, in light and in dark."""

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
