"use strict";
// A box beside each slider of the filters, for who would rather type a number; empty is any. And plain roles of choices.
(() => {
  const inPercent = (label) => /%|^(accuracy|auroc|certified)/.test(label);
  const said = (label) => {
    const number = Number(/[≤≥]\s*([\d.e-]+)/.exec(label)?.[1] ?? NaN);
    return Number.isNaN(number) ? "" : String(number);
  };
  const valueOf = (name, box, label) => {
    const number = box.value === "" ? NaN : Number(box.value);
    if (name === "max-epsilon") return number > 0 ? Math.max(-2, Math.min(2, Math.log10(number))) : 2;
    return Number.isNaN(number) ? 0 : Math.max(0, Math.min(1, inPercent(label) ? number / 100 : number));
  };
  const add = (filter) => {
    const name = filter.id.replace("control-", "");
    const label = filter.querySelector("label");
    const box = Object.assign(document.createElement("input"), { type: "number", className: "limit", step: "any", min: 0 });
    box.placeholder = "any";
    box.addEventListener("change", () => {
      window.dash_clientside.set_props(name, { value: valueOf(name, box, label.textContent) });
    });
    filter.append(box);
  };
  const follow = () => {
    for (const filter of document.querySelectorAll(".filter[id]")) {
      if (!filter.querySelector("input.limit")) add(filter);
      const [box, label] = [filter.querySelector("input.limit"), filter.querySelector("label").textContent];
      const what = `${label.replace(/([≤≥]).*/, "$1")} as a number${/^epsilon/.test(label) || !inPercent(label) ? "" : ", in percent"}`;
      if (box.getAttribute("aria-label") !== what) box.setAttribute("aria-label", what);
      if (box !== document.activeElement && box.value !== said(label)) box.value = said(label);
    }
  };
  // Dash says that its radio buttons and boxes are options of a list; they are inputs with labels, in a named group.
  const plain = () => {
    for (const one of document.querySelectorAll("#space, #axis, :is(#space, #axis) label")) {
      for (const name of ["role", "aria-selected"]) if (one.hasAttribute(name)) one.removeAttribute(name);
    }
  };
  new MutationObserver(plain).observe(document.documentElement, { childList: true, subtree: true, attributeFilter: ["role", "aria-selected"] });
  new MutationObserver(follow).observe(document.documentElement, { childList: true, characterData: true, subtree: true });
})();
