"use strict";
// Forms that change something: they are sent to the REST API, which decides, and say what it answers.
(() => {
  const { byId, go, load } = sweeperBrowser;
  const TYPES = { json: "application/json", yaml: "application/yaml" };
  const unique = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const headers = (form) => {
    const given = { "Content-Type": TYPES[form.dataset.kind] };
    if (form.dataset.key) given["X-Sweeper-Form"] = form.dataset.key; // a form of this session
    if (form.dataset.kind === "yaml") given["Idempotency-Key"] = form.dataset.once ??= unique(); // pressed twice, sent once
    return given;
  };

  const valueOf = (field) => {
    if (field.tagName === "SELECT") return JSON.parse(field.value);
    return field.type === "number" ? field.valueAsNumber : field.value;
  };
  const body = (form) => {
    if (form.dataset.kind === "yaml") return form.elements.spec.value;
    const content = {};
    for (const field of form.elements) {
      if (field.dataset.bound !== undefined) {
        content.region ??= [];
        if (field.value !== "") content.region.push(`${field.dataset.bound} ${field.value}`);
      } else if (field.dataset.in) {
        content[field.dataset.in] ??= {};
        if (field.value !== "") content[field.dataset.in][field.name] = valueOf(field);
      } else if (field.name) {
        content[field.name] = valueOf(field);
      }
    }
    return Object.keys(content).length ? JSON.stringify(content) : undefined;
  };

  const ask = async (method, url, given, content) => {
    const response = await fetch(url, { method, headers: given, body: content, credentials: "same-origin" });
    const text = await response.text();
    const fail = (said = `The service answered ${response.status}.`) => {
      throw Object.assign(new Error(said), { status: response.status });
    };
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      fail();
    }
    if (!response.ok) fail(answer.detail);
    return answer;
  };

  let told;
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form.act")) return;
    event.preventDefault();
    const button = form.querySelector("button[type=submit]");
    const refused = form.querySelector(".refused");
    button.disabled = true;
    refused.hidden = true;
    try {
      const answer = await ask(form.dataset.send, form.dataset.to, headers(form), body(form));
      const then = form.dataset.then.replace("{id}", encodeURIComponent(answer.id));
      go(then);
      const done = byId("done");
      done.textContent = form.dataset.done;
      done.hidden = false;
      clearTimeout(told);
      told = setTimeout(() => (done.hidden = true), 15000);
      scrollTo({ top: 0 });
      byId("content").focus();
    } catch (error) {
      refused.textContent = error.message;
      refused.hidden = false;
      button.disabled = false;
    }
  });

  addEventListener("sweeper-address", () => (byId("done").hidden = true)); // what was done is said once

  // A spec is checked as it is typed: the last text counts.
  let timer, latest;
  const check = async (area) => {
    if (!area.isConnected) return; // the form was left meanwhile
    const form = area.form;
    const text = area.value;
    const place = byId("checked");
    const button = form.querySelector("button[type=submit]");
    const given = { "Content-Type": TYPES.yaml };
    if (form.dataset.key) given["X-Sweeper-Form"] = form.dataset.key;
    latest = text;
    try {
      const found = await ask("POST", area.dataset.check, given, text);
      if (latest !== text) return;
      if (found.account?.refused) throw new Error(found.account.statement);
      const say = (course, price = found.price) =>
        (place.textContent = [`${found.name} can be run.`, course, price, found.account?.statement].filter(Boolean).join("\n"));
      say("Counting rows and trials…");
      place.classList.remove("wrong");
      area.removeAttribute("aria-invalid");
      delete form.dataset.once; // another text is another sweep
      const plan = await ask("POST", `${area.dataset.check}?plan=true`, given, text).then(
        ({ plan }) => plan,
        (error) => {
          if (!(error.status >= 500)) throw error;
          return { statement: error.message }; // the service has failed, and the spec is valid
        },
      );
      if (latest !== text) return;
      say(plan?.statement, plan?.price);
      button.disabled = false;
    } catch (error) {
      if (latest !== text) return;
      place.textContent = error.message;
      place.classList.add("wrong");
      area.setAttribute("aria-invalid", "true");
      button.disabled = true;
    }
  };
  // What an extension would cost follows the number that is typed.
  let typed;
  const reprice = async (field) => {
    if (!field.isConnected) return;
    const further = field.valueAsNumber - field.dataset.soFar;
    const stale = !(further >= 1);
    field.form.querySelector(".price").hidden = stale;
    if (stale) {
      if (field.value) field.reportValidity();
      return;
    }
    const answer = await load(`/live/part/action${location.search}&further=${further}`).then((got) => got.text(), () => "");
    const price = new DOMParser().parseFromString(answer, "text/html").querySelector(".price");
    if (price && field.isConnected && field.valueAsNumber - field.dataset.soFar === further) {
      field.form.querySelector(".price").replaceWith(price);
    }
  };
  document.addEventListener("input", ({ target }) => {
    if (!target.dataset?.soFar) return;
    clearTimeout(typed);
    typed = setTimeout(() => reprice(target), 400);
  });
  const soon = (area, delay) => {
    area.form.querySelector("button[type=submit]").disabled = true;
    latest = undefined;
    clearTimeout(timer);
    timer = setTimeout(() => check(area), delay);
  };
  document.addEventListener("input", (event) => {
    if (event.target.dataset?.check) soon(event.target, 400);
  });
  document.addEventListener("change", async (event) => {
    const area = byId(event.target.dataset?.into ?? "");
    const file = event.target.files?.[0];
    if (!area || !file) return;
    area.value = await file.text();
    soon(area, 0);
  });
  new MutationObserver(() => {
    const area = document.querySelector("[data-check]:not([data-seen])");
    if (!area) return;
    area.dataset.seen = "";
    soon(area, 0);
  }).observe(document.documentElement, { childList: true, subtree: true });

  // Saved views: names for addresses, kept by this browser.
  const KEPT = "sweeper-views";
  const views = () => {
    try {
      return JSON.parse(localStorage.getItem(KEPT)) ?? [];
    } catch {
      return []; // storage may be forbidden, or hold something else
    }
  };
  const keep = (kept) => {
    try {
      localStorage.setItem(KEPT, JSON.stringify(kept));
    } catch {} // then nothing is kept
    list();
  };
  const isOfThisSweep = ({ search }) =>
    new URLSearchParams(search).get("sweep") === new URLSearchParams(location.search).get("sweep");
  const list = () => {
    const place = byId("views");
    const items = views().filter(isOfThisSweep).map((view) => {
      const link = Object.assign(document.createElement("a"), { href: `/${view.search}`, textContent: view.name });
      link.dataset.local = "true";
      const gone = Object.assign(document.createElement("button"), { type: "button", textContent: "Forget", className: "button" });
      gone.setAttribute("aria-label", `Forget ${view.name}`);
      gone.addEventListener("click", () => keep(views().filter((other) => other.name !== view.name || other.search !== view.search)));
      const item = document.createElement("li");
      item.append(link, " ", gone);
      return item;
    });
    place?.replaceChildren(...items);
  };
  addEventListener("sweeper-shown", list);
  document.addEventListener("click", (event) => {
    const name = byId("view-name")?.value.trim();
    if (event.target.id !== "save-view" || !name) return;
    const others = views().filter((view) => view.name !== name || !isOfThisSweep(view));
    keep([...others, { name, search: location.search }].slice(-100));
  });

  // A row leads where its own link leads.
  document.addEventListener("click", (event) => {
    const row = event.target.closest?.("tr");
    if (!row || event.target.closest("a, button, input, label, summary") || String(getSelection())) return;
    row.querySelector("a[data-row]")?.click();
  });
})();
