"use strict";
(() => {
  const key = (row, column) => {
    const text = row.children[column].dataset.value ?? "";
    const value = Number(text);
    return text === "" ? null : Number.isNaN(value) ? text : value;
  };
  const compare = (a, b) => (typeof a === typeof b && typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
  const sort = (header, order) => {
    const column = [...header.parentElement.children].indexOf(header);
    for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
    const body = header.closest("table").tBodies[0];
    const rows = [...body.rows].map((row) => [key(row, column), row]);
    rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : (order === "ascending" ? 1 : -1) * compare(a, b)));
    body.append(...rows.map(([, row]) => row));
  };
  document.addEventListener("click", (event) => {
    const header = event.target.closest?.("th button")?.closest("th");
    if (header) sort(header, header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
  });
})();
