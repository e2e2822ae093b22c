"use strict";
// The live page: it asks every two seconds what to show, and fetches what is new.
(() => {
  const { byId, load, get, notice, go, choose } = sweeperBrowser;
  const TICK_MILLISECONDS = 2000;

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
    sweeperTables.equip(place);
    for (const one of inside("[data-origin]")) one.textContent = location.origin; // in commands for other machines
    for (const box of inside("input[type=checkbox][name]")) box.checked = kept.checked.includes(box.value);
    if (!first) inside("details").forEach((one, i) => (one.open = kept.open[i] ?? one.open));
    inside(".scroll").forEach((one, i) => kept.scrolls[i] && one.scrollTo(...kept.scrolls[i]));
    if (kept.focus >= 0) inside("a, button, input, summary, [tabindex]")[kept.focus]?.focus({ preventScroll: true });
  };

  // Controls stand where the address says, but for one that is being moved.
  let moved;
  const stand = ({ solid, linear, radius, radii, filters }) => {
    byId(solid ? "space-3d" : "space-2d").checked = true;
    byId("axis-log").checked = !linear;
    byId("pick").hidden = !filters.length;
    byId("control-radius").hidden = radii.length < 2;
    byId("label-space").parentElement.hidden = radii.length < 2 && !solid;
    const slider = byId("radius");
    slider.max = Math.max(radii.length - 1, 1);
    if (moved !== slider) slider.value = radius;
    slider.setAttribute("aria-valuetext", radii[radius]?.[1] ?? "0");
    slider.nextElementSibling.replaceChildren(
      ...radii.map(([, mark]) => Object.assign(document.createElement("span"), { textContent: mark })),
    );
    byId("section-front").dataset.value = radii[radius]?.[0] ?? "";
    document.querySelectorAll(".filter").forEach((place, i) => {
      const [label, box, thumb] = place.children;
      const filter = filters[i];
      place.hidden = !filter;
      if (!filter) return;
      label.textContent = filter.label;
      box.setAttribute("aria-label", filter.box_label);
      box.placeholder = filter.percent ? "any %" : "any";
      thumb.setAttribute("aria-valuetext", filter.label);
      if (moved === box || moved === thumb) return;
      box.value = filter.box ?? "";
      thumb.value = filter.slider;
    });
  };
  const filterOf = (control) => shown?.filters[[...document.querySelectorAll(".filter")].indexOf(control.closest(".filter"))];
  // The limit that a control says, null for none: an epsilon's slider has its logarithm, and no limit at its right end.
  const limitOf = ({ name, percent }, control) => {
    const number = control.valueAsNumber;
    if (control.type === "range" && name === "epsilon") return number < control.max ? Number((10 ** number).toPrecision(3)) : null;
    if (!(number > 0)) return null;
    if (control.type !== "number" || !percent) return number;
    return Math.min(Number((number < 1 ? number : number / 100).toPrecision(6)), 1); // 0.95 is typed for 95 %
  };
  document.addEventListener("input", ({ target }) => {
    if (!target.matches(".filter input, #radius")) return;
    moved = target;
    const filter = filterOf(target);
    if (!filter || target.type === "number") return;
    const limit = limitOf(filter, target);
    target.parentElement.querySelector(".limit").value = limit === null ? "" : filter.percent ? Math.round(100 * limit) : limit;
  });
  document.addEventListener("change", ({ target }) => {
    moved = undefined;
    const filter = target.closest(".filter") && filterOf(target);
    if (filter) {
      const limit = limitOf(filter, target);
      if (filter.name === "epsilon") choose({ "max-epsilon": limit, point: null });
      else choose({ point: null }, { [filter.name]: limit });
    }
    if (target.id === "radius") choose({ radius: target.value > 0 ? shown.radii[target.value][0] : null });
    if (target.name === "space") choose({ view: target.id === "space-3d" ? "3d" : null });
    if (target.id === "axis-log") choose({ axis: target.checked ? null : "linear" });
  });
  document.addEventListener("focusout", () => (moved = undefined));

  // The page as a whole.
  let shown;
  const page = (state) => {
    shown = state;
    document.title = `${state.title} · Sweeper`;
    notice(state.notice);
    byId("missing").hidden = state.title !== "Not found";
    byId("tabs").hidden = byId("saved-views").hidden = !state.tab;
    for (const [id, href] of Object.entries(state.links)) byId(id).setAttribute("href", href);
    for (const link of byId("tabs").children) {
      link.hidden = !(link.id in state.links);
      if (link.id === `tab-${state.tab}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    for (const section of document.querySelectorAll("[id^=section-]")) {
      section.hidden = !(section.id.replace("section-", "figure-") in state.resources);
    }
    stand(state);
    const pictures = sweeperPlots.show(state.resources);
    if (!(FORM in state.resources)) dropForm();
    for (const place of document.querySelectorAll("[id^=part-]")) {
      place.hidden = !(place.id in state.resources);
      if (place.hidden) continue;
      const fill = () => put(place.id, state.resources[place.id]);
      // Long tables wait: a figure that is measured has everything above and below it laid out. At the first visit the
      // point picked does too: the first card of a service takes it seconds, which are the picture's.
      if (place.matches(".late") || (place.id === "part-picked" && !window.Plotly)) pictures.then(() => shown === state && fill());
      else fill();
    }
    const pulse = byId("pulse");
    pulse.textContent = { running: "live", completed: "ended" }[state.state] ?? state.state;
    pulse.classList.toggle("on", state.state === "running");
    const owner = document.querySelector("[data-session]")?.dataset.session;
    if (owner) byId("sign-out").title = `Signed in as ${owner}`;
    dispatchEvent(new Event("sweeper-shown"));
  };

  // Ask what to show; of an address that was left meanwhile the answer does not count.
  let looking, known;
  const look = async () => {
    const { search } = location;
    if (looking?.search === search) return;
    const mine = (looking = { search });
    try {
      const answer = await load(`/live/state${search}`, known?.search === search ? { "If-None-Match": known.tag } : {});
      const state = answer.status === 304 ? null : await answer.json();
      if (looking !== mine) return;
      known = { search, tag: answer.headers.get("ETag") };
      if (state) page(state);
    } catch (error) {
      if (looking !== mine) return;
      known = undefined; // so that the next answer clears the notice
      notice(error.message);
    }
    looking = undefined;
  };
  addEventListener("DOMContentLoaded", look);
  addEventListener("sweeper-address", look);
  addEventListener("sweeper-theme", () => shown && page(shown));
  setInterval(() => document.hidden || look(), TICK_MILLISECONDS);
  document.addEventListener("visibilitychange", () => document.hidden || look());
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-local]")) return;
    event.preventDefault();
    const query = new URLSearchParams(new FormData(event.target)).toString();
    if (query.includes("&")) go(`/?${query}`);
    else notice("Choose at least two sweeps to compare.");
  });
})();
