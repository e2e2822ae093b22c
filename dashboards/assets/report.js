"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const dark = read("dark-colors");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const { config, narrow, repaint } = sweeperFigures;

  // The front ends above the fold, unless it would be too flat to read.
  const LEAST = 340;
  const first = document.querySelector("#plot-front, #plot-fronts");
  const fitting = (height) => {
    const top = first.getBoundingClientRect().top + scrollY;
    return Math.min(height, Math.max(innerHeight - top - 8, LEAST));
  };

  // What is folded has no width to be drawn at until it opens.
  const draw = (useDark, { onPaper = false, within = document } = {}) => {
    for (const [id, original] of Object.entries(figures)) {
      const element = document.getElementById(id);
      if (!within.contains(element) || element.closest(".topic:not([open])")) continue;
      let figure = structuredClone(original);
      if (useDark) figure = repaint(figure, dark);
      const phone = element.clientWidth < 560;
      if (phone) figure = narrow(figure);
      const bar = phone ? false : "hover";
      if (element === first) figure.layout.height = phone || onPaper ? figure.layout.height : fitting(figure.layout.height);
      element.style.setProperty("--height", `${figure.layout.height ?? 450}px`);
      Plotly.react(element, figure.data, { ...figure.layout, autosize: true }, { ...config, displayModeBar: bar });
    }
  };

  // The parts of the page, below the first of them.
  const contents = () => {
    const { element } = sweeperTables;
    const parts = [...document.querySelectorAll("main section[id]")].filter((part) => part.querySelector("h2"));
    const links = parts.map((part) => element("li", {}, element("a", { href: `#${part.id}`, textContent: part.querySelector("h2").textContent })));
    const list = element("details", {}, element("summary", { textContent: "On this page" }), element("ul", {}, ...links));
    const place = element("nav", { className: "contents" }, list);
    place.setAttribute("aria-label", "On this page");
    if (parts.length > 3) parts[0].after(place);
  };

  draw(prefersDark.matches);
  prefersDark.addEventListener("change", (event) => draw(event.matches));
  sweeperCompare.drawFrom(async () => ({
    figure: figures["plot-curves"],
    paint: (frame, made) => {
      const figure = prefersDark.matches ? repaint(made, dark) : made;
      return Plotly.react(frame.firstElementChild, figure.data, { ...figure.layout, autosize: true }, config);
    },
  }));
  prefersDark.addEventListener("change", sweeperCompare.again);
  sweeperTables.equip(document);
  contents();
  const opened = (event) => {
    if (event.target.open) draw(prefersDark.matches, { within: event.target });
  };
  document.querySelectorAll(".topic").forEach((topic) => topic.addEventListener("toggle", opened));
  const reveal = () => {
    const part = document.getElementById(location.hash.slice(1));
    const topic = part?.closest(".topic:not([open])");
    if (!topic) return;
    topic.open = true;
    part.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  // On paper nothing can be opened.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(".topic:not([open]), figcaption details:not([open])")];
    folded.forEach((one) => (one.open = true));
    draw(false, { onPaper: true });
  });
  addEventListener("afterprint", () => {
    folded.forEach((one) => (one.open = false));
    draw(prefersDark.matches);
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if ((width < 600) !== (innerWidth < 600)) draw(prefersDark.matches);
    width = innerWidth;
  });
})();
