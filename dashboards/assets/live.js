"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const phone = matchMedia("(max-width: 37.5rem)");
  const byId = (id) => document.getElementById(id);
  const setProps = (id, props) => window.dash_clientside.set_props?.(id, props);

  // The theme: the system's, unless the switch says otherwise.
  const stored = () => {
    try {
      return localStorage.getItem("sweeper-theme");
    } catch {
      return null; // storage may be forbidden
    }
  };
  const theme = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
  if (["dark", "light"].includes(stored())) root.dataset.theme = stored();
  const nameSwitch = () => {
    const button = byId("switch");
    if (button) button.textContent = theme() === "dark" ? "Light theme" : "Dark theme";
  };
  const retheme = () => {
    nameSwitch();
    setProps("theme", { data: `${theme()}${phone.matches ? " phone" : ""}` });
  };
  const switchTheme = () => {
    const wanted = theme() === "dark" ? "light" : "dark";
    root.dataset.theme = wanted;
    try {
      localStorage.setItem("sweeper-theme", wanted);
    } catch {} // then it holds for this page only
    retheme();
  };
  system.addEventListener("change", retheme);
  phone.addEventListener("change", retheme);

  // What is fetched: each address once, as long as it is shown.
  const fetched = new Map();
  const get = (url, read) => {
    if (!fetched.has(url)) {
      const answer = load(url).then((response) => response[read]());
      answer.catch(() => fetched.delete(url));
      fetched.set(url, answer);
      if (fetched.size > 64) fetched.delete(fetched.keys().next().value);
    }
    return fetched.get(url);
  };
  const load = async (url, again = 3) => {
    let response;
    try {
      response = await fetch(url, { credentials: "same-origin" });
    } catch (error) {
      if (!again) throw error; // the network may be back in a moment
    }
    if ((!response || response.status === 429) && again) {
      await new Promise((resolve) => setTimeout(resolve, 1500));
      return load(url, again - 1);
    }
    if (!response.ok || response.redirected) throw new Error(await reason(response));
    return response;
  };
  const reason = async (response) => {
    if (response.status === 401 || response.redirected) return "You are signed out; load the page again.";
    const text = await response.text();
    try {
      return JSON.parse(text).detail ?? text;
    } catch {
      return text.slice(0, 300) || `The service answered ${response.status}.`;
    }
  };
  const notice = (text) => {
    const place = byId("notice");
    place.textContent = text;
    place.hidden = !text;
  };

  // Figures.
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
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
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
    section.querySelector(".frame").style.height = `${made.layout.height ?? 450}px`;
    return made;
  };
  const sketch = async (id, resources) => {
    if (window.Plotly) return;
    const isWanted = () => latest.resources === resources;
    const made = await prepared(id, resources, isWanted).catch(() => null); // the figure itself says what is wrong
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
    place.on("plotly_click", (event) => (id === "figure-front" && picks(event) ? clicked(event) : follow(event)));
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
    setProps("click", { data: { region: { epsilon: Math.max(...x), value: Math.min(...y) }, time: Date.now() } });
    window.Plotly.relayout(document.querySelector("#figure-front .js-plotly-plot"), { selections: [] });
  };
  const clicked = ({ points }) => setProps("click", { data: { point: points[0]?.customdata, time: Date.now() } });

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
      if (!Array.isArray(trace.customdata) || trace.name === "knee of the front") continue;
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

  // Parts of the page. Markup comes from the service, which escapes every text; scripts in it would not run.
  const FORM = "part-action";
  const placed = new Map();
  const put = async (id, url) => {
    const place = byId(id);
    if (placed.get(id)?.url === url) return;
    const asked = { url };
    placed.set(id, asked);
    let markup;
    try {
      markup = await (id === FORM ? load(url).then((response) => response.text()) : get(url, "text"));
    } catch (error) {
      if (placed.get(id) !== asked) return;
      placed.delete(id);
      notice(error.message);
      return;
    }
    if (placed.get(id) === asked && place.dataset.markup !== markup) exchange(place, markup);
  };
  // A form is asked for anew whenever it is opened: its price is that of the moment, and what was sent is not in it.
  const dropForm = () => {
    placed.delete(FORM);
    byId(FORM).replaceChildren();
    delete byId(FORM).dataset.markup;
  };
  const exchange = (place, markup) => {
    const inside = (what) => [...place.querySelectorAll(what)];
    const kept = {
      checked: inside("input:checked").map((box) => box.value),
      open: inside("details").map((one) => one.open),
      scrolls: inside(".scroll").map((one) => [one.scrollLeft, one.scrollTop]),
      focus: inside("a, button, input, summary, [tabindex]").indexOf(document.activeElement),
    };
    const first = place.dataset.markup === undefined;
    place.innerHTML = place.dataset.markup = markup;
    for (const box of inside("input[type=checkbox]")) box.checked = kept.checked.includes(box.value);
    if (!first) inside("details").forEach((one, i) => (one.open = kept.open[i] ?? one.open));
    inside(".scroll").forEach((one, i) => kept.scrolls[i] && one.scrollTo(...kept.scrolls[i]));
    if (kept.focus >= 0) inside("a, button, input, summary, [tabindex]")[kept.focus]?.focus({ preventScroll: true });
  };

  // The page as a whole.
  let latest;
  const page = (shown) => {
    if (!shown) return "";
    latest = shown;
    document.title = `${shown.title} · Sweeper`;
    notice(shown.notice);
    byId("missing").hidden = shown.title !== "Not found";
    byId("tabs").hidden = !shown.tab;
    for (const [tab, href] of Object.entries(shown.tabs)) {
      const link = byId(`tab-${tab}`);
      link.setAttribute("href", href);
      if (tab === shown.tab) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    for (const section of document.querySelectorAll("[id^=section-]")) {
      section.hidden = !(section.id.replace("section-", "figure-") in shown.resources);
    }
    const figures = Object.keys(shown.resources).filter((id) => id.startsWith("figure-"));
    const sketches = Promise.allSettled(figures.map((id) => sketch(id, shown.resources)));
    const drawings = window.Plotly ? Promise.allSettled(figures.map((id) => draw(id, shown.resources))) : sketches;
    if (!window.Plotly) {
      sketches.then(painted).then(() => latest === shown && figures.forEach((id) => draw(id, shown.resources)));
    }
    if (!(FORM in shown.resources)) dropForm();
    for (const place of document.querySelectorAll("[id^=part-]")) {
      place.hidden = !(place.id in shown.resources);
      if (place.hidden) continue;
      const fill = () => put(place.id, shown.resources[place.id]);
      // Long tables wait: a figure that is measured has everything above and below it laid out. At the first visit the
      // point picked does too: the first card of a service takes it seconds, which are the picture's.
      if (place.matches(".late") || (place.id === "part-picked" && !window.Plotly)) drawings.then(() => latest === shown && fill());
      else fill();
    }
    const filters = new URLSearchParams(shown.search);
    for (const name of ["view", "axis", "tab", "point", "radius"]) filters.delete(name);
    byId("steer").setAttribute("href", `/?${filters}&do=steer`);
    byId("saved-views").hidden = !shown.tab;
    dispatchEvent(new Event("sweeper-shown"));
    byId("control-radius").hidden = shown.radii.length < 2;
    document.querySelectorAll("[id^=control-minimum-]").forEach((one, i) => (one.hidden = i >= shown.names.length));
    const pulse = byId("pulse");
    pulse.textContent = { running: "live", completed: "ended" }[shown.state] ?? shown.state;
    pulse.classList.toggle("on", shown.state === "running");
    nameSwitch();
    nameThumbs();
    return "";
  };

  // Sliders say what they are, and their values as people read them.
  const nameThumbs = () => {
    for (const label of document.querySelectorAll(".filter > label, .control > label")) {
      const thumb = label.parentElement.querySelector("[role=slider]");
      if (!thumb) continue;
      thumb.setAttribute("aria-label", label.textContent);
      thumb.setAttribute("aria-valuetext", label.textContent);
    }
  };
  new MutationObserver(nameThumbs).observe(root, { childList: true, subtree: true });

  // Links within the page change the address without loading it again.
  const go = (url) => {
    history.pushState(null, "", url);
    dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    scrollTo({ top: 0 });
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#switch")) switchTheme();
    const link = event.target.closest?.("a[data-local]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(link.href);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-local]")) return;
    event.preventDefault();
    const query = new URLSearchParams(new FormData(event.target)).toString();
    if (query.includes("&")) go(`/?${query}`);
    else notice("Choose at least two sweeps to compare.");
  });
  document.addEventListener("visibilitychange", () => setProps("tick", { disabled: document.hidden }));

  window.dash_clientside = { ...window.dash_clientside, live: { page } };
})();
