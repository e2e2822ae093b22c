"use strict";
// Figures: first a sketch of each, then plotly.js.
const sweeperPlots = (() => {
  const { byId, phone, theme, get, notice, go, choose } = sweeperBrowser;
  const drawn = new Map();
  // plotly.js takes seconds to compile where it is new: it comes when there is something to draw, after a picture of it.
  const source = document.querySelector("meta[name=plotly]").content;
  if (/[?&](sweep|compare)=/.test(location.search)) {
    document.head.append(Object.assign(document.createElement("link"), { rel: "preload", as: "script", href: source }));
  }
  let loading;
  const library = () => {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.onload = resolve;
      script.onerror = () => {
        loading = undefined;
        reject(new Error("The figures cannot be loaded; load the page again."));
      };
      script.src = source;
      document.head.append(script);
    });
    return loading;
  };
  const PAINTING_MILLISECONDS = 50; // for the browser to show a picture before the library keeps it busy
  const [ABOVE, LEAST] = [460, 400]; // pixels above the front, which ends where the window does, and that it has at least
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, PAINTING_MILLISECONDS)));
  const config = { ...sweeperFigures.config, responsive: false }; // sized by their places, not by the window
  const kept = config.modeBarButtonsToRemove.filter((name) => name !== "select2d");
  const boxable = { ...config, modeBarButtonsToRemove: kept };
  const sizes = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const width = target._fullLayout?.width;
      if (width && contentRect.width && Math.abs(contentRect.width - width) > 1) window.Plotly.Plots.resize(target);
    }
  });
  const without = (url, name) => {
    const address = new URL(url, location.href);
    address.searchParams.delete(name);
    return `${address.pathname}${address.search}`;
  };
  const sectionOf = (id) => byId(id.replace("figure-", "section-"));
  const wish = (id, resources) =>
    `${resources[id]} ${resources[id.replace("figure-", "marks-")]} ${theme()} ${phone.matches}`;
  const prepared = async (id, resources, isWanted) => {
    const marksUrl = resources[id.replace("figure-", "marks-")];
    const [figure, marks] = await Promise.all([get(resources[id], "json"), marksUrl ? get(marksUrl, "json") : null]);
    if (!isWanted()) return null; // something newer is on its way, and the section is its
    const section = sectionOf(id);
    section.classList.toggle("empty", figure === null);
    if (figure === null) return null;
    section.classList.toggle("bare", !figure.data.length);
    let made = structuredClone(figure);
    made.layout.uirevision = without(resources[id], "v");
    if (marks) mark(made, marks);
    if (theme() === "dark") made = sweeperFigures.repaint(made, SWEEPER_DARK);
    if (phone.matches && !section.querySelector(".wide")) made = sweeperFigures.narrow(made);
    if (id === "figure-front" && !phone.matches) made.layout.height = Math.min(made.layout.height, Math.max(innerHeight - ABOVE, LEAST));
    section.querySelector(".frame").style.height = `${made.layout.height ?? 450}px`;
    return made;
  };
  const sketch = async (id, resources) => {
    const made = await prepared(id, resources, () => latest === resources).catch(() => null); // `draw` says what is wrong
    const place = byId(id).firstElementChild;
    if (made && !place.data) place.innerHTML = sweeperSketch(made, place.clientWidth);
  };
  const draw = async (id, resources) => {
    const wanted = wish(id, resources);
    const isWanted = () => drawn.get(id) === wanted;
    if (isWanted()) return;
    drawn.set(id, wanted);
    let made;
    try {
      made = await prepared(id, resources, isWanted);
      if (made) await library();
    } catch (error) {
      if (!isWanted()) return;
      drawn.delete(id);
      notice(error.message);
      return;
    }
    if (!made || !isWanted()) return;
    keepView(sectionOf(id), id, made.layout);
    const place = byId(id).firstElementChild;
    const isFirst = !place.data;
    if (isFirst) place.replaceChildren();
    await window.Plotly.react(place, made.data, made.layout, id === "figure-front" ? boxable : config);
    if (!isFirst) return;
    sizes.observe(place);
    place.on("plotly_click", (event) => (id === "figure-front" && picks(event) ? choose({ point: event.points[0].customdata }) : follow(event)));
    if (id === "figure-front") place.on("plotly_selected", boxed);
  };
  const picks = ({ points }) => typeof points[0]?.customdata === "string" && /\.\d+(\.|$)/.test(points[0].customdata);
  // Other points and lines lead to the page of their trial.
  const follow = ({ points }) => {
    const { text, customdata } = points[0] ?? {};
    const found = /^<b>(t\d+)<\/b>/.exec(text ?? "") ?? /^(t\d+)\b/.exec(customdata ?? "");
    const sweep = new URLSearchParams(location.search).get("sweep");
    if (found && sweep) go(`/?${new URLSearchParams({ sweep, trial: found[1] })}`);
  };
  // A box on the front is what can be afforded and what is needed: the filters are set to it.
  const boxed = (event) => {
    if (!event?.range?.x) return;
    const { x, y } = event.range;
    const short = (value) => Number(value.toPrecision(3));
    const value = byId("section-front").dataset.value;
    choose({ "max-epsilon": short(Math.max(...x)), point: null }, { [value]: short(Math.min(...y)) });
    window.Plotly.relayout(document.querySelector("#figure-front .js-plotly-plot"), { selections: [] });
  };

  // Zoom and rotation chosen by the reader are kept, although axes that grow with the sweep come with new ends.
  const supplied = new Map();
  const keepView = (section, id, layout) => {
    const before = supplied.get(id);
    const ours = { revision: layout.uirevision, camera: JSON.stringify(layout.scene?.camera), ranges: {} };
    const now = section.querySelector(".js-plotly-plot")?.layout ?? {};
    const axes = Object.keys({ ...now, ...layout }).filter((name) => /^[xy]axis\d*$/.test(name));
    for (const name of axes) ours.ranges[name] = JSON.stringify(layout[name]?.range);
    supplied.set(id, ours);
    if (before?.revision !== ours.revision) return;
    for (const name of axes) {
      const { autorange, range } = now[name] ?? {};
      if (autorange === true || !range || JSON.stringify(range) === before.ranges[name]) continue;
      layout[name] = { ...layout[name], range: [...range], autorange: false };
    }
    const camera = now.scene?.camera;
    if (camera && layout.scene && JSON.stringify(camera) !== before.camera) layout.scene.camera = structuredClone(camera);
  };

  // The limits of the filters, what lies within them, and the point that they choose.
  const mark = (made, marks) => {
    const ink = SWEEPER_LIGHT;
    const solid = made.data.some((trace) => trace.type === "scatter3d");
    for (const trace of made.data) {
      if (!Array.isArray(trace.customdata) || trace.name === "knee") continue;
      if (marks.allowed && !solid) {
        const allowed = new Set(marks.allowed);
        trace.selectedpoints = trace.customdata.flatMap((name, i) => (allowed.has(name) ? [i] : []));
        trace.unselected = { marker: { opacity: 0.12 } };
      }
    }
    if (!solid) {
      const line = { color: ink.orange, width: 1.5, dash: "dash" };
      const { epsilon, value } = marks.limits;
      const shapes = (made.layout.shapes ??= []);
      if (epsilon !== null) shapes.push({ type: "line", x0: epsilon, x1: epsilon, yref: "paper", y0: 0, y1: 1, line });
      if (value !== null) shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line });
    }
    const { point } = marks;
    if (!point) return;
    const place = solid ? { x: [point.epsilon], y: [point.utility], z: [point.depth] } : { x: [point.epsilon], y: [point.value] };
    made.data.push({
      type: solid ? "scatter3d" : "scatter",
      ...place,
      mode: "markers",
      marker: { symbol: "diamond-open", size: solid ? 9 : 19, color: ink.orange, line: { color: ink.orange, width: 3 } },
      hoverinfo: "skip",
      name: "picked point",
    });
  };

  // Draw the figures of a page; what is returned waits for the first picture of each.
  let latest;
  const show = (resources) => {
    latest = resources;
    const ids = Object.keys(resources).filter((id) => id.startsWith("figure-"));
    const all = (step) => Promise.allSettled(ids.map((id) => step(id, resources)));
    if (window.Plotly) return all(draw);
    const sketches = all(sketch);
    sketches.then(painted).then(() => latest === resources && all(draw));
    return sketches;
  };

  // The chosen trials of a table: the figure of all curves, reduced to theirs.
  sweeperCompare.drawFrom(async () => {
    const url = latest?.["figure-curves"];
    if (!url) return {};
    const [figure] = await Promise.all([get(url, "json"), library()]);
    const paint = async (frame, made) => {
      let figure = theme() === "dark" ? sweeperFigures.repaint(made, SWEEPER_DARK) : made;
      if (phone.matches) figure = sweeperFigures.narrow(figure);
      frame.style.height = `${figure.layout.height}px`;
      const place = frame.firstElementChild;
      await window.Plotly.react(place, figure.data, figure.layout, config);
      sizes.observe(place);
    };
    return { figure, paint };
  });
  addEventListener("sweeper-theme", sweeperCompare.again);

  return { show };
})();
