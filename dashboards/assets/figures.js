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

  // Fewer ticks where their texts would touch: the powers of ten stay longest.
  thin(axis) {
    if (axis?.type !== "log" || !axis.tickvals || !axis.range) return;
    const width = 290 / (axis.range[1] - axis.range[0]);
    const leading = (value) => Number(value.toExponential(6).split("e")[0]);
    for (const kept of [[1, 2, 3, 5, 8], [1, 2, 5], [1, 3], [1]]) {
      const ticks = axis.tickvals.map((value, i) => [value, axis.ticktext[i]]).filter(([value]) => kept.includes(leading(value)));
      const room = ticks.every(([value, text], i) => {
        const next = ticks[i + 1];
        return !next || Math.log10(next[0] / value) * width > 4 * (text.length + next[1].length) + 10;
      });
      if (!room && kept.length > 1) continue;
      if (ticks.length < 2) return;
      [axis.tickvals, axis.ticktext] = [ticks.map(([value]) => value), ticks.map(([, text]) => text)];
      return;
    }
  },

  // The lines of a text that has several, or tags, with breaks behind words where one is longer than a phone is wide.
  wrapped(text) {
    const most = 46;
    const wrap = (line) => {
      let letters = 0;
      const pieces = line.match(/<[^>]*>|[^< ]+ ?| /g) ?? [];
      return pieces.map((piece) => {
        const length = piece.startsWith("<") ? 0 : piece.length;
        letters += length;
        if (letters <= most || letters === length) return piece;
        letters = length;
        return `<br>${piece}`;
      }).join("");
    };
    return text.split("<br>").map(wrap).join("<br>");
  },

  // A text in two lines where it is longer than a phone is wide: behind a mark, else behind a word.
  broken(text) {
    const most = 44;
    if (text?.includes("<")) return sweeperFigures.wrapped(text);
    if (!text || text.length <= most) return text;
    const start = text.slice(0, most);
    const marks = [", ", "; ", ": ", " / "].map((mark) => start.lastIndexOf(mark) + mark.length).filter((at) => at > most / 3);
    const at = marks.length ? Math.max(...marks) : start.lastIndexOf(" ") + 1;
    return at ? `${text.slice(0, at).trimEnd()}<br>${text.slice(at)}` : text;
  },

  // On a phone the colour bar lies below the plot and its title instead of taking a fifth of its width.
  narrow(figure) {
    figure.layout.margin = { ...figure.layout.margin, l: 0, r: 8 };
    for (const [name, axis] of Object.entries(figure.layout)) {
      if (/^xaxis/.test(name) && axis.title) axis.title.text = sweeperFigures.broken(axis.title.text);
    }
    for (const trace of figure.data) {
      if (trace.name && trace.showlegend !== false) {
        const name = sweeperFigures.broken(trace.name);
        if (figure.layout.height) figure.layout.height += 16 * (name.split("<br>").length - trace.name.split("<br>").length);
        trace.name = name;
      }
      const bar = trace.marker?.colorbar;
      if (!bar) continue;
      const [y, room] = figure.layout.xaxis?.title?.text?.includes("<br>") ? [-0.36, 144] : [-0.2, 120];
      Object.assign(bar, { orientation: "h", x: 0.5, xanchor: "center", y, yanchor: "top", len: 1, thickness: 8 });
      bar.title.side = "top";
      figure.layout.margin.b = room;
    }
    for (const name of ["xaxis", "xaxis2"]) sweeperFigures.thin(figure.layout[name]);
    const eye = figure.layout.scene?.camera.eye;
    for (const axis in eye ?? {}) eye[axis] *= 1.45;
    if (eye) {
      figure.layout.height = 420;
      figure.layout.scene.domain = { y: [0.28, 1] }; // above what stands in the corner
    }
    for (const note of figure.layout.annotations ?? []) {
      const lines = note.text.split("<br>").map((line) => line.replace(/<[^>]*>/g, "").length);
      const letters = Math.max(...lines); // a line that breaks would lie over the legend
      if (letters > 50) note.font = { ...note.font, size: Math.max(9, Math.floor((11 * 56) / letters)) };
      if (note.name === "watermark") note.font.size = 22;
    }
    return figure;
  },
};
