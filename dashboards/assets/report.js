"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const dark = read("dark-colors");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const config = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // these numbers go nowhere
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetCameraLastSave3d"],
  };

  const repaint = (value) => {
    if (typeof value === "string") return dark[value] ?? value;
    if (Array.isArray(value)) return value.map(repaint);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, repaint(inner)]));
    }
    return value;
  };

  // On a phone the colour bar lies below the plot instead of taking a fifth of its width.
  const narrow = (figure) => {
    figure.layout.margin = { ...figure.layout.margin, l: 0, r: 8 };
    for (const trace of figure.data) {
      const bar = trace.marker?.colorbar;
      if (!bar) continue;
      Object.assign(bar, { orientation: "h", x: 0.5, xanchor: "center", y: -0.2, yanchor: "top", len: 1, thickness: 8 });
      bar.title.side = "top";
      figure.layout.margin.b = 120;
    }
    const eye = figure.layout.scene?.camera.eye;
    for (const axis in eye ?? {}) eye[axis] *= 1.55;
    for (const note of figure.layout.annotations ?? []) {
      if (note.name === "watermark") note.font.size = 22;
    }
    return figure;
  };

  const draw = (useDark) => {
    for (const [id, original] of Object.entries(figures)) {
      const element = document.getElementById(id);
      let figure = structuredClone(original);
      if (useDark) figure = repaint(figure);
      const phone = element.clientWidth < 560;
      if (phone) figure = narrow(figure);
      const bar = phone ? false : "hover";
      Plotly.react(element, figure.data, { ...figure.layout, autosize: true }, { ...config, displayModeBar: bar });
    }
  };

  draw(prefersDark.matches);
  prefersDark.addEventListener("change", (event) => draw(event.matches));
  addEventListener("beforeprint", () => draw(false));
  addEventListener("afterprint", () => draw(prefersDark.matches));
  let width = innerWidth;
  addEventListener("resize", () => {
    if ((width < 600) !== (innerWidth < 600)) draw(prefersDark.matches);
    width = innerWidth;
  });

  const key = (row, column) => {
    const text = row.children[column].dataset.value ?? "";
    const value = Number(text);
    return text === "" ? null : Number.isNaN(value) ? text : value;
  };
  const compare = (a, b) => (typeof a === typeof b && typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const header = button.closest("th");
      const column = [...header.parentElement.children].indexOf(header);
      const order = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", order);
      const body = header.closest("table").tBodies[0];
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : (order === "ascending" ? 1 : -1) * compare(a, b)));
      body.append(...rows.map(([, row]) => row));
    });
  }
})();
