"use strict";
// A picture of a figure before plotly.js is there: the marks and lines of two dimensions, from the same numbers.
const sweeperSketch = (() => {
  let count = 0;
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const plain = (text) => new DOMParser().parseFromString(String(text), "text/html").body.textContent;
  const tag = (name, attributes, inner = "") =>
    `<${name} ${Object.entries(attributes).map(([key, value]) => `${key}="${escaped(value)}"`).join(" ")}>${inner}</${name}>`;
  const words = (text, attributes) => tag("text", attributes, escaped(plain(text)));
  const each = (value, i) => (Array.isArray(value) ? value[i] : value);
  const finite = (value) => typeof value === "number" && Number.isFinite(value);

  const span = (figure, letter, log) => {
    const axis = figure.layout[`${letter}axis`] ?? {};
    if (axis.range) return axis.range;
    const values = figure.data.flatMap((trace) => trace[letter] ?? []).filter((v) => finite(v) && (!log || v > 0));
    const found = values.map((v) => (log ? Math.log10(v) : v));
    if (!found.length) return null;
    const low = found.reduce((a, b) => Math.min(a, b)), high = found.reduce((a, b) => Math.max(a, b));
    const pad = 0.05 * (high - low || 1);
    return [axis.rangemode === "tozero" ? Math.min(0, low) : low - pad, high + pad];
  };

  const steps = ([low, high], format) => {
    const rough = (high - low) / 6;
    const decade = 10 ** Math.floor(Math.log10(rough));
    const step = decade * [1, 2, 5, 10].find((factor) => factor * decade >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const ticks = [];
    for (let i = Math.ceil(low / step); i * step <= high; i++) {
      const value = i * step;
      ticks.push([value, /%$/.test(format ?? "") ? `${(100 * value).toFixed(Math.max(0, digits - 2))}%` : value.toFixed(digits)]);
    }
    return ticks;
  };

  const scaleOf = (figure, letter, from, to) => {
    const axis = figure.layout[`${letter}axis`] ?? {};
    const log = axis.type === "log";
    const range = span(figure, letter, log);
    if (!range) return null;
    const [low, high] = range;
    const place = (value) => from + ((to - from) * ((log ? Math.log10(value) : value) - low)) / (high - low);
    const named = axis.tickvals?.map((value, i) => [value, axis.ticktext?.[i] ?? value]);
    const ticks = (named ?? (log ? [] : steps(range, axis.tickformat))).filter(([value]) => {
      const at = place(value);
      return at >= Math.min(from, to) - 1 && at <= Math.max(from, to) + 1;
    });
    return { place, ticks, title: axis.title?.text ?? "" };
  };

  const blend = (scale, share) => {
    const at = Math.max(0, Math.min(1, share));
    const above = Math.max(1, scale.findIndex(([stop]) => stop >= at));
    const [[low, first], [high, second]] = [scale[above - 1], scale[above]];
    const part = (at - low) / (high - low);
    const channel = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
    return `rgb(${[0, 1, 2].map((i) => Math.round(channel(first, i) * (1 - part) + channel(second, i) * part)).join()})`;
  };

  const colorOf = ({ color, colorscale, cmin, cmax }, i, otherwise) => {
    const one = each(color, i);
    return finite(one) && colorscale ? blend(colorscale, (one - cmin) / (cmax - cmin || 1)) : one ?? otherwise;
  };

  const path = (trace, x, y) => {
    const step = trace.line?.shape === "hv";
    let said = "", pen = false;
    (trace.x ?? []).forEach((value, i) => {
      if (!finite(value) || !finite(trace.y[i])) return (pen = false);
      const [px, py] = [x.place(value).toFixed(1), y.place(trace.y[i]).toFixed(1)];
      said += pen ? (step ? `H${px}V${py}` : `L${px} ${py}`) : `M${px} ${py}`;
      pen = true;
    });
    const dash = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4" }[trace.line?.dash] ?? "none";
    const filled = trace.fill === "toself" ? trace.fillcolor : "none";
    return tag("path", {
      d: said, fill: filled, stroke: trace.line?.color ?? "none", "stroke-width": trace.line?.width ?? 2,
      "stroke-dasharray": dash, opacity: trace.opacity ?? 1,
    });
  };

  const marks = (trace, x, y, ink) => {
    const marker = trace.marker ?? {};
    const open = /-open$/.test(marker.symbol ?? "");
    return (trace.x ?? []).map((value, i) => {
      if (!finite(value) || !finite(trace.y[i])) return "";
      const color = colorOf(marker, i, ink);
      const [cx, cy] = [x.place(value), y.place(trace.y[i])];
      const edge = open ? { stroke: color, "stroke-width": 2 } : { stroke: each(marker.line?.color, i) ?? "none", "stroke-width": marker.line?.width ?? 0 };
      const spread = trace.error_y?.array?.[i];
      const bar = spread ? tag("path", { d: `M${cx} ${y.place(trace.y[i] - spread)}V${y.place(trace.y[i] + spread)}`, stroke: trace.error_y.color }) : "";
      const look = { fill: open ? "none" : color, opacity: marker.opacity ?? 1, ...edge };
      return bar + tag("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: (each(marker.size, i) ?? 6) / 2, ...look });
    }).join("");
  };

  const notes = (figure, x, y, box) => {
    const lines = (figure.layout.shapes ?? []).filter((one) => one.type === "line").map((one) => {
      const at = one.y0 === one.y1 && !/paper|domain/.test(one.yref ?? "") ? y.place(one.y0) : null;
      const d = at === null ? `M${x.place(one.x0)} ${box.top}V${box.bottom}` : `M${box.left} ${at}H${box.right}`;
      return tag("path", { d, stroke: one.line.color, "stroke-dasharray": "3 3", "stroke-width": one.line.width });
    });
    const isPlaced = (one) => typeof one.y === "number"; // one at a category is drawn later
    const texts = (figure.layout.annotations ?? []).filter(isPlaced).map((one) => {
      const paper = one.yref === "paper" || one.name === "watermark";
      const at = paper ? [(box.left + box.right) / 2, (box.top + box.bottom) / 2] : [box.right - 4, y.place(one.y) - 5];
      const turned = one.textangle ? { transform: `rotate(${one.textangle} ${at[0]} ${at[1]})` } : {};
      const look = { x: at[0], y: at[1], fill: one.font?.color, "font-size": one.font?.size, ...turned };
      return words(one.text, { ...look, "text-anchor": paper ? "middle" : "end" });
    });
    return [tag("g", { "clip-path": `url(#${box.id})` }, lines.join("")), ...texts].join("");
  };

  // The picture as SVG, so many pixels wide, or an empty text for what only the library can draw.
  return (figure, width) => {
    const drawable = figure.data.every(({ type }) => (type ?? "scatter") === "scatter");
    if (!figure.data.length || !drawable || figure.layout.xaxis2) return "";
    const height = figure.layout.height ?? 450;
    const bar = figure.data.map((trace) => trace.marker?.colorbar).find(Boolean);
    const beside = bar && bar.orientation !== "h";
    const box = { id: `inside-${++count}`, left: 64, right: width - (beside ? 96 : 12), top: 76, bottom: height - Math.max(52, figure.layout.margin?.b ?? 0) };
    const x = scaleOf(figure, "x", box.left, box.right), y = scaleOf(figure, "y", box.bottom, box.top);
    if (!x || !y) return "";
    const { xaxis, font } = figure.layout.template.layout;
    const [line, grid, muted, ink] = [xaxis.linecolor, xaxis.gridcolor, xaxis.title.font.color, font.color];
    const small = { "font-size": 13, fill: ink };
    const grids = [
      ...x.ticks.map(([value, text]) => tag("path", { d: `M${x.place(value)} ${box.top}V${box.bottom}`, stroke: grid }) +
        words(text, { x: x.place(value), y: box.bottom + 20, "text-anchor": "middle", ...small })),
      ...y.ticks.map(([value, text]) => tag("path", { d: `M${box.left} ${y.place(value)}H${box.right}`, stroke: grid }) +
        words(text, { x: box.left - 8, y: y.place(value) + 4, "text-anchor": "end", ...small })),
    ];
    const titles = words(x.title, { x: (box.left + box.right) / 2, y: box.bottom + 44, "text-anchor": "middle", "font-size": 13, fill: muted }) +
      words(y.title, { transform: `translate(14 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle", "font-size": 13, fill: muted });
    const traces = figure.data.map((trace) => {
      const mode = trace.mode ?? "lines";
      return (/lines/.test(mode) ? path(trace, x, y) : "") + (/markers/.test(mode) ? marks(trace, x, y, ink) : "");
    });
    const frame = tag("path", { d: `M${box.left} ${box.top}V${box.bottom}H${box.right}`, stroke: line, fill: "none" });
    const clip = tag("clipPath", { id: box.id }, tag("rect", { x: box.left, y: box.top, width: Math.max(0, box.right - box.left), height: Math.max(0, box.bottom - box.top) }));
    const inside = tag("g", { "clip-path": `url(#${box.id})` }, traces.join(""));
    const inner = [clip, ...grids, frame, titles, inside, notes(figure, x, y, box)];
    return tag("svg", { class: "sketch", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, inner.join(""));
  };
})();
