"use strict";
// What the report and the live page do to a figure before they draw it.
const sweeperFigures = {
  config: {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // these numbers go nowhere
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetCameraLastSave3d"],
  },

  repaint(value, colors) {
    if (typeof value === "string") return colors[value] ?? value;
    if (Array.isArray(value)) return value.map((inner) => sweeperFigures.repaint(inner, colors));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, sweeperFigures.repaint(inner, colors)]));
    }
    return value;
  },

  // On a phone the colour bar lies below the plot instead of taking a fifth of its width.
  narrow(figure) {
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
  },
};
