// Each figure as one SVG file: its legend, then its panels side by side under their names.
for (const button of document.querySelectorAll("button.svg")) {
  button.addEventListener("click", () => {
    const figure = button.closest("figure"), columns = 4;
    const node = (name, attributes, text) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      if (text) made.textContent = text;
      return made;
    };
    const root = node("svg", { style: "color:#1c2430;background:#fff;font-family:system-ui,sans-serif" });
    const place = (svg, x, y, width, height) => {
      const copy = svg.cloneNode(true);
      for (const [key, value] of Object.entries({ x, y, width, height })) copy.setAttribute(key, value);
      root.append(copy);
    };
    const panels = [...figure.querySelectorAll(".panel")].map(each => ({
      name: each.querySelector(".name")?.textContent ?? "", svg: each.querySelector("svg"),
    }));
    const size = each => each.svg.viewBox.baseVal;
    const width = 12 + Math.max(...panels.map(each => size(each).width));
    const across = width * Math.min(columns, panels.length);
    const labels = [...figure.querySelectorAll(".legend span")];
    const perRow = Math.max(1, Math.floor(across / 200));
    labels.forEach((label, n) => {
      const x = 200 * (n % perRow), y = 16 * Math.floor(n / perRow);
      place(label.querySelector("svg"), x, y + 3, 30, 10);
      root.append(node("text", { x: x + 36, y: y + 12, "font-size": 10, fill: "currentColor" }, label.textContent));
    });
    let y = 16 * Math.ceil(labels.length / perRow);
    for (let n = 0; n < panels.length; n += columns) {
      const row = panels.slice(n, n + columns);
      row.forEach((each, column) => {
        const text = { x: width * column, y: y + 14, "font-size": 11, "font-weight": 600, fill: "currentColor" };
        root.append(node("text", text, each.name));
        place(each.svg, width * column, y + 20, size(each).width, size(each).height);
      });
      y += 26 + Math.max(...row.map(each => size(each).height));
    }
    for (const [key, value] of Object.entries({ width: across, height: y, viewBox: `0 0 ${across} ${y}` }))
      root.setAttribute(key, value);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" }));
    link.download = `${button.dataset.name}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
