"use strict";
// Trials side by side: what they differ in, and their curves. A page says where the figure of curves comes from.
const sweeperCompare = (() => {
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
  const panels = new Map();
  let axis = "epochs";

  // The figure reduced to some trials, told apart by colour and dash, over epochs or epsilon.
  const reduced = (original, ids) => {
    const figure = structuredClone(original);
    const { hues, epsilon } = figure.layout.meta;
    figure.data = ids.flatMap((id, i) => {
      const trace = figure.data.find((one) => one.meta === id);
      if (!trace) return [];
      const color = hues[i % hues.length];
      const x = axis === "epsilon" ? trace.customdata.map(([value]) => value) : trace.x;
      const bars = trace.error_y && { ...trace.error_y, color };
      const line = { color, width: 2, dash: DASHES[Math.floor(i / hues.length) % DASHES.length] };
      return [{ ...trace, x, name: id, showlegend: true, legendgroup: id, opacity: 1, line, marker: { size: 6, color }, error_y: bars }];
    });
    if (axis === "epsilon") figure.layout.xaxis = { title: { text: epsilon }, type: "log" };
    return figure;
  };

  const element = (...given) => sweeperTables.element(...given);
  const cellsOf = (row, i) => row.cells[i].textContent.trim();
  const differences = (heads, rows) => {
    const names = heads.map((head) => head.dataset.name);
    const columns = names.flatMap((name, i) => (name && name !== "trial" && name !== "run" ? [i] : []));
    const differing = columns.filter((i) => new Set(rows.map((row) => cellsOf(row, i))).size > 1);
    const top = element("tr", {}, element("th", { scope: "col", textContent: "differs" }));
    const at = names.indexOf("trial");
    for (const row of rows) top.append(element("th", { scope: "col", textContent: cellsOf(row, at) }));
    const body = element("tbody", {});
    for (const i of differing) {
      const line = element("tr", {}, element("th", { scope: "row", textContent: names[i] }));
      for (const row of rows) line.append(element("td", { textContent: cellsOf(row, i) }));
      body.append(line);
    }
    return element("table", {}, element("thead", {}, top), body);
  };

  const panelOf = (name, what) => {
    if (!panels.has(name)) {
      const choices = ["epochs", "epsilon"].map((one) => {
        const button = element("button", { type: "button", className: "button", textContent: `Over ${one === "epsilon" ? "own epsilon" : one}` });
        button.dataset.axis = one;
        return button;
      });
      const table = element("div", { className: "scroll sides", tabIndex: 0 });
      table.setAttribute("role", "region");
      table.setAttribute("aria-label", `Differences of ${what}`);
      const plot = element("div", { className: "plot" });
      const frame = element("div", { className: "frame" }, plot);
      frame.setAttribute("role", "group");
      frame.setAttribute("aria-label", "Figure: the chosen trials");
      const parts = [element("h3", {}), table, element("p", { className: "actions" }, ...choices), frame, element("p", { className: "test" })];
      panels.set(name, element("div", { className: "chosen" }, ...parts));
    }
    return panels.get(name);
  };

  // Show the rows that were chosen below their table, from two on.
  const show = (wrapper, heads, rows) => {
    const panel = panelOf(wrapper.dataset.table, wrapper.dataset.compares);
    panel.remove();
    if (rows.length < 2) return;
    const ids = rows.map((row) => row.querySelector("[data-choose]").value);
    const [title, table, choices, frame, note] = panel.children;
    title.textContent = `${ids.length} ${wrapper.dataset.compares} side by side`;
    table.replaceChildren(differences(heads, rows));
    for (const button of choices.children) button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
    wrapper.append(panel);
    draw(frame, note, ids);
  };
  const draw = async (frame, note, ids) => {
    const { figure, paint } = await source();
    if (!frame.isConnected || !figure) return;
    const made = reduced(figure, ids);
    const missing = ids.filter((id) => !made.data.some((trace) => trace.name === id));
    note.textContent = missing.length ? `Without a curve here: ${missing.join(", ")}.` : "";
    await paint(frame, made);
  };
  let source = async () => ({});
  const drawFrom = (given) => (source = given);

  const again = () => {
    for (const panel of panels.values()) if (panel.isConnected) sweeperTables.equip(panel.closest("[data-table]").parentElement);
  };
  document.addEventListener("click", ({ target }) => {
    const wanted = target.closest?.("[data-axis]")?.dataset.axis;
    if (!wanted) return;
    axis = wanted;
    again();
  });
  return { show, drawFrom, again };
})();
