"""Charts as SVG, drawn by hand so that a page needs nothing but itself."""
