"use strict";
// Tables that can be sorted, filtered and reduced to some columns; of some of them rows can be chosen. What was chosen of
// a table is kept in the address of the live page, and in the report as long as it is open.
const sweeperTables = (() => {
  const memory = new Map();
  const isLive = () => document.body.classList.contains("live");
  const keyOf = (wrapper) => `table-${wrapper.dataset.table}`;
  const stateOf = (wrapper) => {
    const key = keyOf(wrapper);
    return new URLSearchParams((isLive() ? new URLSearchParams(location.search).get(key) : memory.get(key)) ?? "");
  };
  const change = (wrapper, name, value) => {
    const state = stateOf(wrapper);
    if (value === null) state.delete(name);
    else state.set(name, value);
    const text = state.toString();
    memory.set(keyOf(wrapper), text);
    if (isLive()) {
      const query = new URLSearchParams(location.search);
      if (text) query.set(keyOf(wrapper), text);
      else query.delete(keyOf(wrapper));
      history.replaceState(history.state, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    }
    apply(wrapper);
  };
  const element = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  const headsOf = (wrapper) => [...wrapper.querySelector("thead tr").cells];
  const nameOf = (head) => head.dataset.name ?? head.textContent;
  const rowsOf = (wrapper) => [...wrapper.querySelector("tbody").rows];
  const valueOf = (row, column) => {
    const text = row.cells[column].dataset.value ?? row.cells[column].textContent;
    const value = Number(text);
    return text.trim() === "" ? null : Number.isNaN(value) ? text : value;
  };

  // The order.
  const compare = (a, b) => (typeof a === typeof b && typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
  const sort = (head, order) => {
    const heads = [...head.parentElement.cells];
    const column = heads.indexOf(head);
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const body = head.closest("table").tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
    rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : (order === "ascending" ? 1 : -1) * compare(a, b)));
    body.append(...rows.map(([, row]) => row));
  };

  // The filter: words that a row has, and conditions on columns, separated by commas.
  const CONDITION = /^\s*(.+?)\s*(<=|>=|<|>|=)\s*(.+?)\s*$/;
  const numberIn = (text) => (text.endsWith("%") ? Number(text.slice(0, -1)) / 100 : Number(text));
  const TESTS = {
    "<": (a, b) => a < b,
    ">": (a, b) => a > b,
    "<=": (a, b) => a <= b,
    ">=": (a, b) => a >= b,
    "=": (a, b) => a === b,
  };
  const columnOf = (names, text) => {
    const wanted = text.toLowerCase();
    const exact = names.findIndex((name) => name === wanted);
    return exact >= 0 ? exact : names.findIndex((name) => name.endsWith(`.${wanted}`) || name.endsWith(` ${wanted}`) || name.startsWith(wanted));
  };
  const termOf = (names, text) => {
    const [, name, sign, value] = CONDITION.exec(text) ?? [];
    const wanted = text.trim().toLowerCase();
    if (!sign) return (row) => row.textContent.toLowerCase().includes(wanted);
    const column = columnOf(names, name);
    if (column < 0) return null;
    const number = numberIn(value);
    if (!Number.isNaN(number)) return (row) => typeof valueOf(row, column) === "number" && TESTS[sign](valueOf(row, column), number);
    return sign === "=" ? (row) => String(valueOf(row, column) ?? "").toLowerCase() === value.toLowerCase() : null;
  };

  // Everything that was chosen, applied to the table as it is.
  const apply = (wrapper) => {
    const state = stateOf(wrapper);
    const heads = headsOf(wrapper);
    const rows = rowsOf(wrapper);
    const tools = wrapper.querySelector(".tools");
    const [field, boxes, count] = [tools.querySelector("[type=search]"), tools.querySelectorAll("[data-column]"), tools.querySelector(".count")];
    const text = state.get("filter") ?? "";
    if (field !== document.activeElement) field.value = text;
    const names = heads.map((head) => nameOf(head).toLowerCase());
    const terms = text.split(",").filter((part) => part.trim()).map((part) => [part.trim(), termOf(names, part)]);
    const wrong = terms.find(([, term]) => !term);
    const tests = terms.map(([, term]) => term).filter(Boolean);
    for (const row of rows) row.hidden = !tests.every((test) => test(row));
    const left = rows.filter((row) => !row.hidden).length;
    count.textContent = wrong ? `No column fits ${wrong[0]}` : tests.length ? `${left} of ${rows.length} rows` : "";
    field.setAttribute("aria-invalid", String(Boolean(wrong)));
    const hidden = state.has("hide") ? state.get("hide").split("\n") : heads.filter((head) => head.dataset.hidden !== undefined).map(nameOf);
    for (const box of boxes) box.checked = !hidden.includes(box.dataset.column);
    heads.forEach((head, i) => {
      const gone = hidden.includes(nameOf(head));
      if (head.hidden === gone) return;
      head.hidden = gone;
      for (const row of rows) row.cells[i].hidden = gone;
    });
    const by = state.get("sort");
    const head = by && heads.find((one) => nameOf(one) === by.replace(/^-/, ""));
    if (head) sort(head, by.startsWith("-") ? "descending" : "ascending");
    const chosen = (state.get("chosen") ?? "").split(".");
    for (const box of wrapper.querySelectorAll("[data-choose]")) box.checked = chosen.includes(box.value);
    if (wrapper.dataset.compares) sweeperCompare.show(wrapper, heads, rows.filter((row) => row.querySelector("[data-choose]").checked));
  };

  // The tools above a table; those of the same table before it was fetched again stay, with what was typed in them.
  const kept = new Map();
  const toolsOf = (wrapper) => {
    const names = headsOf(wrapper).filter((head) => head.querySelector("button")).map(nameOf);
    const key = `${wrapper.dataset.table}\n${names.join("\n")}`;
    if (!kept.has(key)) {
      const id = `filter-${wrapper.dataset.table}`;
      const field = element("input", { type: "search", className: "text", id, autocomplete: "off", spellcheck: false });
      const label = element("label", { htmlFor: id, textContent: "Filter" });
      const boxes = names.map((name) => {
        const box = element("input", { type: "checkbox", value: `column ${name}` });
        box.dataset.column = name;
        return element("label", {}, box, ` ${name}`);
      });
      const columns = element("details", { className: "columns" }, element("summary", { textContent: "Columns" }), element("div", {}, ...boxes));
      const count = element("span", { className: "count" });
      count.setAttribute("role", "status");
      kept.set(key, element("div", { className: "tools" }, label, field, count, columns));
    }
    return kept.get(key);
  };
  // On a phone the cells of a card have their headings beside them.
  const phone = matchMedia("(max-width: 37.5rem)");
  const label = (wrapper) => {
    if (wrapper.dataset.cards === undefined || !phone.matches) return;
    const names = headsOf(wrapper).map((head) => head.querySelector("button")?.textContent ?? "");
    const first = wrapper.dataset.cards === "boxes" ? 2 : wrapper.querySelector("td.number:first-child") ? 0 : 1; // a title that is a number says of what
    for (const row of rowsOf(wrapper)) for (const [i, name] of names.entries()) if (i >= first) row.cells[i].dataset.label = name;
  };
  phone.addEventListener("change", () => document.querySelectorAll("[data-cards]").forEach(label));

  const equip = (root) => {
    for (const wrapper of root.querySelectorAll("[data-table]")) {
      label(wrapper);
      wrapper.prepend(toolsOf(wrapper));
      apply(wrapper);
    }
  };

  document.addEventListener("click", (event) => {
    const head = event.target.closest?.("th button")?.closest("th");
    if (!head) return;
    const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const wrapper = head.closest("[data-table]");
    if (wrapper) change(wrapper, "sort", order === "ascending" ? nameOf(head) : `-${nameOf(head)}`);
    else sort(head, order);
  });
  document.addEventListener("input", ({ target }) => {
    const wrapper = target.closest?.("[data-table]");
    if (wrapper && target.type === "search") change(wrapper, "filter", target.value || null);
  });
  document.addEventListener("change", ({ target }) => {
    const wrapper = target.closest?.("[data-table]");
    if (!wrapper) return;
    if (target.dataset.column !== undefined) {
      const hidden = [...wrapper.querySelectorAll("[data-column]")].filter((box) => !box.checked);
      change(wrapper, "hide", hidden.map((box) => box.dataset.column).join("\n"));
    }
    if (target.dataset.choose !== undefined) {
      const chosen = [...wrapper.querySelectorAll("[data-choose]")].filter((box) => box.checked);
      change(wrapper, "chosen", chosen.length ? chosen.map((box) => box.value).join(".") : null);
    }
  });
  return { equip, element };
})();
